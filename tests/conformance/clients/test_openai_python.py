"""The official `openai` package against the running server."""

from collections.abc import Iterator

import httpx
import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from openai.types.chat import ChatCompletionMessageParam

from tests.conformance.conftest import Scripted

LONG = "abcdefghij" * 40


def say(text: str) -> list[ChatCompletionMessageParam]:
    """Messages that make the scripted model say a text."""
    return [{"role": "user", "content": text}]


@pytest.fixture
def client(scripted: Scripted) -> Iterator[OpenAI]:
    """A client that does not try again."""
    with OpenAI(base_url=f"{scripted.url}/v1", api_key="none", max_retries=0) as made:
        yield made


def test_chat(client: OpenAI) -> None:
    """Content, finish, usage with details, fingerprint."""
    answer = client.chat.completions.create(
        model="default", messages=say("Hi 山"), max_completion_tokens=20, seed=1
    )
    assert answer.choices[0].message.content == "Hi 山"
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.system_fingerprint is not None
    assert answer.usage is not None
    assert answer.usage.prompt_tokens_details is not None
    assert answer.usage.completion_tokens_details is not None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def test_chat_stream(client: OpenAI) -> None:
    """Chunks with the usage at the end."""
    stream = client.chat.completions.create(
        model="default",
        messages=say("Hi 🥨"),
        stream=True,
        stream_options={"include_usage": True},
        n=2,
    )
    texts, last = ["", ""], None
    for chunk in stream:
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
        last = chunk
    assert texts == ["Hi 🥨", "Hi 🥨"]
    assert last is not None
    assert last.usage is not None
    assert last.choices == []


def test_stream_helper(client: OpenAI) -> None:
    """`.stream()` gathers the snapshot that `create` returns."""
    with client.chat.completions.stream(
        model="default", messages=say("Result: 水"), logprobs=True, top_logprobs=2
    ) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_completion()
    whole = client.chat.completions.create(
        model="default", messages=say("Result: 水"), logprobs=True, top_logprobs=2
    )
    assert {"chunk", "content.delta", "content.done", "logprobs.content.delta"} <= kinds
    assert final.choices[0].message.content == "Result: 水"
    assert final.choices[0].logprobs is not None
    assert whole.choices[0].logprobs is not None
    ours, theirs = final.choices[0].logprobs.content, whole.choices[0].logprobs.content
    assert [t.model_dump() for t in ours or ()] == [t.model_dump() for t in theirs or ()]


def test_raw_and_streaming_responses(client: OpenAI) -> None:
    """Headers, request id, parsed body; lines of a stream."""
    raw = client.chat.completions.with_raw_response.create(model="default", messages=say("Hi"))
    assert raw.headers["x-request-id"] == raw.parse().id
    assert raw.http_response.headers["content-type"] == "application/json"
    with client.chat.completions.with_streaming_response.create(
        model="default", messages=say("Hi"), stream=True
    ) as response:
        lines = [line for line in response.iter_lines() if line]
    assert lines[-1] == "data: [DONE]"


def test_completions(client: OpenAI) -> None:
    """Lists, echo, log-probabilities, best_of, stops, streams."""
    answer = client.completions.create(
        model="default", prompt=["ab", "cd"], echo=True, logprobs=2, max_tokens=0
    )
    assert [c.text for c in answer.choices] == ["ab", "cd"]
    assert answer.choices[0].logprobs is not None
    assert answer.choices[0].logprobs.tokens == ["a", "b"]
    assert answer.choices[0].logprobs.text_offset == [0, 1]
    best = client.completions.create(
        model="default", prompt="ab", best_of=3, n=1, seed=4, max_tokens=4, temperature=1.2
    )
    assert len(best.choices) == 1
    script = "<|start|>Finished the end<|end|>"
    stream = client.completions.create(
        model="default", prompt=script, stop=[" end", "zz"], max_tokens=40, stream=True
    )
    assert "".join(chunk.choices[0].text for chunk in stream) == "Finished the"


def test_models(client: OpenAI) -> None:
    """List and retrieve."""
    (model,) = client.models.list().data
    assert client.models.retrieve(model.id) == model
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("other")


def test_errors_are_the_clients_own(client: OpenAI) -> None:
    """Each status is its exception, with code and param."""
    with pytest.raises(openai.NotFoundError) as missing:
        client.chat.completions.create(model="gpt-x", messages=say("Hi"))
    assert missing.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as wrong:
        client.chat.completions.create(model="default", messages=say("Hi"), temperature=-1)
    assert wrong.value.param == "temperature"
    with pytest.raises(openai.BadRequestError) as long:
        client.chat.completions.create(model="default", messages=say("x" * 20_000))
    assert long.value.code == "context_length_exceeded"


def test_extensions_travel_in_extra_body(client: OpenAI) -> None:
    """And come back in the model's extra fields."""
    answer = client.chat.completions.create(
        model="default",
        messages=say("Hi there"),
        extra_body={"stop_regex": " t.e", "return_token_ids": True, "top_k": 5},
    )
    (choice,) = answer.choices
    assert choice.message.content == "Hi"
    assert choice.finish_reason == "stop"
    extra = choice.model_extra or {}
    assert extra["matched_stop"] == " the"
    assert extra["token_ids"]


def test_a_timeout_ends_the_request(scripted: Scripted, client: OpenAI) -> None:
    """The client gives up, and the server frees the pages."""
    impatient = client.with_options(timeout=0.3)
    with pytest.raises(openai.APITimeoutError):
        impatient.chat.completions.create(model="default", messages=say(LONG), max_tokens=900)
    assert scripted.server.wait_idle()["num_used_pages"] == 0


def test_leaving_a_stream_ends_the_request(scripted: Scripted, client: OpenAI) -> None:
    """`close()` on a stream is an abort."""
    stream = client.chat.completions.create(model="default", messages=say(LONG), stream=True)
    next(iter(stream))
    stream.close()
    assert scripted.server.wait_idle()["num_used_pages"] == 0


def test_the_client_tries_again_when_told_so(scripted: Scripted) -> None:
    """A 409 of a name in use passes, and the client's own retry gets through."""
    body = {"rid": "taken", "input_ids": scripted.tokens.script(*LONG), "stream": True}
    body["sampling_params"] = {"max_new_tokens": len(LONG)}
    with (
        OpenAI(base_url=f"{scripted.url}/v1", api_key="none", max_retries=8) as client,
        httpx.stream("POST", f"{scripted.url}/generate", json=body) as first,
    ):
        lines = first.iter_lines()  # kept: the stream closes with its iterator
        next(lines)
        answer = client.chat.completions.with_raw_response.create(
            model="default", messages=say("Hi"), extra_body={"rid": "taken"}
        )
    assert answer.parse().choices[0].message.content == "Hi"
    assert answer.retries_taken > 0


async def test_async_client(scripted: Scripted) -> None:
    """Many at once, streamed and not."""
    async with AsyncOpenAI(base_url=f"{scripted.url}/v1", api_key="none") as client:
        stream = await client.chat.completions.create(
            model="default", messages=say("Hi 山水"), stream=True
        )
        text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
        assert text == "Hi 山水"
        async with client.chat.completions.stream(model="default", messages=say("done")) as helper:
            assert (await helper.get_final_completion()).choices[0].message.content == "done"
        answer = await client.completions.create(model="default", prompt="a", max_tokens=3, seed=1)
        assert answer.usage is not None
        assert answer.usage.completion_tokens == 3
