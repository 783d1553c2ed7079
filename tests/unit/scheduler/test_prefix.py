"""The prefix cache as requests see it: exactly what is cached, between whom, and when."""

import random

import pytest

from headwater.messages.requests import Generate, LogprobSpec
from tests.unit.scheduler.fake import VOCAB, Driver, expect, options, request


def drain(driver: Driver) -> None:
    """Step until nothing is left, and keep the cache."""
    while driver.step():
        pass


class Oracle:
    """All prefixes in whole pages whose keys and values were ever computed, by brute force."""

    def __init__(self, page_size: int) -> None:
        self._page_size = page_size
        self._prefixes: set[tuple[str, tuple[int, ...]]] = set()

    def computed(self, salt: str, ids: list[int]) -> None:
        """Positions of `ids` were computed."""
        for end in range(self._page_size, len(ids) + 1, self._page_size):
            self._prefixes.add((salt, tuple(ids[:end])))

    def cached(self, generate: Generate) -> int:
        """Tokens of the request that the cache must give."""
        ids, spec = generate.prompt_ids, generate.logprobs
        limit = len(ids) - 1
        if spec is not None and 0 <= spec.start_len < len(ids):
            limit = max(spec.start_len - 1, 0)
        ends = range(self._page_size, limit + 1, self._page_size)
        hits = [end for end in ends if (generate.cache_salt, tuple(ids[:end])) in self._prefixes]
        return max(hits, default=0)


@pytest.mark.parametrize("seed", range(25))
def test_cached_tokens_are_those_of_a_brute_force_search(seed: int) -> None:
    """Concurrent requests on a large pool: every hit is found, and none is invented."""
    rng = random.Random(seed)
    page_size = rng.choice([1, 2, 4])
    driver = Driver(
        options(
            num_pages=5000,
            page_size=page_size,
            chunked_prefill_size=rng.choice([2, 7, 40]),
            schedule_policy=rng.choice(["lpm", "fcfs"]),
            max_running_requests=4,
        )
    )
    oracle, first_starts, requests = Oracle(page_size), dict[int, int](), dict[int, Generate]()
    for uid in range(30):
        prompt = [rng.randrange(2) for _ in range(rng.randint(1, 14))]
        logprobs = LogprobSpec(rng.randint(-1, 14)) if rng.random() < 0.3 else None
        requests[uid] = request(
            uid, prompt, max_new_tokens=5, cache_salt=rng.choice(["", "s"]), logprobs=logprobs
        )
        driver.add(requests[uid])
        for _ in range(rng.randint(0, 2) if uid < 29 else 1000):
            plan = driver.scheduler.plan()
            if plan is None:
                break
            for row in plan.rows:
                if row.uid not in first_starts:
                    first_starts[row.uid] = row.start
                    assert row.start == oracle.cached(requests[row.uid])
            driver.keep(driver.scheduler.commit(plan, driver.runner.run(plan)))
            for row in plan.rows:
                oracle.computed(requests[row.uid].cache_salt, list(row.token_ids[: row.end]))
    for uid, generate in requests.items():
        driver.check_answer(generate)
        assert driver.last(uid).cached_tokens == first_starts[uid]
    state = driver.scheduler.state()
    assert state["num_cached_tokens"] == sum(first_starts.values())
    assert state["num_prompt_tokens"] == sum(len(g.prompt_ids) for g in requests.values())


def test_exact_repeat_recomputes_the_tail_only() -> None:
    """A prompt that is cached to its last token still computes one, to have logits."""
    driver = Driver(options())
    prompt = list(range(12))
    for uid, cached in enumerate([0, 8, 8]):
        driver.add(request(uid, prompt))
        drain(driver)
        assert driver.last(uid).cached_tokens == cached
    assert driver.scheduler.flush_cache()
    driver.add(request(9, prompt))
    drain(driver)
    assert driver.last(9).cached_tokens == 0


def test_next_turn_hits_the_whole_last_answer() -> None:
    """Finished answers stay cached, up to the last token, which was never an input."""
    driver = Driver(options())
    driver.add(request(0, list(range(6)), max_new_tokens=11))
    drain(driver)
    history = [*range(6), *driver.ids(0)]
    assert len(history) == 17
    driver.add(request(1, [*history, 1, 2, 3], max_new_tokens=1))
    drain(driver)
    assert driver.last(1).cached_tokens == 16
    # 17 + 3 tokens, the last of the answer completes no page: one short of a page boundary.
    driver.add(request(2, list(range(20, 25)), max_new_tokens=4))
    drain(driver)
    driver.add(request(3, [*range(20, 25), *driver.ids(2)[:3], 7], max_new_tokens=1))
    drain(driver)
    assert driver.last(3).cached_tokens == 8


