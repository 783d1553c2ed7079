"""The only door to the runtime: submit, stream, abort, control.

It owns the sockets and the child processes; what a request may be is `intake`'s business, what
becomes of its deltas `streams`'.
"""

import asyncio
import dataclasses
import itertools
import logging
import os
import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from headwater.config import Config
from headwater.errors import (
    Conflict,
    EngineDead,
    HeadwaterError,
    InternalError,
    InvalidRequest,
    Overloaded,
)
from headwater.frontend.intake import Intake, Prepared
from headwater.frontend.requests import GenerateRequest
from headwater.frontend.streams import AnswerStream, Streams
from headwater.frontend.supervisor import Supervisor, make_socket_dir
from headwater.messages.codec import FRONT_END_CODEC, WORKER_CODEC
from headwater.messages.params import SamplingParams, params_from_dict
from headwater.messages.requests import (
    Abort,
    CheckIntegrity,
    FlushCache,
    GetState,
    ToWorker,
)
from headwater.messages.sockets import AsyncPullSocket, PushSocket
from headwater.messages.text import ControlReply, ModelCard, Ready, TextBatch, ToFrontEnd
from headwater.prompt.chat import ChatPrompt, ChatPrompts, ContentFormat, load_formats
from headwater.prompt.infill import encode_infill
from headwater.sources.fingerprint import fingerprint
from headwater.sources.info import ModelInfo, read_model_info
from headwater.sources.resolve import resolve_model
from headwater.text.gguf_tokenizer import tokenizer_from_gguf
from headwater.text.stop_regex import check_stop_regex
from headwater.text.tokenizer import Tokenizer, load_tokenizer
from headwater.version import __version__

__all__ = ["ChatPrompt", "Client"]

log = logging.getLogger("headwater.client")

_CONTROL_TIMEOUT_S = 60.0
_ABORT_TIMEOUT_S = 5.0


