"""`/v1/responses`: the same conversation in another dialect, without a store."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import orjson
from fastapi import APIRouter, Request
from fastapi.responses import Response

from headwater.errors import InvalidRequest, NotSupported
from headwater.frontend.client import ChatPrompt
from headwater.frontend.native import raise_for_error
from headwater.frontend.requests import Answer
from headwater.frontend.streams import AnswerStream
from headwater.messages.tokens import Finish
from headwater.server.answer import Finished
from headwater.server.context import BodyDep, ClientDep
from headwater.server.openai.content_logprobs import content_logprobs, top_logprob_spec
from headwater.server.openai.endpoint import Job, OpenAIEndpoint, check_max_tokens
from headwater.server.openai.openapi import describe
from headwater.server.openai.protocol.responses import (
    ResponseEvent,
    ResponseObject,
    ResponsesRequest,
)
from headwater.server.openai.render import usage, visible_logprobs
from headwater.server.openai.response_items import to_messages

__all__ = ["router"]

router = APIRouter(tags=["openai"])

_LOGPROBS = "message.output_text.logprobs"


@router.post("/v1/responses", **describe(ResponsesRequest, ResponseObject, chunk=ResponseEvent))
async def responses(request: Request, body: BodyDep, client: ClientDep) -> Response:
    """Answer an input."""
    return await ResponsesEndpoint(client).handle(request, body)


class ResponsesEndpoint(OpenAIEndpoint[ResponsesRequest]):
    """Responses."""

    body_type = ResponsesRequest
    id_prefix = "resp"
    not_supported = ("background", "conversation", "previous_response_id", "prompt", "tools")

    async def convert(self, body: ResponsesRequest) -> Job[ResponsesRequest]:
        """Render and encode the items."""
        _check(body)
        request = self.chat_request(
            body,
            await self._encode(body),
            max_tokens_field="max_output_tokens",
            max_tokens=body.max_output_tokens,
            logprobs=top_logprob_spec(body.top_logprobs or 0) if _wants_logprobs(body) else None,
            prompt_param="input",
        )
        return Job(body, self.header(body), [request], [""])

    async def _encode(self, body: ResponsesRequest) -> ChatPrompt:
        messages = to_messages(body.input, body.instructions)
        variables = dict(body.chat_template_kwargs or {})
        if body.reasoning is not None and body.reasoning.effort is not None:
            variables.setdefault("reasoning_effort", body.reasoning.effort)
        try:
            # In a thread: a long conversation takes long to render.
            return await asyncio.to_thread(self.client.encode_chat, messages, variables=variables)
        except InvalidRequest as err:
            raise type(err)(err.message, param=_item_path(err.param, body)) from None

    def respond(self, done: Finished, job: Job[ResponsesRequest]) -> dict[str, Any]:
        """The whole answer."""
        return _Writer(job).response(done.answers[0])

    async def stream(
        self, stream: AnswerStream, job: Job[ResponsesRequest]
    ) -> AsyncGenerator[bytes, None]:
        """Numbered events, from `response.created` to `response.completed`."""
        writer, answer = _Writer(job), Answer()
        try:
            for event in writer.opening():
                yield event
            async for _, delta in stream:
                raise_for_error(delta)
                answer.add(delta)
                logprobs = content_logprobs(visible_logprobs(delta))
                if delta.text or logprobs:
                    yield writer.delta(delta.text, logprobs)
            for event in writer.closing(answer):
                yield event
        finally:
            await stream.aclose()


class _Writer:
    """Objects and events of one response."""

    def __init__(self, job: Job[ResponsesRequest]) -> None:
        body, params = job.body, job.requests[0].params
        header = job.header.fields("response")
        self._place = {"item_id": f"msg_{job.header.id}", "output_index": 0, "content_index": 0}
        self._num_events = 0
        self._fields = {
            "id": header["id"],
            "object": "response",
            "created_at": header["created"],
            "model": header["model"],
            "background": False,
            "error": None,
            "instructions": body.instructions,
            "max_output_tokens": body.max_output_tokens,
            "metadata": body.metadata or {},
            "parallel_tool_calls": body.parallel_tool_calls is not False,
            "previous_response_id": None,
            "reasoning": {"effort": body.reasoning and body.reasoning.effort, "summary": None},
            "service_tier": body.service_tier,
            "store": False,
            "temperature": params.temperature,
            "text": {"format": {"type": "text"}},
            "tool_choice": "auto",
            "tools": [],
            "top_logprobs": body.top_logprobs or 0,
            "top_p": params.top_p,
            "truncation": "disabled",
            "user": body.user,
        }

    def response(self, answer: Answer | None) -> dict[str, Any]:
        """The object; None before the answer has come."""
        if answer is None:
            return {
                **self._fields,
                "status": "in_progress",
                "incomplete_details": None,
                "output": [],
                "usage": None,
            }
        status, why = _status(answer.finish)
        return {
            **self._fields,
            "status": status,
            "incomplete_details": why,
            "output": [self._item(status, [_part(answer)])],
            "usage": _usage(answer),
        }

    def opening(self) -> list[bytes]:
        """The events before the first text."""
        response = self.response(None)
        return [
            self._event("response.created", response=response),
            self._event("response.in_progress", response=response),
            self._event(
                "response.output_item.added", output_index=0, item=self._item("in_progress", [])
            ),
            self._event("response.content_part.added", **self._place, part=_part(Answer())),
        ]

    def delta(self, text: str, logprobs: list[dict[str, Any]]) -> bytes:
        """New text."""
        return self._event(
            "response.output_text.delta", **self._place, delta=text, logprobs=logprobs
        )

    def closing(self, answer: Answer) -> list[bytes]:
        """The events after the last text."""
        response = self.response(answer)
        item = response["output"][0]
        part = item["content"][0]
        text = {"text": part["text"], "logprobs": part["logprobs"]}
        return [
            self._event("response.output_text.done", **self._place, **text),
            self._event("response.content_part.done", **self._place, part=part),
            self._event("response.output_item.done", output_index=0, item=item),
            self._event(f"response.{response['status']}", response=response),
        ]

    def _item(self, status: str, content: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": self._place["item_id"],
            "type": "message",
            "role": "assistant",
            "status": status,
            "content": content,
        }

    def _event(self, kind: str, **fields: Any) -> bytes:
        value = {"type": kind, "sequence_number": self._num_events, **fields}
        self._num_events += 1
        return b"event: %b\ndata: %b\n\n" % (kind.encode(), orjson.dumps(value))


def _part(answer: Answer) -> dict[str, Any]:
    logprobs = content_logprobs(visible_logprobs(answer))
    return {"type": "output_text", "text": answer.text, "annotations": [], "logprobs": logprobs}


def _status(finish: Finish | None) -> tuple[str, dict[str, str] | None]:
    """The status that a finish stands for, and why an answer is incomplete."""
    if finish is None or finish.type == "stop":
        return "completed", None
    reason = "max_output_tokens" if finish.type == "length" else finish.type
    return "incomplete", {"reason": reason}


def _usage(answer: Answer) -> dict[str, Any]:
    """The counts of chat completions under this dialect's names."""
    counts = usage([answer], 1)
    return {
        "input_tokens": counts["prompt_tokens"],
        "input_tokens_details": counts["prompt_tokens_details"],
        "output_tokens": counts["completion_tokens"],
        "output_tokens_details": counts["completion_tokens_details"],
        "total_tokens": counts["total_tokens"],
    }


