"""OpenAI compatibility faults that users met in other servers, against the running server."""

import json
import time
from typing import Any

import httpx
import pytest

from tests.conformance.conftest import Scripted
from tests.conformance.exchange import exchange, stream_events


def chat(content: Any, **fields: Any) -> dict[str, Any]:
    """A chat body whose user message is the script."""
    return {"messages": [{"role": "user", "content": content}], "max_tokens": 50, **fields}


def post(scripted: Scripted, route: str, body: Any) -> httpx.Response:
    """POST a JSON body."""
    return httpx.post(f"{scripted.url}{route}", json=body, timeout=60)


def error_of(response: httpx.Response) -> dict[str, Any]:
    """The error object of a 400."""
    assert response.status_code == 400, response.text
    error: dict[str, Any] = response.json()["error"]
    assert error["type"] == "invalid_request_error"
    assert error["param"] is None or isinstance(error["param"], str)
    return error


def test_b020_b022_usage_comes_once_in_a_chunk_without_choices(scripted: Scripted) -> None:
    """With include_usage there is one extra chunk before the end, and only it has numbers."""
    body = chat("abcde", max_tokens=3, stream_options={"include_usage": True})
    chunks = stream_events(f"{scripted.url}/v1/chat/completions", body)
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["completion_tokens"] == 3
    assert all(chunk["usage"] is None for chunk in chunks[:-1])
    assert chunks[-2]["choices"][0]["finish_reason"] == "length"


def test_b024_a_list_of_prompts_is_several_prompts(scripted: Scripted) -> None:
    """Indexes are prompt_no * n + k; a flat list of ids is one prompt."""
    body = {"prompt": ["red", "blue"], "n": 2, "max_tokens": 1, "echo": True}
    choices = post(scripted, "/v1/completions", body).json()["choices"]
    assert [c["index"] for c in choices] == [0, 1, 2, 3]
    starts = ["red", "red", "blue", "blue"]
    assert all(c["text"].startswith(s) for c, s in zip(choices, starts, strict=True))
    for prompt, count in (([[97, 98], [99]], 2), ([97, 98, 99], 1)):
        body = {"prompt": prompt, "max_tokens": 1}
        assert len(post(scripted, "/v1/completions", body).json()["choices"]) == count


def test_b026_validation_errors_do_not_leak_the_framework(scripted: Scripted) -> None:
    """400, `param` a string or null, no `detail`."""
    for body in ({"messages": {"role": "user", "content": "q"}}, {"model": "default"}):
        response = post(scripted, "/v1/chat/completions", body)
        assert error_of(response)["param"] == "messages"
        assert "detail" not in response.json()
    response = httpx.post(
        f"{scripted.url}/v1/chat/completions",
        content=b"{not json",
        headers={"content-type": "application/json"},
    )
    error_of(response)


def test_b028_empty_and_assistant_only_histories(scripted: Scripted) -> None:
    """An empty assistant turn is fine, and a history without a user turn is never a 500."""
    messages = [
        {"role": "user", "content": "A"},
        {"role": "assistant", "content": ""},
        {"role": "user", "content": "B"},
    ]
    body = {"messages": messages, "max_tokens": 5}
    assert post(scripted, "/v1/chat/completions", body).status_code == 200
    body = {"messages": [{"role": "assistant", "content": "Who's there?"}], "max_tokens": 5}
    assert post(scripted, "/v1/chat/completions", body).status_code in (200, 400)


@pytest.mark.parametrize("messages", [[], None])
def test_b030_no_messages(scripted: Scripted, messages: Any) -> None:
    """An empty list or null is a 400 that names `messages`."""
    response = post(scripted, "/v1/chat/completions", {"messages": messages})
    assert error_of(response)["param"] == "messages"


@pytest.mark.parametrize("role", ["user", "system", "assistant", "tool"])
def test_b032_all_text_parts_are_kept(scripted: Scripted, role: str) -> None:
    """Parts are joined in order, for every role: as many prompt tokens as the joined string."""
    parts = [{"type": "text", "text": "alpha "}, {"type": "text", "text": "beta"}]
    counts = []
    for content in (parts, "alpha beta"):
        first = {"role": role, "content": content, "tool_call_id": "c"}
        messages = [first, {"role": "user", "content": "x"}]
        body = {"messages": messages, "max_tokens": 1}
        counts.append(post(scripted, "/v1/chat/completions", body).json()["usage"]["prompt_tokens"])
    assert counts[0] == counts[1]
    got = exchange(f"{scripted.url}/v1/chat/completions", chat(parts))
    assert got.text == "alpha beta"


