"""`/v1/chat/completions` beyond the plain case."""

from typing import Any

import httpx
import pytest

from tests.conformance.conftest import Scripted
from tests.conformance.exchange import exchange, stream_events


def url(scripted: Scripted) -> str:
    """Of the endpoint."""
    return f"{scripted.url}/v1/chat/completions"


def chat(content: Any, **fields: Any) -> dict[str, Any]:
    """A body whose user message is the script."""
    return {"messages": [{"role": "user", "content": content}], "max_tokens": 50, **fields}


def test_a_stream_begins_with_the_roles(scripted: Scripted) -> None:
    """The first chunk of each choice carries it, and no other does."""
    chunks = stream_events(url(scripted), chat("abc", n=3))
    firsts: dict[int, dict[str, Any]] = {}
    for choice in (c for chunk in chunks for c in chunk["choices"]):
        is_first = choice["index"] not in firsts
        assert ("role" in choice["delta"]) == is_first
        firsts.setdefault(choice["index"], choice["delta"])
    assert firsts == {k: {"role": "assistant", "content": ""} for k in range(3)}


def test_ids_names_and_fingerprint_are_constant(scripted: Scripted) -> None:
    """In all chunks, and the header tells the id."""
    chunks = stream_events(url(scripted), chat("abc", rid="mine"))
    names = ("id", "created", "model", "system_fingerprint")
    assert len({tuple(chunk[name] for name in names) for chunk in chunks}) == 1
    response = httpx.post(url(scripted), json=chat("abc", rid="mine"))
    assert response.headers["x-request-id"] == response.json()["id"] == "mine"
    assert response.json()["system_fingerprint"] == chunks[0]["system_fingerprint"]


@pytest.mark.parametrize("role", ["system", "developer", "user", "assistant", "tool", "function"])
def test_every_role_is_taken(scripted: Scripted, role: str) -> None:
    """With a name, and the rest of what OpenAI's clients send back."""
    first = {"role": role, "content": "x", "name": "n", "tool_call_id": "c", "refusal": None}
    body = {"messages": [first, {"role": "user", "content": "ab"}], "max_tokens": 9}
    assert exchange(url(scripted), body).text == "ab"


def test_echo_of_the_last_message(scripted: Scripted) -> None:
    """It comes before the answer, streamed or not; only an assistant's is echoed."""
    user = {"role": "user", "content": "ab"}
    for content in ("Sure: ", [{"type": "text", "text": "Su"}, {"type": "text", "text": "re: "}]):
        messages = [user, {"role": "assistant", "content": content}]
        body = {"messages": messages, "max_tokens": 9, "echo": True}
        assert exchange(url(scripted), body).text == "Sure: ab"
    assert exchange(url(scripted), {"messages": [user], "echo": True}).text == "ab"


def test_logprobs_agree_with_the_content(scripted: Scripted) -> None:
    """Bytes join to the text; the trimmed stop token has no entry."""
    got = exchange(url(scripted), chat("山🥨水", logprobs=True, top_logprobs=3))
    entries = got.body["choices"][0]["logprobs"]["content"]
    data = b"".join(bytes(entry["bytes"]) for entry in entries)
    assert data.decode() == got.text == "山🥨水"
    assert all(len(entry["top_logprobs"]) == 3 for entry in entries)
    streamed = [
        entry
        for chunk in got.chunks
        for choice in chunk["choices"]
        if choice["logprobs"]
        for entry in choice["logprobs"]["content"]
    ]
    assert streamed == entries


def test_fields_that_are_accepted_and_not_used(scripted: Scripted) -> None:
    """OpenAI's bookkeeping."""
    fields = {
        "user": "u",
        "metadata": {"a": "b"},
        "store": True,
        "service_tier": "auto",
        "reasoning_effort": "low",
        "parallel_tool_calls": True,
        "response_format": {"type": "text"},
        "tools": [],
        "modalities": ["text"],
        "safety_identifier": "s",
    }
    assert exchange(url(scripted), chat("ab", **fields)).text == "ab"


def test_max_completion_tokens_goes_first(scripted: Scripted) -> None:
    """Before the older max_tokens."""
    body = chat("abcdef", max_completion_tokens=2)
    got = exchange(url(scripted), body)
    assert got.text == "ab"
    assert got.finish_reason == "length"


def test_too_long_says_both_numbers(scripted: Scripted) -> None:
    """With OpenAI's code."""
    response = httpx.post(url(scripted), json=chat("ab", max_tokens=9000))
    error = response.json()["error"]
    assert response.status_code == 400
    assert error["code"] == "context_length_exceeded"
    assert "9000" in error["message"]
    assert "8192" in error["message"]


def test_usage_always_has_details(scripted: Scripted) -> None:
    """Cached tokens of the prompt, reasoning tokens of the answer."""
    body = chat("the same long question, asked again: " + "x" * 64)
    first = httpx.post(url(scripted), json=body).json()["usage"]
    again = httpx.post(url(scripted), json=body).json()["usage"]
    assert again["prompt_tokens_details"]["cached_tokens"] > 0
    assert first["completion_tokens_details"] == {"reasoning_tokens": 0}