def _wants_logprobs(body: ResponsesRequest) -> bool:
    return _LOGPROBS in (body.include or ())


def _check(body: ResponsesRequest) -> None:
    """What a response cannot have.

    Raises:
        InvalidRequest: It asks for that.
    """
    if body.n not in (None, 1):
        raise InvalidRequest("a response is one answer: n must be 1", param="n")
    if body.max_tokens is not None:
        raise InvalidRequest("the limit is called max_output_tokens here", param="max_tokens")
    check_max_tokens(body.max_output_tokens, "max_output_tokens")
    for i, name in enumerate(body.include or ()):
        if name != _LOGPROBS:
            raise NotSupported(f"{name!r} cannot be included", param=f"include[{i}]")
    if body.top_logprobs and not _wants_logprobs(body):
        raise InvalidRequest(f"top_logprobs needs include: [{_LOGPROBS!r}]", param="top_logprobs")
    wanted = body.text.format if body.text is not None else None
    if wanted is not None and wanted.get("type") != "text":
        raise NotSupported(
            f"text of format {wanted.get('type')!r} is not supported yet", param="text.format"
        )


def _item_path(param: str | None, body: ResponsesRequest) -> str | None:
    """The input's item that a message's path stands for, where they are one to one."""
    if param is None or not param.startswith("messages"):
        return param
    is_list = isinstance(body.input, list) and all(
        isinstance(item, dict) and item.get("type", "message") == "message" for item in body.input
    )
    index, _, rest = param.removeprefix("messages[").partition("]")
    if not is_list or not index.isdecimal():
        return "input"
    place = int(index) - bool(body.instructions)
    return f"input[{place}]{rest}" if place >= 0 else "instructions"