def test_b036_logprobs_without_top_logprobs(scripted: Scripted) -> None:
    """Alone it gives entries without alternatives; the reverse and more than 20 are 400."""
    body = post(scripted, "/v1/chat/completions", chat("ab", logprobs=True)).json()
    for entry in body["choices"][0]["logprobs"]["content"]:
        assert set(entry) >= {"token", "logprob", "bytes", "top_logprobs"}
        assert entry["top_logprobs"] == []
    for fields in ({"top_logprobs": 2}, {"logprobs": True, "top_logprobs": 21}):
        error = error_of(post(scripted, "/v1/chat/completions", chat("ab", **fields)))
        assert error["param"] == "top_logprobs"


def test_b038_logprob_bytes_are_utf8(scripted: Scripted) -> None:
    """Token text and bytes are the text's, not the vocabulary's glyphs."""
    body = post(scripted, "/v1/chat/completions", chat("山水", logprobs=True)).json()
    entries = body["choices"][0]["logprobs"]["content"]
    assert [e["token"] for e in entries] == ["山", "水"]
    assert entries[0]["bytes"] == [229, 177, 177]


def test_b040_echo_with_logprobs(scripted: Scripted) -> None:
    """Prompt tokens and the new one, all with numbers but the first, joining to the text."""
    body = {"prompt": "- pears: 4\n- figs:", "echo": True, "logprobs": 1, "max_tokens": 1}
    choice = post(scripted, "/v1/completions", body).json()["choices"][0]
    logprobs = choice["logprobs"]
    assert "".join(logprobs["tokens"]) == choice["text"]
    assert logprobs["token_logprobs"][0] is None
    assert all(value <= 0 for value in logprobs["token_logprobs"][1:])
    names = ("tokens", "token_logprobs", "top_logprobs", "text_offset")
    assert len({len(logprobs[name]) for name in names}) == 1


def test_b042_finish_reason_in_every_chunk(scripted: Scripted) -> None:
    """The key is always there, and the finish has a chunk of its own with an empty delta."""
    chunks = stream_events(f"{scripted.url}/v1/chat/completions", chat("abc", max_tokens=3))
    choices = [chunk["choices"][0] for chunk in chunks]
    assert all("finish_reason" in choice for choice in choices)
    assert choices[-1]["delta"] == {}
    assert choices[-1]["finish_reason"] == "length"
    assert [c["finish_reason"] for c in choices[:-1]] == [None] * (len(choices) - 1)


def test_b044_a_completed_response_holds_what_was_streamed(scripted: Scripted) -> None:
    """The last event has the whole text and the usage; numbers rise and names stay."""
    answer = post(scripted, "/v1/responses", {"input": "Hello", "stream": True})
    events = [json.loads(e.partition("data: ")[2]) for e in answer.text.split("\n\n") if e]
    text = "".join(e["delta"] for e in events if e["type"] == "response.output_text.delta")
    last = events[-1]
    assert last["type"] == "response.completed"
    assert text == last["response"]["output"][0]["content"][0]["text"] == "Hello"
    assert last["response"]["usage"]["output_tokens"] > 0
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert len({e["response"]["id"] for e in events if "response" in e}) == 1
    items = {e["item_id"] for e in events if "item_id" in e}
    assert items == {last["response"]["output"][0]["id"]}


def test_b046_huge_lists_are_refused_quickly(scripted: Scripted) -> None:
    """Hundreds of thousands of stops or biases cost a 400, and nobody else waits for it."""
    start = time.monotonic()
    stops = [f"stop{i}" for i in range(200_000)]
    assert (
        error_of(post(scripted, "/v1/chat/completions", chat("a", stop=stops)))["param"] == "stop"
    )
    bias = {str(i): 1 for i in range(1_000_000)}
    error = error_of(post(scripted, "/v1/chat/completions", chat("a", logit_bias=bias)))
    assert error["param"] == "logit_bias"
    assert time.monotonic() - start < 60  # not a speed test: a hang would take for ever


def test_b055_continuing_the_last_message(scripted: Scripted) -> None:
    """Alone it needs no other field; with an explicit opening of a new turn it is a 400."""
    messages = [{"role": "user", "content": "abc"}, {"role": "assistant", "content": "Hi"}]
    body = {"messages": messages, "continue_final_message": True}
    assert post(scripted, "/v1/chat/completions", body).status_code == 200
    answer = post(scripted, "/v1/chat/completions", {**body, "add_generation_prompt": True})
    assert error_of(answer)["param"] == "add_generation_prompt"