class Client:
    """A running engine. Make it with `await Client.start(config)`.

    Attributes:
        config: All settings.
        card: What the worker told of the model.
        info: What the model's files say.
        model_path: Where the model lies.
        model_names: Names that clients may use for it, the first is shown.
        tokenizer: The model's tokenizer.
        chat: Makes prompts of conversations.
        sampling_defaults: The model's own sampling parameters.
        fingerprint: Short name of weights, precision and version, which shape the answers.
        started_at: Unix time of the start.
        died: Set when a child process has ended unexpectedly.
    """

    def __init__(self, config: Config, info: ModelInfo, socket_dir: Path) -> None:
        self.config = config
        self.info = info
        self.model_path = config.model.model
        self.model_names = list(config.model.served_model_name) or [info.name]
        self.sampling_defaults: dict[str, Any] = dict(info.generation_defaults)
        self.started_at = time.time()
        self.died = asyncio.Event()
        self.fingerprint = fingerprint(
            Path(self.model_path),
            config.model.dtype,
            config.model.quantization,
            config.model.kernels,
            __version__,
        )
        self.card: ModelCard
        self.tokenizer: Tokenizer = load_tokenizer(socket_dir / "tokenizer.json")
        self.chat: ChatPrompts
        self._intake: Intake
        self._error: HeadwaterError | None = None
        self._is_draining = False
        self._streams = Streams()
        self._uids = itertools.count(1)
        self._seqs = itertools.count(1)
        self._live: dict[str, int] = {}  # rid of each answer in flight to its uid
        self._rid_of: dict[int, str] = {}
        self._replies: dict[int, asyncio.Future[ControlReply]] = {}
        self._supervisor = Supervisor(socket_dir, config.stream.tokenizer_workers, self._note_death)
        self._inbox: AsyncPullSocket[ToFrontEnd] = AsyncPullSocket(
            socket_dir, "front_end", FRONT_END_CODEC
        )
        self._worker: PushSocket[ToWorker] = PushSocket(socket_dir, "worker", WORKER_CODEC)
        self._reader: asyncio.Task[None]

    @classmethod
    async def start(cls, config: Config) -> "Client":
        """Find the model, start the other processes, and wait until they are ready.

        Raises:
            ConfigError: A setting does not fit the model.
            ModelLoadError: The model cannot be found, fetched or loaded.
        """
        socket_dir = make_socket_dir()
        try:
            resolved, info = await asyncio.to_thread(_prepare_files, config, socket_dir)
            client = cls(resolved, info, socket_dir)
        except BaseException:
            shutil.rmtree(socket_dir, ignore_errors=True)
            raise
        try:
            client._reader = asyncio.create_task(client._read())
            # Before the model loads: a wrong template should not wait for it.
            client.chat = await asyncio.to_thread(_load_chat, resolved, info, client.tokenizer)
            client._supervisor.start()
            client.card = await client._supervisor.wait_ready()
        except BaseException:
            await client._close()
            raise
        client._intake = Intake(
            client.tokenizer,
            vocab_size=client.card.vocab_size,
            context_length=client.card.context_length,
            max_total_tokens=client.card.max_total_tokens,
            random_seed=config.scheduler.random_seed,
        )
        return client

    @property
    def model_name(self) -> str:
        """The name that answers show."""
        return self.model_names[0]

    @property
    def is_alive(self) -> bool:
        """False once a process of the engine has ended."""
        return self._error is None

    @property
    def is_draining(self) -> bool:
        """True when no new requests are taken."""
        return self._is_draining

    @property
    def num_live(self) -> int:
        """Answers in flight."""
        return len(self._streams)

    def params(
        self,
        values: Mapping[str, Any],
        *,
        param: str = "sampling_params",
        base: Mapping[str, Any] | None = None,
    ) -> SamplingParams:
        """Check sampling parameters; absent ones come from the model, then from `base`.

        Raises:
            InvalidRequest: One of them is wrong; `param` names it.
        """
        params = params_from_dict(
            values,
            defaults={**(base or {}), **self.sampling_defaults},
            vocab_size=self.card.vocab_size,
            param=param,
        )
        for pattern in params.stop_regex:
            check_stop_regex(pattern, param=f"{param}.stop_regex")
        return params

    async def submit(self, requests: Sequence[GenerateRequest]) -> AnswerStream:
        """Start requests, all or none of them.

        Raises:
            InvalidRequest: One of them is wrong, or they can never run together.
            Conflict: A name is in use.
            Overloaded: The queue is full, or the engine is stopping.
            EngineDead: A process of the engine has ended.
        """
        self._check_open()
        prepared = await self._intake.prepare(requests)
        self._check_open()
        rids = [rid for p in prepared for rid in p.answer_rids()]
        self._check_admission(rids)
        uids = [next(self._uids) for _ in rids]

        def abort(indexes: Iterable[int]) -> None:
            self._abort([uids[i] for i in indexes])

        stream = AnswerStream([p.prompt_ids for p in prepared], rids, abort)
        for index, (uid, rid) in enumerate(zip(uids, rids, strict=True)):
            self._live[rid] = uid
            self._rid_of[uid] = rid
            self._streams.open(uid, stream, index)
        for uid, (p, k) in zip(uids, _answers(prepared), strict=True):
            self._worker.send(p.message(uid, k))
        return stream

    def encode_chat(
        self,
        messages: Any,
        *,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        variables: Mapping[str, Any] | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        template: str | None = None,
    ) -> ChatPrompt:
        """Prompt ids of a conversation and the strings that end its answer.

        Args:
            messages: As a client sent them.
            add_generation_prompt: End with what opens the assistant's turn.
            continue_final_message: Leave the last message open, to be continued.
            variables: More variables for the template.
            tools: Functions that the model may call.
            documents: Texts that the answer may use.
            template: Jinja source from the request.

        Raises:
            InvalidRequest: A message is wrong, or the template refuses it.
            NotSupported: The model has no chat template, or the request's is not trusted.
        """
        return self.chat.encode(
            messages,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
            variables=variables,
            tools=tools,
            documents=documents,
            template=template,
            check_text=lambda text: self._intake.check_chars(text, "messages"),
        )

    def check_text(self, text: str, param: str) -> None:
        """Refuse a text that cannot fit the context, before time is spent on its tokens.

        Raises:
            ContextLengthExceeded: It cannot; `param` is where it came in.
        """
        self._intake.check_chars(text, param)

    def encode_infill(self, prefix: str | Sequence[int], suffix: str) -> list[int]:
        """Prompt ids for an answer that belongs between prefix and suffix.

        Raises:
            NotSupported: The model has no tokens for it.
        """
        return encode_infill(self.tokenizer, prefix, suffix)

    def pids(self) -> dict[str, int]:
        """Process ids of the engine's processes."""
        return {"front_end": os.getpid(), **self._supervisor.pids()}

    def abort(self, rid: str | None = None, *, abort_all: bool = False) -> int:
        """Abort answers by name; a batch's or `n`'s common name aborts all of them.

        Returns:
            How many answers were told to end.
        """
        uids = [
            uid
            for live, uid in self._live.items()
            if abort_all or (rid is not None and _belongs(live, rid))
        ]
        self._abort(uids)
        return len(uids)

    async def flush_cache(self) -> ControlReply:
        """Empty the prefix cache, if nothing runs."""
        return await self._control(FlushCache)

    async def check_integrity(self) -> ControlReply:
        """Let the worker check that every page and slot has one owner."""
        return await self._control(CheckIntegrity)

    async def state(self) -> dict[str, Any]:
        """The scheduler's counts."""
        return (await self._control(GetState)).data

    def drain(self) -> None:
        """Take no new requests from now on."""
        self._is_draining = True

    async def drained(self, timeout_s: float) -> bool:
        """Take no new requests and wait until none runs; False when that took too long."""
        self.drain()
        try:
            await asyncio.wait_for(self._streams.wait_idle(), timeout_s)
        except TimeoutError:
            return False
        return True

    async def stop(self) -> None:
        """Abort what runs, then end all processes and remove their files."""
        self.drain()
        self._abort(list(self._rid_of), "the server is stopping")
        await self.drained(_ABORT_TIMEOUT_S)
        await self._close()

    def _check_open(self) -> None:
        if self._error is not None:
            raise self._error
        if self._is_draining:
            raise Overloaded("the server is stopping and takes no new requests")

    def _check_admission(self, rids: Sequence[str]) -> None:
        if len(set(rids)) != len(rids):
            raise Conflict("two requests of the batch have one rid", param="rid")
        for rid in rids:
            if rid in self._live:
                raise Conflict(f"a running request has the rid {rid!r}", param="rid")
        scheduler = self.config.scheduler
        limit = scheduler.max_running_requests + scheduler.max_queued_requests
        if len(rids) > limit:
            raise InvalidRequest(
                f"prompts times n is {len(rids)}, and the server holds {limit} answers at once",
                param="n",
            )
        if len(self._streams) + len(rids) > limit:
            raise Overloaded(f"{len(self._streams)} requests are running or waiting; try later")

    def _abort(self, uids: Sequence[int], message: str = "aborted") -> None:
        if uids and self._error is None:
            self._worker.send(Abort(list(uids), message))

    async def _control(self, kind: Callable[[int], ToWorker]) -> ControlReply:
        if self._error is not None:
            raise self._error
        seq = next(self._seqs)
        future = asyncio.get_running_loop().create_future()
        self._replies[seq] = future
        self._worker.send(kind(seq))
        try:
            return await asyncio.wait_for(future, _CONTROL_TIMEOUT_S)
        except TimeoutError:
            raise InternalError("the worker does not answer") from None
        finally:
            self._replies.pop(seq, None)

    async def _read(self) -> None:
        """Hand on what comes from the other processes, for ever."""
        while True:
            message = await self._inbox.receive()
            match message:
                case TextBatch():
                    for uid in self._streams.deliver(message.deltas):
                        self._live.pop(self._rid_of.pop(uid), None)
                case Ready():
                    self._supervisor.note_ready(message)
                case ControlReply():
                    future = self._replies.get(message.seq)
                    if future is not None and not future.done():
                        future.set_result(message)

    def _note_death(self, error: EngineDead) -> None:
        self._error = error
        self._streams.fail_all(error)
        self._live.clear()
        self._rid_of.clear()
        for future in self._replies.values():
            if not future.done():
                future.set_exception(error)
        self.died.set()

    async def _close(self) -> None:
        self._reader.cancel()
        await asyncio.gather(self._reader, return_exceptions=True)
        if self._error is None:
            self._error = EngineDead("the engine has been stopped")
        self._streams.fail_all(self._error)
        self._worker.close()
        self._inbox.close()
        await self._supervisor.stop()


