"""Sends a request streamed and not, and checks that both tell the same."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx

from headwater.server.openai.protocol.base import ResponseModel
from headwater.server.openai.protocol.chat import ChatCompletion, ChatCompletionChunk
from headwater.server.openai.protocol.completions import Completion

__all__ = ["Exchange", "exchange", "read_events", "stream_events"]


@dataclass
class Exchange:
    """What one choice of a completion was, in both modes.

    Attributes:
        text: The text.
        pieces: Non-empty text pieces of the stream, in order.
        chunks: All chunks of the stream.
        finish_reason: Why it ended.
        body: The unstreamed answer.
    """

    text: str
    finish_reason: str
    body: dict[str, Any]
    chunks: list[dict[str, Any]] = field(default_factory=list)
    pieces: list[str] = field(default_factory=list)


def read_events(text: str) -> list[dict[str, Any]]:
    """The JSON events of a server-sent event stream, which must end with `[DONE]`."""
    lines = [line for line in text.split("\n\n") if line and not line.startswith(":")]
    assert all(line.startswith("data: ") for line in lines), lines
    assert lines[-1] == "data: [DONE]", lines[-1]
    return [json.loads(line[6:]) for line in lines[:-1]]


def _check_shape(url: str, value: dict[str, Any], *, is_chunk: bool) -> None:
    """An answer has the fields that /docs says, and no other."""
    shape: type[ResponseModel] = Completion
    if url.endswith("/chat/completions"):
        shape = ChatCompletionChunk if is_chunk else ChatCompletion
    shape.model_validate(value, strict=True)


def stream_events(url: str, body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """POST with `stream: true` and return the events."""
    response = httpx.post(url, json={**body, "stream": True}, timeout=60)
    assert response.status_code == 200, response.text
    events = read_events(response.text)
    for event in events:
        _check_shape(url, event, is_chunk=True)
    return events


def _text_of(choice: Mapping[str, Any]) -> str:
    if "text" in choice:
        return str(choice["text"])
    return str((choice.get("delta") or choice.get("message") or {}).get("content") or "")


def exchange(url: str, body: Mapping[str, Any]) -> Exchange:
    """POST the body both ways; text, finish reason, matched stop and usage must agree."""
    response = httpx.post(url, json=body, timeout=60)
    assert response.status_code == 200, response.text
    answer = response.json()
    _check_shape(url, answer, is_chunk=False)
    choice = answer["choices"][0]
    chunks = stream_events(url, {**body, "stream_options": {"include_usage": True}})
    choices = [c for chunk in chunks for c in chunk["choices"]]
    pieces = [piece for piece in map(_text_of, choices) if piece]
    finishes = [c for c in choices if c["finish_reason"] is not None]
    usages = [chunk["usage"] for chunk in chunks if chunk.get("usage")]
    assert "".join(pieces) == _text_of(choice)
    assert [c["finish_reason"] for c in finishes] == [choice["finish_reason"]]
    assert finishes[0].get("matched_stop") == choice.get("matched_stop")
    assert len(usages) == 1
    for key in ("prompt_tokens", "completion_tokens", "total_tokens"):
        assert usages[0][key] == answer["usage"][key]
    return Exchange(_text_of(choice), choice["finish_reason"], answer, chunks, pieces)
