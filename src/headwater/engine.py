"""The offline engine: the same front end without HTTP, for Python programs.

Its event loop runs in a thread of its own, so that it can be used from any program, with or without
a loop, and several engines do not know of each other.
"""

import asyncio
import atexit
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import Future
from queue import SimpleQueue
from types import TracebackType
from typing import Any, TypeVar

from headwater.config import Config, config_from_values
from headwater.errors import EngineDead, InvalidRequest
from headwater.frontend.client import Client
from headwater.frontend.native import native_result, raise_for_error
from headwater.frontend.requests import Answer, GenerateRequest
from headwater.messages.requests import LogprobSpec

__all__ = ["Engine"]

T = TypeVar("T")
Result = dict[str, Any]

_END = object()


class Engine:
    """A model in this program, with SGLang's offline interface.

    Args:
        config: All settings; instead of it, `settings` names some.
        settings: Settings by name, as the flags: `model`, `context_length` ...

    Raises:
        ConfigError: A setting is wrong.
        ModelLoadError: The model cannot be loaded.
    """

    def __init__(self, config: Config | None = None, **settings: Any) -> None:
        self._config = config if config is not None else config_from_values(settings)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, daemon=True, name="headwater-engine"
        )
        self._thread.start()
        self._is_open = True
        try:
            self._client = self._wait(Client.start(self._config))
        except BaseException:
            self._close_loop()
            raise
        # A program that ends without `shutdown` must not leave the engine's files behind.
        atexit.register(self.shutdown)

    def __enter__(self) -> "Engine":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.shutdown()

    @property
    def client(self) -> Client:
        """The front end, for what this class does not offer; use it in the engine's loop only."""
        return self._client

    def generate(
        self,
        prompt: str | Sequence[str] | None = None,
        sampling_params: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
        *,
        input_ids: Sequence[int] | Sequence[Sequence[int]] | None = None,
        messages: Sequence[Mapping[str, Any]] | None = None,
        return_logprob: bool = False,
        logprob_start_len: int = -1,
        top_logprobs_num: int = 0,
        token_ids_logprob: Sequence[int] | None = None,
        stream: bool = False,
    ) -> Any:
        """Answer one prompt or several, and wait for it.

        Args:
            prompt: A text or a list of texts.
            sampling_params: As of `/generate`; a list gives each prompt its own.
            input_ids: Token ids instead of text.
            messages: A conversation instead of text, through the model's chat template.
            return_logprob: Report log-probabilities.
            logprob_start_len: First prompt position to report; -1 none.
            top_logprobs_num: Most likely alternatives at each position.
            token_ids_logprob: Ids whose log-probability is reported.
            stream: Return an iterator of results so far.

        Returns:
            A dict with `text`, `output_ids` and `meta_info`; a list of them for several prompts or
            `n` > 1; an iterator of them (with `index`) when streaming.

        Raises:
            HeadwaterError: The request is wrong, or its answer failed.
        """
        requests, is_list = self._requests(
            prompt,
            sampling_params,
            input_ids=input_ids,
            messages=messages,
            return_logprob=return_logprob,
            logprob_start_len=logprob_start_len,
            top_logprobs_num=top_logprobs_num,
            token_ids_logprob=token_ids_logprob,
            stream=stream,
        )
        if stream:
            return self._stream(requests, is_list)
        results = self._wait(self._collect(requests))
        return results if is_list else results[0]

    async def async_generate(
        self,
        prompt: str | Sequence[str] | None = None,
        sampling_params: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
        *,
        stream: bool = False,
        **options: Any,
    ) -> Any:
        """`generate` for a program with an event loop: awaited, and an async iterator to stream.

        A task that is cancelled while it waits aborts its request.

        Args:
            prompt: See `generate`.
            sampling_params: See `generate`.
            stream: Return an async iterator of results so far.
            options: See `generate`.
        """
        requests, is_list = await asyncio.to_thread(
            self._requests, prompt, sampling_params, stream=stream, **options
        )
        if stream:
            return self._async_stream(requests, is_list)
        results = await asyncio.wrap_future(self._start(self._collect(requests)))
        return results if is_list else results[0]

    def flush_cache(self) -> bool:
        """Empty the prefix cache; False while requests run."""
        return self._wait(self._client.flush_cache()).ok

    def state(self) -> dict[str, Any]:
        """The scheduler's counts."""
        return self._wait(self._client.state())

    def shutdown(self) -> None:
        """End the engine's processes; safe to call twice."""
        if not self._is_open:
            return
        atexit.unregister(self.shutdown)
        stop = self._start(self._client.stop())
        self._is_open = False
        try:
            stop.result()
        finally:
            self._close_loop()

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the engine's loop and wait for it here."""
        future = self._start(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def _start(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        """Start a coroutine in the engine's loop.

        Raises:
            EngineDead: The engine has been shut down.
        """
        if not self._is_open:
            work.close()
            raise EngineDead("the engine has been shut down")
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def _close_loop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _requests(
        self,
        prompt: str | Sequence[str] | None,
        sampling_params: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None,
        *,
        input_ids: Any = None,
        messages: Sequence[Mapping[str, Any]] | None = None,
        stream: bool = False,
        **logprob_options: Any,
    ) -> tuple[list[GenerateRequest], bool]:
        """The native requests of `generate`, and whether its answer is a list."""
        logprobs = _logprob_spec(**logprob_options)
        given = [value for value in (prompt, input_ids, messages) if value is not None]
        if len(given) != 1:
            raise InvalidRequest("give exactly one of prompt, input_ids, messages", param="prompt")
        param = "prompt" if prompt is not None else "input_ids"
        if messages is not None:
            param = "messages"
            input_ids = self._client.encode_chat(_as_list(messages)).ids
        texts, is_list = _texts(prompt) if prompt is not None else _id_lists(input_ids)
        params = self._each_params(sampling_params, len(texts))
        requests = [
            GenerateRequest(
                params=self._client.params(values),
                text=text if isinstance(text, str) else None,
                input_ids=text if isinstance(text, list) else None,
                logprobs=logprobs,
                stream=stream,
                prompt_param=f"{param}[{i}]" if is_list else param,
                is_max_new_tokens_explicit=values.get("max_new_tokens") is not None,
            )
            for i, (text, values) in enumerate(zip(texts, params, strict=True))
        ]
        if len({request.params.n for request in requests}) > 1:
            raise InvalidRequest("all sampling_params of a batch must agree on n", param="n")
        return requests, is_list or any(request.params.n > 1 for request in requests)

    @staticmethod
    def _each_params(
        values: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None, count: int
    ) -> list[Mapping[str, Any]]:
        if values is None or isinstance(values, Mapping):
            return [values or {}] * count
        each: list[Mapping[str, Any]] = _as_list(values)
        is_right = isinstance(each, list) and all(isinstance(item, Mapping) for item in each)
        if not is_right or len(each) != count:
            raise InvalidRequest(
                "sampling_params must be one dict, or as many as prompts", param="sampling_params"
            )
        return each

    async def _collect(self, requests: list[GenerateRequest]) -> list[Result]:
        last: dict[int, Result] = {}
        async for index, result in self._results(requests, with_index=False):
            last[index] = result
        return [last[index] for index in sorted(last)]

    async def _results(
        self, requests: list[GenerateRequest], *, with_index: bool
    ) -> AsyncIterator[tuple[int, Result]]:
        started_at = time.monotonic()
        stream = await self._client.submit(requests)
        answers = [Answer() for _ in stream.rids]
        try:
            async for index, delta in stream:
                raise_for_error(delta)
                answers[index].add(delta)
                result = native_result(
                    answers[index],
                    rid=stream.rids[index],
                    started_at=started_at,
                    index=index if with_index else None,
                    with_logprobs=requests[0].logprobs is not None,
                )
                yield index, result
        finally:
            await stream.aclose()

    async def _pump(
        self, requests: list[GenerateRequest], is_list: bool, put: Callable[[Any], object]
    ) -> None:
        """In the engine's loop: hand over the results, an error if there is one, and the end."""
        try:
            async for _, result in self._results(requests, with_index=is_list):
                put(result)
        except Exception as error:  # whoever waits for results must see why none come
            put(error)
        finally:
            put(_END)

    def _stream(self, requests: list[GenerateRequest], is_list: bool) -> Iterator[Result]:
        """Results from the engine's loop, handed over through a queue."""
        queue: SimpleQueue[Any] = SimpleQueue()
        future = self._start(self._pump(requests, is_list, queue.put))
        try:
            while (item := queue.get()) is not _END:
                if isinstance(item, Exception):
                    raise item
                yield item
        finally:
            future.cancel()

    async def _async_stream(
        self, requests: list[GenerateRequest], is_list: bool
    ) -> AsyncIterator[Result]:
        """The same in the caller's loop."""
        queue: asyncio.Queue[Any] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def put(item: Any) -> None:
            loop.call_soon_threadsafe(queue.put_nowait, item)

        future = self._start(self._pump(requests, is_list, put))
        try:
            while (item := await queue.get()) is not _END:
                if isinstance(item, Exception):
                    raise item
                yield item
        finally:
            future.cancel()


def _as_list(value: Any) -> Any:
    """A sequence as the list that JSON would give; anything else as it is, to be refused."""
    is_sequence = isinstance(value, Sequence) and not isinstance(value, str | bytes)
    return list(value) if is_sequence else value


def _texts(prompt: Any) -> tuple[list[Any], bool]:
    """Prompts as a list, and whether they came as one."""
    texts = _as_list(prompt)
    if isinstance(texts, str):
        return [texts], False
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise InvalidRequest("prompt must be a string or a list of strings", param="prompt")
    return texts, True


def _id_lists(input_ids: Any) -> tuple[list[Any], bool]:
    """Lists of ids, and whether there came several; what the ids are is checked later."""
    ids = _as_list(input_ids)
    if not isinstance(ids, list):
        raise InvalidRequest("input_ids must be a list of token ids", param="input_ids")
    if ids and not isinstance(ids[0], int):
        ids = [_as_list(item) for item in ids]
        if not all(isinstance(item, list) for item in ids):
            raise InvalidRequest("input_ids must hold token ids, or lists", param="input_ids")
        return ids, True
    return [ids], False


def _logprob_spec(
    *,
    return_logprob: bool = False,
    logprob_start_len: int = -1,
    top_logprobs_num: int = 0,
    token_ids_logprob: Sequence[int] | None = None,
) -> LogprobSpec | None:
    if not return_logprob:
        return None
    ids = list(token_ids_logprob or ())
    return LogprobSpec(logprob_start_len, top_logprobs_num, ids, with_text=True)