def test_salts_do_not_share() -> None:
    """A prefix computed under one salt is invisible under another and under none."""
    driver = Driver(options())
    prompt = list(range(13))
    for uid, (salt, cached) in enumerate(
        [("a", 0), ("b", 0), ("", 0), ("a", 12), ("b", 12), ("", 12)]
    ):
        driver.add(request(uid, prompt, cache_salt=salt))
        drain(driver)
        assert driver.last(uid).cached_tokens == cached, salt


@pytest.mark.parametrize("chunk", [8, 64])
@pytest.mark.parametrize("policy", ["lpm", "fcfs"])
def test_siblings_wait_for_the_prefix_and_share_it(policy: str, chunk: int) -> None:
    """Answers to one prompt that come together compute it once, also over several chunks."""
    driver = Driver(options(schedule_policy=policy, chunked_prefill_size=chunk))
    prompt = [i % VOCAB for i in range(41)]
    siblings = [request(uid, prompt, max_new_tokens=6) for uid in range(4)]
    other = request(9, [5, 6, 7], max_new_tokens=6)
    driver.add(*siblings, other)
    drain(driver)
    assert [driver.last(uid).cached_tokens for uid in range(4)] == [0, 40, 40, 40]
    for generate in (*siblings, other):
        driver.check_answer(generate)
    # 41 for the first, 1 for each sibling, 3 for the other, and 5 decodes each.
    assert driver.runner.num_computed == 41 + 3 + 3 + 5 * 5


def test_waiting_for_a_prefix_takes_one_step_and_holds_up_nobody() -> None:
    """Siblings start one step later; a request behind them starts at once."""
    driver = Driver(options(chunked_prefill_size=64))
    prompt = list(range(30))
    driver.add(request(0, prompt), request(1, prompt), request(2, prompt), request(9, [5, 6, 7]))
    driver.step()
    driver.step()
    assert driver.plans[0] == [(0, 0, 30), (9, 0, 3)]
    assert driver.plans[1] == [(0, 30, 31), (9, 3, 4), (1, 28, 30), (2, 28, 30)]


def test_nobody_waits_for_a_page_that_is_of_no_use() -> None:
    """The page with a prompt's last token must be computed anyway, so no sibling waits for it."""
    driver = Driver(options(chunked_prefill_size=64))
    prompt = list(range(8))
    driver.add(request(0, prompt[:5], max_new_tokens=1))
    drain(driver)
    driver.add(request(1, prompt), request(2, prompt))
    driver.step()
    assert driver.plans[-1] == [(1, 4, 8), (2, 4, 8)]


def test_nobody_waits_for_a_prefix_that_is_being_decoded() -> None:
    """A prompt that goes where an answer is going is computed at once, not token by token."""
    driver = Driver(options(page_size=1, chunked_prefill_size=64))
    first = request(0, [1, 2, 3], max_new_tokens=20)
    driver.add(first)
    driver.step()
    driver.add(request(1, [1, 2, 3, *expect(first).ids[:10]], max_new_tokens=1))
    driver.step()
    assert driver.plans[1] == [(0, 3, 4), (1, 3, 13)]


def test_equal_answers_share_pages_while_they_run() -> None:
    """Greedy siblings decode the same tokens; their full pages are held once."""
    driver = Driver(options(num_pages=200))
    siblings = [
        request(uid, list(range(9)), max_new_tokens=40, sampling_seed=1) for uid in range(4)
    ]
    driver.add(*siblings)
    for _ in range(30):
        driver.step()
    assert driver.scheduler.state()["num_used_pages"] <= 8 + 2 + 4 * 2
    drain(driver)
    for generate in siblings:
        driver.check_answer(generate)


def test_disabled_cache_shares_nothing() -> None:
    """With the cache off, a repeat computes everything again and nothing stays behind."""
    driver = Driver(options(disable_radix_cache=True))
    for uid in range(3):
        driver.add(request(uid, list(range(12))))
    drain(driver)
    assert [driver.last(uid).cached_tokens for uid in range(3)] == [0, 0, 0]
    assert driver.scheduler.state()["num_free_pages"] == 64


def test_failed_row_is_not_cached() -> None:
    """What a faulty row computed is not given to the next request with the same prompt."""
    driver = Driver(options())
    driver.runner.fault_uids.add(0)
    driver.add(request(0, list(range(12))))
    drain(driver)
    finish = driver.last(0).finish
    assert finish is not None
    assert (finish.type, finish.code) == ("error", "internal_error")
    assert "not finite" in (finish.message or "")
    assert driver.scheduler.state()["num_cached_pages"] == 0