def _answers(prepared: Sequence[Prepared]) -> Iterable[tuple[Prepared, int]]:
    return ((p, k) for p in prepared for k in range(p.request.params.n))


def _belongs(live: str, rid: str) -> bool:
    """Whether an answer has this name, or a name made from it (`rid_3`, `rid_3_0`)."""
    if live == rid:
        return True
    parts = live.removeprefix(f"{rid}_").split("_") if live.startswith(f"{rid}_") else []
    return bool(parts) and len(parts) <= 2 and all(part.isdigit() for part in parts)


def _prepare_files(config: Config, socket_dir: Path) -> tuple[Config, ModelInfo]:
    """Find the model and write what the child processes read."""
    files = resolve_model(config.model.model, Path(config.model.cache_dir))
    info = read_model_info(files)
    target = socket_dir / "tokenizer.json"
    if config.model.tokenizer is not None:
        path = Path(config.model.tokenizer)
        source: Path | None = path / "tokenizer.json" if path.is_dir() else path
    else:
        source = info.tokenizer_json
    if source is not None:
        load_tokenizer(source).save(target)
    else:
        tokenizer_from_gguf(info.gguf_fields or {}).save(target)
    resolved = dataclasses.replace(
        config, model=dataclasses.replace(config.model, model=str(files.path))
    )
    (socket_dir / "config.json").write_text(resolved.to_json(), encoding="utf-8")
    return resolved, info


def _load_chat(config: Config, info: ModelInfo, tokenizer: Tokenizer) -> ChatPrompts:
    settings = config.model
    forms: dict[str, ContentFormat | None] = {"auto": None, "string": "string", "openai": "openai"}
    content_format = forms[settings.chat_template_content_format]
    formats = load_formats(
        settings.chat_template,
        info.chat_templates,
        special_tokens=info.special_tokens,
        content_format=content_format,
        name=settings.chat_template_name,
    )
    return ChatPrompts(
        tokenizer,
        formats,
        special_tokens=info.special_tokens,
        content_format=content_format,
        trusts_requests=settings.trust_request_chat_template,
    )
