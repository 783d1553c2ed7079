"""`/v1/chat/completions`: messages in, one stream of deltas out, folded when not streamed."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any

import orjson
from fastapi import APIRouter, Request
from fastapi.responses import Response

from headwater.errors import InvalidRequest
from headwater.frontend.client import Client
from headwater.frontend.native import raise_for_error
from headwater.frontend.requests import Answer, GenerateRequest
from headwater.frontend.streams import AnswerStream
from headwater.messages.requests import LogprobSpec
from headwater.messages.text import TokenLogprob, TokenLogprobs
from headwater.server.answer import Finished, collect, json_response
from headwater.server.body import Fields
from headwater.server.context import BodyDep, ClientDep, json_body
from headwater.server.openai.common import (
    Header,
    StreamOptions,
    check_model,
    finish_fields,
    refuse_unsupported,
    sampling_params,
    usage,
    visible_logprobs,
)
from headwater.server.sse import DONE, EventStream, frame

__all__ = ["router"]

router = APIRouter(tags=["openai"])

MAX_TOP_LOGPROBS = 20
_NOT_SUPPORTED = ("tools", "functions", "audio", "lora_path", "logit_processors")
_CHUNK, _WHOLE = "chat.completion.chunk", "chat.completion"

_EXAMPLE = json_body(
    {"messages": [{"role": "user", "content": "Name three rivers."}], "max_tokens": 60},
    required=["messages"],
)


@dataclass(slots=True, frozen=True)
class _Chat:
    """A translated body."""

    request: GenerateRequest
    header: Header
    options: StreamOptions
    with_ids: bool


@router.post("/v1/chat/completions", openapi_extra=_EXAMPLE)
async def chat_completions(request: Request, body: BodyDep, client: ClientDep) -> Response:
    """Answer a conversation."""
    chat = await _translate(body, client)
    if chat.options.stream:
        stream = await client.submit([chat.request])
        return EventStream(_events(stream, chat))
    done = await collect(request, client, [chat.request])
    return json_response(_whole(done, chat))


async def _translate(body: Fields, client: Client) -> _Chat:
    model = check_model(body, client)
    refuse_unsupported(body, _NOT_SUPPORTED)
    options = StreamOptions(body)
    name = "max_completion_tokens"
    if body.get(name) is None:
        name = "max_tokens"
    max_tokens = body.integer(name, low=1)
    params = sampling_params(body, client, max_tokens=max_tokens, max_tokens_name=name)
    continues = body.flag("continue_final_message")
    opens = body.flag("add_generation_prompt", not continues)
    if continues and opens:
        raise InvalidRequest(
            "continue_final_message and add_generation_prompt exclude each other",
            param="add_generation_prompt",
        )
    variables = body.get("chat_template_kwargs")
    if variables is not None and not isinstance(variables, dict):
        raise InvalidRequest("chat_template_kwargs must be an object", param="chat_template_kwargs")
    # In a thread: a long conversation takes long to render, and others' streams must not wait.
    prompt = await asyncio.to_thread(
        client.encode_chat,
        body.get("messages"),
        add_generation_prompt=opens,
        continue_final_message=continues,
        variables=variables,
        documents=body.get("documents"),
        template=body.text("chat_template"),
    )
    rid = body.text("rid")
    request = GenerateRequest(
        params=params,
        input_ids=prompt.ids,
        rid=rid,
        logprobs=_logprob_spec(body),
        stream=options.stream,
        cache_salt=body.text("cache_salt") or "",
        prompt_param="messages",
        max_new_tokens_param=name,
        is_max_new_tokens_explicit=max_tokens is not None,
    )
    header = Header("chatcmpl", rid, model)
    return _Chat(request, header, options, body.flag("return_token_ids"))


def _logprob_spec(body: Fields) -> LogprobSpec | None:
    wanted, name = body.flag("logprobs"), "top_logprobs"
    top = body.integer(name, high=MAX_TOP_LOGPROBS)
    if top and not wanted:
        raise InvalidRequest("top_logprobs needs logprobs: true", param=name)
    return LogprobSpec(top_num=top or 0, with_text=True) if wanted else None


def _entry(token: TokenLogprob) -> dict[str, Any]:
    raw = token.raw or b""
    return {"token": token.text, "logprob": token.logprob, "bytes": list(raw)}


def _logprobs(records: list[TokenLogprobs]) -> dict[str, Any]:
    content = [
        {**_entry(r.token), "top_logprobs": [_entry(t) for t in r.top or ()]} for r in records
    ]
    return {"content": content, "refusal": None}


def _whole(done: Finished, chat: _Chat) -> dict[str, Any]:
    choices = []
    for index, answer in enumerate(done.answers):
        has_logprobs = chat.request.logprobs is not None
        choice: dict[str, Any] = {
            "index": index,
            "message": {"role": "assistant", "content": answer.text, "refusal": None},
            "logprobs": _logprobs(visible_logprobs(answer)) if has_logprobs else None,
            **finish_fields(answer.finish),
        }
        if chat.with_ids:
            choice["token_ids"] = answer.ids
        choices.append(choice)
    whole = {
        **chat.header.fields(_WHOLE),
        "choices": choices,
        "usage": usage(done.answers, chat.request.params.n),
    }
    if chat.with_ids:
        whole["prompt_token_ids"] = done.stream.prompts[0]
    return whole


async def _events(stream: AnswerStream, chat: _Chat) -> AsyncGenerator[bytes, None]:
    counts = [Answer() for _ in stream.rids]
    writer = _ChunkWriter(chat)
    try:
        for index in range(len(counts)):
            yield writer.chunk(index, {"role": "assistant", "content": ""})
        async for index, delta in stream:
            raise_for_error(delta)
            count = counts[index]
            count.prompt_tokens, count.cached_tokens = delta.prompt_tokens, delta.cached_tokens
            count.completion_tokens = delta.completion_tokens
            now = usage(counts, len(counts)) if chat.options.continuous_usage else None
            records = visible_logprobs(delta)
            if records or chat.with_ids or now is not None:
                yield writer.full(index, delta.text, records, delta.ids, now)
            elif delta.text:
                yield writer.text(index, delta.text)
            if delta.finish is not None:
                yield writer.chunk(index, {}, **finish_fields(delta.finish))
        if chat.options.include_usage:
            fields = {**chat.header.fields(_CHUNK), "choices": []}
            yield frame({**fields, "usage": usage(counts, len(counts))})
        yield DONE
    finally:
        await stream.aclose()


class _ChunkWriter:
    """Chunks as bytes; what is the same in all of them is encoded once."""

    def __init__(self, chat: _Chat) -> None:
        self._chat = chat
        self._usage: dict[str, Any] = {"usage": None} if chat.options.include_usage else {}
        head = orjson.dumps({**chat.header.fields(_CHUNK), **self._usage})
        self._head = b"data: " + head[:-1] + b',"choices":[{"index":'

    def text(self, index: int, text: str) -> bytes:
        """New text and nothing else: the chunk that nearly all are."""
        return b'%b%d,"delta":{"content":%b},"logprobs":null,"finish_reason":null}]}\n\n' % (
            self._head,
            index,
            orjson.dumps(text),
        )

    def full(
        self,
        index: int,
        text: str,
        records: list[TokenLogprobs],
        ids: list[int],
        now: dict[str, Any] | None,
    ) -> bytes:
        """New text with what else was asked for."""
        more: dict[str, Any] = {"logprobs": _logprobs(records)} if records else {}
        if self._chat.with_ids:
            more["token_ids"] = ids
        return self.chunk(index, {"content": text}, now, **more)

    def chunk(
        self, index: int, delta: dict[str, Any], now: dict[str, Any] | None = None, **fields: Any
    ) -> bytes:
        """Any chunk of one choice."""
        choice = {
            "index": index,
            "delta": delta,
            "logprobs": None,
            "finish_reason": None,
            **fields,
        }
        count = {"usage": now} if now is not None else self._usage
        return frame({**self._chat.header.fields(_CHUNK), "choices": [choice], **count})
