"""`/v1/chat/completions`: messages in, one stream of deltas out, folded when not streamed."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import orjson
from fastapi import APIRouter, Request
from fastapi.responses import Response

from headwater.errors import InvalidRequest
from headwater.frontend.client import ChatPrompt
from headwater.frontend.native import raise_for_error
from headwater.frontend.streams import AnswerStream
from headwater.messages.requests import LogprobSpec
from headwater.messages.text import TextDelta, TokenLogprobs
from headwater.server.answer import Finished
from headwater.server.context import BodyDep, ClientDep
from headwater.server.openai.content_logprobs import content_logprobs, top_logprob_spec
from headwater.server.openai.endpoint import Job, OpenAIEndpoint, check_max_tokens
from headwater.server.openai.openapi import describe
from headwater.server.openai.protocol.chat import ChatCompletion, ChatCompletionChunk, ChatRequest
from headwater.server.openai.render import Counts, finish_fields, usage, visible_logprobs
from headwater.server.sse import DONE, frame

__all__ = ["router"]

router = APIRouter(tags=["openai"])

_CHUNK, _WHOLE = "chat.completion.chunk", "chat.completion"


@router.post(
    "/v1/chat/completions", **describe(ChatRequest, ChatCompletion, chunk=ChatCompletionChunk)
)
async def chat_completions(request: Request, body: BodyDep, client: ClientDep) -> Response:
    """Answer a conversation."""
    return await ChatEndpoint(client).handle(request, body)


class ChatEndpoint(OpenAIEndpoint[ChatRequest]):
    """Chat completions."""

    body_type = ChatRequest
    id_prefix = "chatcmpl"
    not_supported = ("tools", "functions", "audio", "prediction", "web_search_options")

    async def convert(self, body: ChatRequest) -> Job[ChatRequest]:
        """Render and encode the messages."""
        name, max_tokens = "max_completion_tokens", body.max_completion_tokens
        if max_tokens is None:
            name, max_tokens = "max_tokens", body.max_tokens
        check_max_tokens(max_tokens, name)
        spec = _logprob_spec(body)
        request = self.chat_request(
            body,
            await self._encode(body),
            max_tokens_field=name,
            max_tokens=max_tokens,
            logprobs=spec,
            prompt_param="messages",
        )
        return Job(body, self.header(body), [request], [_echo(body)])

    async def _encode(self, body: ChatRequest) -> ChatPrompt:
        continues = bool(body.continue_final_message)
        opens = body.add_generation_prompt
        if continues and opens:
            raise InvalidRequest(
                "continue_final_message and add_generation_prompt exclude each other",
                param="add_generation_prompt",
            )
        variables = dict(body.chat_template_kwargs or {})
        if body.reasoning_effort is not None:
            variables.setdefault("reasoning_effort", body.reasoning_effort)
        # In a thread: a long conversation takes long to render, and others' streams must not wait.
        return await asyncio.to_thread(
            self.client.encode_chat,
            body.messages,
            add_generation_prompt=not continues if opens is None else opens,
            continue_final_message=continues,
            variables=variables,
            documents=body.documents,
            template=body.chat_template,
        )

    def respond(self, done: Finished, job: Job[ChatRequest]) -> dict[str, Any]:
        """One object with all choices."""
        choices = []
        for index, answer in enumerate(done.answers):
            content = job.echo[0] + answer.text
            records = visible_logprobs(answer)
            choice: dict[str, Any] = {
                "index": index,
                "message": {"role": "assistant", "content": content, "refusal": None},
                "logprobs": _logprobs(records) if job.body.logprobs else None,
                **finish_fields(answer.finish),
            }
            if job.body.return_token_ids:
                choice["token_ids"] = answer.ids
            choices.append(choice)
        counts = usage(done.answers, job.n)
        whole = {**job.header.fields(_WHOLE), "choices": choices, "usage": counts}
        if job.body.return_token_ids:
            whole["prompt_token_ids"] = done.stream.prompts[0]
        return whole

    async def stream(
        self, stream: AnswerStream, job: Job[ChatRequest]
    ) -> AsyncGenerator[bytes, None]:
        """A chunk with the role, chunks of text and one with the finish for each choice."""
        counts, writer = Counts(job.n, job.n), _ChunkWriter(job)
        try:
            for index in range(job.n):
                yield writer.opening(index, stream.prompts[0])
                if job.echo[0]:
                    yield writer.text(index, job.echo[0])
            async for index, delta in stream:
                raise_for_error(delta)
                counts.note(index, delta)
                now = counts.usage() if job.continuous_usage else None
                if writer.is_plain:
                    if delta.text:
                        yield writer.text(index, delta.text)
                else:
                    yield writer.full(index, delta, now)
                if delta.finish is not None:
                    yield writer.chunk(index, {}, now, **finish_fields(delta.finish))
            if job.include_usage:
                fields = {**job.header.fields(_CHUNK), "choices": [], "usage": counts.usage()}
                yield frame(fields)
            yield DONE
        finally:
            await stream.aclose()


class _ChunkWriter:
    """Chunks as bytes; what is the same in all of them is encoded once.

    Attributes:
        is_plain: A delta is text and nothing else.
    """

    def __init__(self, job: Job[ChatRequest]) -> None:
        self._header = job.header.fields(_CHUNK)
        self._with_ids = bool(job.body.return_token_ids)
        self._with_logprobs = bool(job.body.logprobs)
        self._usage: dict[str, Any] = {"usage": None} if job.include_usage else {}
        head = orjson.dumps({**self._header, **self._usage})
        self._head = b"data: " + head[:-1] + b',"choices":[{"index":'
        self.is_plain = not (self._with_ids or self._with_logprobs or job.continuous_usage)

    def opening(self, index: int, prompt_ids: list[int]) -> bytes:
        """The first chunk of a choice."""
        more = {"prompt_token_ids": prompt_ids} if self._with_ids and index == 0 else {}
        return self._frame(index, {"role": "assistant", "content": ""}, {}, {**self._usage, **more})

    def text(self, index: int, text: str) -> bytes:
        """New text and nothing else: the chunk that nearly all are."""
        return b'%b%d,"delta":{"content":%b},"logprobs":null,"finish_reason":null}]}\n\n' % (
            self._head,
            index,
            orjson.dumps(text),
        )

    def full(self, index: int, delta: TextDelta, now: dict[str, Any] | None) -> bytes:
        """New text with what else was asked for."""
        more: dict[str, Any] = {}
        if self._with_logprobs:
            more["logprobs"] = _logprobs(visible_logprobs(delta))
        if self._with_ids:
            more["token_ids"] = delta.ids
        return self.chunk(index, {"content": delta.text}, now, **more)

    def chunk(
        self, index: int, delta: dict[str, Any], now: dict[str, Any] | None = None, **fields: Any
    ) -> bytes:
        """Any chunk of one choice."""
        return self._frame(index, delta, fields, {"usage": now} if now else self._usage)

    def _frame(
        self, index: int, delta: dict[str, Any], fields: dict[str, Any], tail: dict[str, Any]
    ) -> bytes:
        choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": None, **fields}
        return frame({**self._header, "choices": [choice], **tail})


def _echo(body: ChatRequest) -> str:
    """The text of the last message, if it is asked for and the assistant's."""
    last: Any = body.messages[-1] if body.echo else None
    if not isinstance(last, dict) or last.get("role") != "assistant":
        return ""
    content = last.get("content") or ""
    if isinstance(content, str):
        return content
    parts = [part if isinstance(part, str) else part.get("text", "") for part in content]
    return "".join(parts)


def _logprob_spec(body: ChatRequest) -> LogprobSpec | None:
    top = body.top_logprobs or 0
    if top and not body.logprobs:
        raise InvalidRequest("top_logprobs needs logprobs: true", param="top_logprobs")
    return top_logprob_spec(top) if body.logprobs else None


def _logprobs(records: list[TokenLogprobs]) -> dict[str, Any]:
    return {"content": content_logprobs(records), "refusal": None}
