"""`/v1/responses` with the official client: streamed and not, items, logprobs, limits."""

from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest
from openai import OpenAI
from openai.types.responses import ResponseInputParam

from headwater.server.openai.protocol.responses import ResponseObject
from tests.conformance.conftest import Scripted


@pytest.fixture
def client(scripted: Scripted) -> Iterator[OpenAI]:
    """A client that does not try again."""
    with OpenAI(base_url=f"{scripted.url}/v1", api_key="none", max_retries=0) as made:
        yield made


def test_a_response(client: OpenAI) -> None:
    """Text, status, usage with details."""
    answer = client.responses.create(model="default", input="Hi 山", max_output_tokens=20)
    assert answer.output_text == "Hi 山"
    assert answer.status == "completed"
    assert answer.incomplete_details is None
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.input_tokens + answer.usage.output_tokens
    assert answer.usage.input_tokens_details.cached_tokens >= 0


def test_the_streaming_helper(client: OpenAI) -> None:
    """The client's own accumulation of events gives the unstreamed answer."""
    pieces = []
    with client.responses.stream(model="default", input="Hi 🥨") as stream:
        for event in stream:
            if event.type == "response.output_text.delta":
                pieces.append(event.delta)
        final = stream.get_final_response()
    assert "".join(pieces) == final.output_text == "Hi 🥨"
    assert all("\ufffd" not in piece for piece in pieces)


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"max_output_tokens": 2},
        {"stop": ["c"]},
        {"include": ["message.output_text.logprobs"], "top_logprobs": 2},
        {"instructions": "S", "temperature": 0.5, "metadata": {"k": "v"}},
    ],
)
def test_streamed_is_unstreamed(scripted: Scripted, client: OpenAI, more: dict[str, Any]) -> None:
    """The last event holds the object that is the unstreamed answer, names and times aside."""
    body = {"input": "abcde", **more}
    response = httpx.post(f"{scripted.url}/v1/responses", json=body, timeout=60)
    whole = response.json()
    ResponseObject.model_validate(whole)
    stop = {"extra_body": {"stop": more["stop"]}} if "stop" in more else {}
    fields = {key: value for key, value in more.items() if key != "stop"} | stop
    events = list(client.responses.create(model="default", input="abcde", stream=True, **fields))
    last: Any = events[-1]
    assert last.type == f"response.{whole['status']}"
    streamed = last.response.model_dump(mode="json")
    for name in ("status", "incomplete_details", "instructions", "temperature", "metadata"):
        assert streamed[name] == whole[name], name
    assert streamed["usage"]["output_tokens"] == whole["usage"]["output_tokens"]
    ours, theirs = whole["output"][0]["content"][0], streamed["output"][0]["content"][0]
    assert (ours["text"], ours["logprobs"]) == (theirs["text"], theirs["logprobs"])
    deltas = [e for e in events if e.type == "response.output_text.delta"]
    assert "".join(e.delta for e in deltas) == ours["text"]
    assert sum(len(e.logprobs) for e in deltas) == len(ours["logprobs"])


def test_the_limit_makes_it_incomplete(client: OpenAI) -> None:
    """The status and the reason tell."""
    answer = client.responses.create(model="default", input="abcde", max_output_tokens=2)
    assert answer.status == "incomplete"
    assert answer.incomplete_details is not None
    assert answer.incomplete_details.reason == "max_output_tokens"
    assert answer.output_text == "ab"


def test_items_are_the_chat_they_stand_for(scripted: Scripted, client: OpenAI) -> None:
    """As many prompt tokens as the same conversation has as a chat."""
    first = client.responses.create(model="default", input="one")
    items: ResponseInputParam = [
        {"role": "user", "content": [{"type": "input_text", "text": "one"}]},
        *[item.model_dump(exclude_none=True) for item in first.output],  # type: ignore[list-item]
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": '{"a": 1}'},
        {"type": "function_call_output", "call_id": "c", "output": "42"},
        {"role": "developer", "content": "D"},
        {"role": "user", "content": "two"},
    ]
    answer = client.responses.create(model="default", input=items, instructions="S")
    assert answer.output_text == "two"
    messages = [
        {"role": "system", "content": "S"},
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "one"},
        {"role": "tool", "content": "42"},
        {"role": "system", "content": "D"},
        {"role": "user", "content": "two"},
    ]
    chat = httpx.post(
        f"{scripted.url}/v1/chat/completions", json={"messages": messages}, timeout=60
    ).json()
    assert answer.usage is not None
    assert answer.usage.input_tokens == chat["usage"]["prompt_tokens"]


def test_errors_reach_the_client(client: OpenAI) -> None:
    """As the client's own exceptions, with the parameter."""
    with pytest.raises(openai.NotFoundError):
        client.responses.create(model="none", input="x")
    with pytest.raises(openai.BadRequestError) as caught:
        client.responses.create(model="default", input="x", previous_response_id="resp_1")
    assert caught.value.param == "previous_response_id"
