"""Whatever runs beside it, a request gives the answer that it gives alone."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.messages.requests import Generate, LogprobSpec
from tests.unit.scheduler.fake import VOCAB, Driver, options, request


def random_request(rng: random.Random, uid: int, *, max_prompt: int = 40) -> Generate:
    """A request with a prompt from a small family of prefixes, and all kinds of parameters."""
    family = rng.randrange(3)
    prompt_len = rng.randint(1, max_prompt)
    shared = rng.randint(0, prompt_len)
    prompt = [(family + i * 7) % VOCAB for i in range(shared)]
    prompt += [rng.randrange(VOCAB) for _ in range(prompt_len - shared)]
    logprobs = None
    if rng.random() < 0.5:
        start_len = rng.choice([-1, 0, rng.randint(0, prompt_len + 1)])
        logprobs = LogprobSpec(start_len, rng.randint(0, 2), [5, 1][: rng.randint(0, 2)])
    max_new_tokens = rng.choice([0, 1, rng.randint(1, 30)])
    return request(
        uid,
        prompt,
        max_new_tokens=max_new_tokens,
        min_new_tokens=rng.randint(0, max_new_tokens),
        ignore_eos=rng.random() < 0.5,
        stop_token_ids=rng.sample(range(VOCAB), rng.randint(0, 2)),
        stop=["x"] if rng.random() < 0.2 else [],
        stream=rng.random() < 0.7,
        stream_interval=rng.choice([None, 1, 3]),
        logprobs=logprobs,
        cache_salt=rng.choice(["", "", "a"]),
    )


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 10**9),
    page_size=st.sampled_from([1, 2, 4, 16]),
    spare_pages=st.sampled_from([0, 1, 3, 10, 200]),
    chunk=st.sampled_from([1, 2, 3, 5, 16, 64]),
    max_running=st.sampled_from([1, 2, 5, 16]),
    policy=st.sampled_from(["lpm", "fcfs"]),
    is_cached=st.booleans(),
)
def test_company_pool_and_chunks_change_nothing(
    seed: int,
    page_size: int,
    spare_pages: int,
    chunk: int,
    max_running: int,
    policy: str,
    is_cached: bool,
) -> None:
    """Ids, finish and log-probabilities are those of the request alone, cold and warm."""
    rng = random.Random(seed)
    requests = [random_request(rng, uid) for uid in range(rng.randint(1, 14))]
    longest = max(len(r.prompt_ids) + (r.params.max_new_tokens or 0) for r in requests)
    driver = Driver(
        options(
            page_size=page_size,
            num_pages=longest // page_size + 1 + spare_pages,
            chunked_prefill_size=chunk,
            max_running_requests=max_running,
            schedule_policy=policy,
            disable_radix_cache=not is_cached,
            stream_interval=rng.choice([1, 2, 5]),
            max_wait_steps=rng.choice([1, 4, 32]),
        )
    )
    for generate in requests:
        driver.add(generate)
        for _ in range(rng.randint(0, 3)):
            driver.step()
    driver.finish()
    for generate in requests:
        driver.check_answer(generate)


def test_tiny_pool_retracts_and_answers_the_same() -> None:
    """Requests that do not fit together are retracted, counted, and still give their answers."""
    requests = [
        request(uid, [uid, 1, 2, 3, 4, 5], max_new_tokens=40, logprobs=LogprobSpec(1, 2))
        for uid in range(6)
    ]
    driver = Driver(options(num_pages=14, chunked_prefill_size=64))
    driver.add(*requests)
    driver.finish()
    for generate in requests:
        driver.check_answer(generate)
    counts = [driver.last(uid).num_retractions for uid in range(6)]
    assert counts[0] == 0  # the oldest always goes on
    assert sum(counts) == driver.scheduler.state()["num_retractions"] > 0


def test_retraction_does_not_repeat_itself() -> None:
    """Requests start only where others can grow too, so few of them are ever sent back."""
    rng = random.Random(0)
    requests = [
        request(uid, [rng.randrange(VOCAB) for _ in range(12)], max_new_tokens=rng.randint(10, 40))
        for uid in range(60)
    ]
    driver = Driver(options(num_pages=120, max_running_requests=24, chunked_prefill_size=256))
    driver.is_checked = False
    driver.add(*requests)
    driver.finish()
    assert driver.scheduler.state()["num_retractions"] <= 20  # without that rule: 33
    for generate in requests:
        driver.check_answer(generate)


def test_retraction_in_the_middle_of_a_prompt_keeps_its_records() -> None:
    """Records of a prompt's first chunks survive a retraction, and the rest follows them."""
    driver = Driver(options(num_pages=13, chunked_prefill_size=4))
    old = request(0, [9], max_new_tokens=40)
    young = request(1, list(range(40)), max_new_tokens=2, logprobs=LogprobSpec(0, 1))
    driver.add(old)
    driver.step()
    driver.add(young)
    driver.finish()
    driver.check_answer(old)
    driver.check_answer(young)
    rows = [(start, end) for plan in driver.plans for uid, start, end in plan if uid == 1]
    ends = [end for _, end in rows]
    assert ends != sorted(ends), "it was not retracted in its prompt"
    assert driver.last(1).num_retractions == 1


def test_cached_tokens_stay_those_of_the_first_start() -> None:
    """A retracted request that finds its own pages in the cache has not become a cache hit."""
    driver = Driver(options(num_pages=14, chunked_prefill_size=64))
    requests = [request(uid, [uid, *range(10)], max_new_tokens=30) for uid in range(3)]
    driver.add(*requests)
    driver.finish()
    retracted = [uid for uid in range(3) if driver.last(uid).num_retractions]
    assert retracted
    starts = {uid: [] for uid in range(3)}  # type: dict[int, list[int]]
    for plan in driver.plans:
        for uid, start, _ in plan:
            starts[uid].append(start)
    for uid in range(3):
        assert all(output.cached_tokens == 0 for output in driver.outputs[uid])
    assert driver.scheduler.state()["num_cached_tokens"] == 0


@pytest.mark.parametrize("chunk", [1, 3, 4, 7, 64])
def test_input_logprobs_limit_the_cached_prefix(chunk: int) -> None:
    """The token before the first wanted position is computed, and not one more than a page."""
    driver = Driver(options(chunked_prefill_size=chunk))
    prompt = list(range(20))
    first = request(0, prompt, max_new_tokens=1)
    driver.add(first)
    while driver.step():
        pass
    for uid, (start_len, cached) in enumerate(
        [(-1, 16), (0, 0), (1, 0), (4, 0), (5, 4), (9, 8), (19, 16), (20, 16), (25, 16)], 1
    ):
        generate = request(uid, prompt, max_new_tokens=1, logprobs=LogprobSpec(start_len, 1, [2]))
        driver.add(generate)
        while driver.step():
            pass
        driver.check_answer(generate)
        assert driver.last(uid).cached_tokens == cached, start_len
