"""`/v1/completions` beyond the plain case: scoring, best_of, pieces of characters, infilling."""

from typing import Any

import httpx
import pytest

from tests.conformance.conftest import Scripted
from tests.conformance.exchange import exchange, stream_events


def post(scripted: Scripted, **body: Any) -> dict[str, Any]:
    """The answer to a body."""
    response = httpx.post(f"{scripted.url}/v1/completions", json=body, timeout=60)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def url(scripted: Scripted) -> str:
    """Of the endpoint."""
    return f"{scripted.url}/v1/completions"


def test_scoring_a_text(scripted: Scripted) -> None:
    """`max_tokens: 0` with echo and logprobs returns the prompt with its numbers."""
    answer = post(scripted, prompt="山 ab🥨", echo=True, logprobs=2, max_tokens=0)
    (choice,) = answer["choices"]
    assert choice["text"] == "山 ab🥨"
    assert choice["finish_reason"] == "length"
    assert answer["usage"]["completion_tokens"] == 0
    logprobs = choice["logprobs"]
    assert len(logprobs["tokens"]) == answer["usage"]["prompt_tokens"]
    assert logprobs["token_logprobs"][0] is None
    assert logprobs["top_logprobs"][0] is None
    assert all(value is not None for value in logprobs["token_logprobs"][1:])
    assert all(len(top) >= 2 for top in logprobs["top_logprobs"][1:])


def test_tokens_and_offsets_of_pieces_of_characters(scripted: Scripted) -> None:
    """The same streamed and not; each offset is the place of the token's character."""
    script = scripted.tokens.script("山", b"\xf0\x9f", b"\xa5", b"\xa8", "Hi")
    body = {"prompt": script, "logprobs": 1, "max_tokens": 20}
    got = exchange(url(scripted), body)
    assert got.text == "山🥨Hi"
    whole = got.body["choices"][0]["logprobs"]
    assert whole["tokens"] == ["山", "bytes:\\xf0\\x9f", "bytes:\\xa5", "bytes:\\xa8", "Hi"]
    assert whole["text_offset"] == [0, 1, 1, 1, 2]
    parts = [c["logprobs"] for chunk in got.chunks for c in chunk["choices"] if c["logprobs"]]
    for name in ("tokens", "text_offset", "token_logprobs"):
        assert [item for part in parts for item in part[name]] == whole[name]


def test_echo_moves_the_offsets(scripted: Scripted) -> None:
    """With echo they count from the prompt's first character."""
    script = scripted.tokens.script("Hi")
    answer = post(scripted, prompt=script, echo=True, logprobs=1, max_tokens=5)
    (choice,) = answer["choices"]
    last = choice["logprobs"]["text_offset"][-1]
    assert choice["text"][last:] == "Hi"


def test_best_of_returns_the_most_likely(scripted: Scripted) -> None:
    """Of best_of answers n come back, best mean first; all made tokens are counted."""
    body = {"prompt": "ab", "temperature": 1.5, "max_tokens": 4, "seed": 3, "ignore_eos": True}
    made = post(scripted, **body, n=6, logprobs=0)["choices"]
    means = [sum(c["logprobs"]["token_logprobs"]) / 4 for c in made]
    order = sorted(range(6), key=lambda k: -means[k])
    best = post(scripted, **body, n=2, best_of=6, return_token_ids=True)
    assert [c["text"] for c in best["choices"]] == [made[k]["text"] for k in order[:2]]
    assert [c["index"] for c in best["choices"]] == [0, 1]
    assert all(c["logprobs"] is None for c in best["choices"])
    assert best["usage"]["completion_tokens"] == 24
    assert best["usage"]["prompt_tokens"] == 2


def test_a_stream_interleaves_choices(scripted: Scripted) -> None:
    """Several prompts and answers in one stream, each whole by its index."""
    scripts = [scripted.tokens.script(*"abcdef"), scripted.tokens.script(*"uvwxyz")]
    body = {"prompt": scripts, "n": 2, "max_tokens": 20, "return_token_ids": True}
    chunks = stream_events(url(scripted), body)
    texts, order = [""] * 4, []
    ids: list[list[int]] = [[] for _ in range(4)]
    for choice in (c for chunk in chunks for c in chunk["choices"]):
        texts[choice["index"]] += choice["text"]
        ids[choice["index"]] += choice.get("token_ids") or []
        order.append(choice["index"])
    assert texts == ["abcdef", "abcdef", "uvwxyz", "uvwxyz"]
    assert order != sorted(order)
    whole = post(scripted, **body)
    assert [c["token_ids"] for c in whole["choices"]] == ids


def test_filling_in_the_middle(scripted: Scripted) -> None:
    """Prompt and suffix go between the model's tokens; echo shows the prompt."""
    answer = post(
        scripted,
        prompt=scripted.tokens.script("Hi"),
        suffix="end",
        max_tokens=5,
        return_token_ids=True,
    )
    (choice,) = answer["choices"]
    assert choice["text"] == "Hi"
    ids = choice["prompt_token_ids"]
    mark = scripted.tokens.id
    assert ids[0] == mark("<fim_prefix>")
    assert ids[-1] == mark("<fim_middle>")
    assert ids[ids.index(mark("<fim_suffix>")) + 1 : -1] == [*b"end"]


@pytest.mark.parametrize("n", [1, 3])
def test_usage_in_every_chunk(scripted: Scripted, n: int) -> None:
    """The counts so far, which never go back, and the whole at the end."""
    options = {"include_usage": True, "continuous_usage_stats": True}
    body = {"prompt": scripted.tokens.script(*"abcd"), "n": n, "max_tokens": 9}
    chunks = stream_events(url(scripted), {**body, "stream_options": options})
    counts = [chunk["usage"]["completion_tokens"] for chunk in chunks]
    assert counts == sorted(counts)
    assert counts[-1] == 5 * n
    assert chunks[-1]["choices"] == []
