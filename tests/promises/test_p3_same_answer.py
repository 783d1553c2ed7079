"""An answer depends on model, prompt, parameters and seed alone, whatever else the server does."""

from collections.abc import Sequence
from typing import Any

import httpx
import pytest

from tests.kit.server import Server
from tests.promises.requests import alone, flush, random_requests, together

Body = dict[str, Any]


def assert_same(answers: Sequence[Body], others: Sequence[Body]) -> None:
    """Ids, text, finish and log-probability records agree to the last bit, answer by answer."""
    for a, b in zip(answers, others, strict=True):
        assert a["output_ids"] == b["output_ids"]
        assert a["text"] == b["text"]
        for key in ("finish_reason", "prompt_tokens", "completion_tokens"):
            assert a["meta_info"][key] == b["meta_info"][key]
        for key in ("input_token_logprobs", "output_token_logprobs"):
            assert a["meta_info"].get(key) == b["meta_info"].get(key), key


@pytest.fixture(scope="module")
def bodies() -> list[Body]:
    """32 different requests."""
    return random_requests(32, seed=1)


@pytest.fixture(scope="module")
def expected(roomy: Server, bodies: list[Body]) -> list[Body]:
    """Each answer, alone on an empty cache."""
    return alone(roomy, bodies)


def test_32_at_once_are_as_each_alone(
    roomy: Server, bodies: list[Body], expected: list[Body]
) -> None:
    """Batch company changes nothing."""
    flush(roomy)
    assert_same(together(roomy, bodies), expected)


def test_a_warm_cache_changes_nothing(
    roomy: Server, bodies: list[Body], expected: list[Body]
) -> None:
    """The same requests again, whose prompts are cached, alone and at once."""
    together(roomy, bodies)
    assert_same(alone(roomy, bodies, cold=False), expected)
    warm = together(roomy, bodies)
    assert_same(warm, expected)
    hits = [a["meta_info"]["cached_tokens"] for a in warm if a["meta_info"]["prompt_tokens"] > 40]
    assert any(hits)


def test_no_cache_changes_nothing(
    uncached: Server, bodies: list[Body], expected: list[Body]
) -> None:
    """A server that never reuses a page answers the same."""
    answers = together(uncached, bodies)
    assert_same(answers, expected)
    assert all(a["meta_info"]["cached_tokens"] == 0 for a in answers)


def test_retraction_changes_nothing(
    cramped: Server, bodies: list[Body], expected: list[Body]
) -> None:
    """A pool so small that requests are retracted gives the same answers and records."""
    answers = together(cramped, bodies)
    assert_same(answers, expected)
    assert sum(a["meta_info"]["num_retractions"] for a in answers) > 0


def test_b034_an_unseeded_neighbour_does_not_change_a_seeded_request(roomy: Server) -> None:
    """Five times alone and in company: one answer."""
    seeded = {"text": "seeded", "sampling_params": {"sampling_seed": 11, "max_new_tokens": 16}}
    neighbour = {"text": "other", "sampling_params": {"max_new_tokens": 16}}
    first = alone(roomy, [seeded])[0]["output_ids"]
    for _ in range(5):
        assert together(roomy, [seeded, neighbour, neighbour])[0]["output_ids"] == first


def test_unseeded_requests_differ(roomy: Server) -> None:
    """Without a seed, two answers to one prompt are two samples."""
    body = {"text": "x", "sampling_params": {"temperature": 1.5, "max_new_tokens": 24}}
    a, b = together(roomy, [body, body])
    assert a["output_ids"] != b["output_ids"]


def test_b103_shared_prefixes_give_the_same_with_and_without_cache(
    roomy: Server, uncached: Server
) -> None:
    """Prefixes shared up to and around page borders; cold, warm, uncached and repeated."""
    base = [97 + i % 26 for i in range(60)]
    bodies = []
    for shared in (0, 1, 15, 16, 17, 31, 32, 33, 47, 48, 49):
        for tail in ([65], [66, 67, 68], []):
            if ids := base[:shared] + tail:
                params = {"temperature": 0, "max_new_tokens": 4, "ignore_eos": True}
                body = {"input_ids": ids, "sampling_params": params, "return_logprob": True}
                bodies.append(body)
    plain = alone(uncached, bodies, cold=False)
    flush(roomy)
    assert_same(alone(roomy, bodies, cold=False), plain)
    assert_same(together(roomy, bodies), plain)


def test_b109_retraction_with_seed_and_penalty(cramped: Server, roomy: Server) -> None:
    """The noise and the penalty counts go on where they were."""
    params = {
        "sampling_seed": 3,
        "temperature": 1.0,
        "frequency_penalty": 1.0,
        "max_new_tokens": 60,
        "ignore_eos": True,
    }
    bodies = [
        {"input_ids": [97 + i] * (20 + i), "sampling_params": params, "rid": f"b109-{i}"}
        for i in range(12)
    ]
    plain = alone(roomy, bodies)
    answers = together(cramped, bodies)
    assert_same(answers, plain)
    assert sum(a["meta_info"]["num_retractions"] for a in answers) > 0


def test_b115_prompt_logprobs_with_a_warm_cache(roomy: Server) -> None:
    """Records of a cached prompt are computed anew, never taken from another request."""
    prompt = [97 + i % 26 for i in range(48)]

    def body(last: int) -> Body:
        return {
            "prompt": [*prompt, last],
            "echo": True,
            "logprobs": 1,
            "max_tokens": 1,
            "temperature": 0,
        }

    flush(roomy)
    answers = []
    for last in (65, 66, 65):
        response = httpx.post(f"{roomy.url}/v1/completions", json=body(last), timeout=60)
        answers.append(response.json()["choices"][0]["logprobs"]["token_logprobs"])
    assert answers[0][1:] == answers[2][1:]
    assert answers[0][1:] != answers[1][1:]
    assert all(isinstance(value, float) for value in answers[2][1:])


def test_b119_cached_tokens_are_counted_right(roomy: Server) -> None:
    """0 when cold, a page multiple below the prompt when repeated, not multiplied by n."""
    body = {"prompt": "A prompt that is repeated, longer than three pages of tokens.", "seed": 1}

    def cached(**fields: Any) -> tuple[int, int]:
        answer = httpx.post(f"{roomy.url}/v1/completions", json={**body, **fields}, timeout=60)
        usage = answer.json()["usage"]
        return usage["prompt_tokens_details"]["cached_tokens"], usage["prompt_tokens"]

    flush(roomy)
    assert cached()[0] == 0
    hit, length = cached()
    assert 0 < hit < length
    assert hit % 16 == 0
    assert cached(n=4) == (hit, length)
    flush(roomy)
    assert cached()[0] == 0
