"""Property: for any parameters, a stream's chunks fold to the unstreamed answer."""

from typing import Any

import httpx
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.conformance.conftest import Scripted
from tests.conformance.exchange import stream_events

PIECES: list[str | bytes] = [
    "a", "b", " ", "山", "Hi", "<end", ">>", " of", b"\xf0\x9f", b"\xa5", b"\xa8", b"\xff",
    "<|sep|>", "<A>", "\nRes", "ult", ": ",
]  # fmt: skip
STOPS = ["b", "Hi", "<end>>", "山a", "Result: ", "\ufffd", "zz"]

params = st.fixed_dictionaries(
    {},
    optional={
        "n": st.integers(1, 3),
        "max_tokens": st.integers(1, 30),
        "min_tokens": st.integers(0, 1),
        "stop": st.one_of(st.sampled_from(STOPS), st.lists(st.sampled_from(STOPS), max_size=4)),
        "stop_regex": st.sampled_from(["a+b", "[aH]i", "山|水"]),
        "stop_token_ids": st.lists(st.sampled_from([97, 98, 32]), max_size=2),
        "no_stop_trim": st.booleans(),
        "ignore_eos": st.booleans(),
        "skip_special_tokens": st.booleans(),
        "temperature": st.sampled_from([0, 0.7, 1.5]),
        "top_k": st.sampled_from([-1, 1, 50]),
        "frequency_penalty": st.sampled_from([-1, 0, 1.5]),
        "return_token_ids": st.booleans(),
        "stream_interval": st.integers(1, 5),
        "echo": st.booleans(),
    },
)
scripts = st.lists(st.sampled_from(PIECES), max_size=12)
some = settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def both(url: str, body: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The unstreamed answer and the chunks."""
    response = httpx.post(url, json=body, timeout=60)
    assert response.status_code == 200, response.text
    return response.json(), stream_events(url, {**body, "stream_options": {"include_usage": True}})


def usage_of(answer: dict[str, Any]) -> dict[str, Any]:
    """Counts, without what the cache did."""
    return {k: v for k, v in answer["usage"].items() if k != "prompt_tokens_details"}


def fold(choices: list[dict[str, Any]], index: int) -> list[dict[str, Any]]:
    """The chunks of one choice; only the last has a finish."""
    own = [c for c in choices if c["index"] == index]
    assert [c["finish_reason"] is not None for c in own] == [False] * (len(own) - 1) + [True]
    return own


@some
@given(script=scripts, fields=params, logprobs=st.sampled_from([None, 0, 2]))
def test_completions(
    scripted: Scripted, script: list[str | bytes], fields: dict[str, Any], logprobs: int | None
) -> None:
    """Text, finish, stop, ids, log-probabilities, usage."""
    prompt = scripted.tokens.script(*script)
    body = {"max_tokens": 30, "seed": 5, "logprobs": logprobs, **fields, "prompt": prompt}
    whole, chunks = both(f"{scripted.url}/v1/completions", body)
    assert usage_of(chunks[-1]) == usage_of(whole)
    pieces = [c for chunk in chunks for c in chunk["choices"]]
    for choice in whole["choices"]:
        own = fold(pieces, choice["index"])
        assert "".join(c["text"] for c in own) == choice["text"]
        assert own[-1]["finish_reason"] == choice["finish_reason"]
        assert own[-1]["matched_stop"] == choice["matched_stop"]
        ids = [i for c in own for i in c.get("token_ids") or []]
        assert ids == (choice.get("token_ids") or [])
        assert (choice["logprobs"] is not None) == (logprobs is not None)
        for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
            parts = [c["logprobs"][name] for c in own if c["logprobs"]]
            if logprobs is not None:
                assert [x for part in parts for x in part] == choice["logprobs"][name]


@some
@given(text=st.text("abHi山🥨 \n<>", max_size=12), fields=params, logprobs=st.booleans())
def test_chat(scripted: Scripted, text: str, fields: dict[str, Any], logprobs: bool) -> None:
    """Content, finish, stop, ids, log-probabilities, usage."""
    messages = [{"role": "user", "content": text}]
    body = {"max_tokens": 30, "seed": 5, "logprobs": logprobs, **fields, "messages": messages}
    if logprobs:
        body["top_logprobs"] = 2
    whole, chunks = both(f"{scripted.url}/v1/chat/completions", body)
    assert usage_of(chunks[-1]) == usage_of(whole)
    pieces = [c for chunk in chunks for c in chunk["choices"]]
    for choice in whole["choices"]:
        own = fold(pieces, choice["index"])
        content = "".join(c["delta"].get("content") or "" for c in own)
        assert content == choice["message"]["content"]
        assert own[-1]["finish_reason"] == choice["finish_reason"]
        assert own[-1]["matched_stop"] == choice["matched_stop"]
        ids = [i for c in own for i in c.get("token_ids") or []]
        assert ids == (choice.get("token_ids") or [])
        entries = [e for c in own if c["logprobs"] for e in c["logprobs"]["content"]]
        assert entries == ((choice["logprobs"] or {}).get("content") or [])
