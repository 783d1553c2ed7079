"""Who starts and who runs: policies, their bound on waiting, and no starvation either way."""

import pytest

from headwater.worker.cache.radix import Node
from headwater.worker.scheduler.budget import prompt_budget
from headwater.worker.scheduler.queue import LPM_WINDOW, WaitingQueue
from headwater.worker.scheduler.request import Request
from tests.unit.scheduler.fake import Driver, options, request


def start_order(driver: Driver) -> list[int]:
    """Requests in the order of their first row."""
    return list(dict.fromkeys(uid for plan in driver.plans for uid, _, _ in plan))


def warm(driver: Driver, prompt: list[int]) -> None:
    """Bring a prompt into the cache."""
    driver.add(request(1000, prompt, max_new_tokens=1))
    while driver.step():
        pass
    driver.plans.clear()


@pytest.mark.parametrize(("policy", "order"), [("lpm", [2, 1, 0, 3]), ("fcfs", [0, 1, 2, 3])])
def test_policies_order_the_queue(policy: str, order: list[int]) -> None:
    """The lpm policy prefers what is cached, the older one among equals; fcfs does not look."""
    driver = Driver(options(schedule_policy=policy, max_running_requests=1))
    prompt = list(range(12))
    warm(driver, prompt)
    driver.add(request(0, [39]), request(1, prompt[:5]), request(2, prompt), request(3, [38]))
    driver.finish()
    assert start_order(driver) == order


def test_lpm_overtakes_a_bounded_number_of_times() -> None:
    """A stream of cached requests lets an uncached one start after `max_wait_steps` steps."""
    driver = Driver(options(max_running_requests=1, max_wait_steps=5))
    prompt = list(range(12))
    warm(driver, prompt)
    driver.add(request(0, [39], max_new_tokens=1))
    for uid in range(1, 20):
        driver.add(request(uid, prompt, max_new_tokens=1))
        driver.step()
    driver.finish()
    assert start_order(driver).index(0) == 5


def test_a_due_request_is_not_overtaken_for_want_of_pages() -> None:
    """A big request at the front gets the pages that become free, though smaller ones would fit."""
    driver = Driver(options(num_pages=20, max_wait_steps=2, chunked_prefill_size=100))
    warm(driver, [0, 1, 2, 3, 4])
    big = request(0, list(range(20, 40)) * 3, max_new_tokens=4)
    driver.add(request(1, [39], max_new_tokens=30), request(2, [38], max_new_tokens=10), big)
    for uid in range(3, 60):
        driver.add(request(uid, [0, 1, 2, 3, uid % 40], max_new_tokens=6))
        driver.step()
    driver.finish()
    # Two steps of overtaking, one request in each; then nobody until the big one fits.
    assert start_order(driver).index(0) == 4
    driver.check_answer(big)


def queue(policy: str = "lpm", **prefixes: int) -> tuple[WaitingQueue, dict[str, Request]]:
    """A queue of requests with given cached prefixes, in order of arrival."""
    settings = options(schedule_policy=policy, max_wait_steps=2)
    root = Node(None, (), -1)
    requests = {
        name: Request(request(i, [1]), i, settings, root) for i, name in enumerate(prefixes)
    }
    lengths = dict(enumerate(prefixes.values()))
    waiting = WaitingQueue(settings, lambda r: lengths[r.uid])
    for one in requests.values():
        waiting.add(one)
    return waiting, requests


def names(waiting: WaitingQueue, requests: dict[str, Request]) -> str:
    """The order in which requests would start."""
    return "".join(name for r in waiting.in_order() for name in requests if requests[name] is r)


@pytest.mark.parametrize("policy", ["lpm", "fcfs"])
def test_retracted_requests_go_first_in_order_of_arrival(policy: str) -> None:
    """A retracted request waits before all that have not started, the older one first."""
    waiting, requests = queue(policy, a=0, b=0, c=2, d=1)
    for name in ("b", "a"):  # they start, and are retracted, the younger one first
        assert waiting.remove(requests[name].uid) is requests[name]
    for name in ("b", "a"):
        waiting.put_back(requests[name])
    assert len(waiting) == len(list(waiting)) == 4
    assert names(waiting, requests) == "abcd"
    assert waiting.remove(requests["a"].uid) is requests["a"]
    assert waiting.remove(requests["a"].uid) is None
    assert names(waiting, requests) == "bcd"


def test_only_younger_requests_overtake() -> None:
    """Steps in which older requests start do not count against the policy."""
    waiting, requests = queue(a=0, b=1, c=2, d=9, e=1)
    started = requests["b"]
    waiting.remove(started.uid)
    for _ in range(3):
        waiting.note_started([started])
    assert names(waiting, requests) == "adce"  # a was overtaken by b, nobody else was
    waiting.note_started([])
    assert names(waiting, requests) == "adce"
    waiting.remove(requests["d"].uid)
    for expected in ("ace", "ace"):
        waiting.note_started([requests["d"]])
        assert names(waiting, requests) == expected
    assert requests["c"].num_overtaken == 2
    assert requests["e"].num_overtaken == 0


def test_long_queue_is_served_in_order_beyond_the_window() -> None:
    """The lpm policy compares the longest waiting requests only, and still serves everybody."""
    driver = Driver(options(max_running_requests=300, num_pages=900, chunked_prefill_size=1000))
    driver.is_checked = False
    requests = [request(uid, [uid % 40], max_new_tokens=2) for uid in range(LPM_WINDOW + 50)]
    driver.add(*requests)
    driver.step()
    assert len(driver.plans[0]) == LPM_WINDOW
    driver.finish()
    for generate in requests:
        driver.check_answer(generate)


def test_decodes_run_in_every_step_beside_a_long_prompt() -> None:
    """A prompt of many chunks does not hold up a running stream."""
    driver = Driver(options(num_pages=100, chunked_prefill_size=8))
    driver.add(request(0, [1], max_new_tokens=30))
    driver.step()
    driver.add(request(1, [7] * 200, max_new_tokens=1))
    for _ in range(20):
        driver.step()
    for plan in driver.plans[1:]:
        assert plan[0][0] == 0
        assert sum(end - start for _, start, end in plan) <= 8
    driver.finish()


def test_many_decodes_leave_a_share_to_prompts() -> None:
    """With more decodes than the budget has tokens, a prompt still gets on in every step."""
    driver = Driver(options(num_pages=400, chunked_prefill_size=8, max_running_requests=17))
    driver.is_checked = False
    driver.add(*(request(uid, [uid], max_new_tokens=50) for uid in range(16)))
    for _ in range(10):
        driver.step()
    driver.add(request(16, [7] * 40, max_new_tokens=1))
    driver.plans.clear()
    for _ in range(20):
        driver.step()
    assert all(len(plan) == 17 for plan in driver.plans)
    assert driver.last(16).finish is not None
    assert [prompt_budget(8, 0), prompt_budget(8, 7), prompt_budget(1, 5)] == [8, 2, 1]


def test_slots_are_never_exceeded() -> None:
    """No step has more rows than `max_running_requests`."""
    driver = Driver(options(max_running_requests=3, chunked_prefill_size=64))
    driver.add(*(request(uid, [uid, 1], max_new_tokens=uid + 1) for uid in range(10)))
    driver.finish()
    assert max(len(plan) for plan in driver.plans) == 3


def test_last_row_of_a_batch_may_use_the_rest_of_the_budget() -> None:
    """The budget of a step is used up to its last token, over several prompts."""
    driver = Driver(options(chunked_prefill_size=10))
    driver.add(request(0, [1] * 6), request(1, [2] * 8), request(2, [3] * 3))
    driver.step()
    driver.step()
    assert driver.plans[0] == [(0, 0, 6), (1, 0, 4)]
    assert driver.plans[1] == [(0, 6, 7), (1, 4, 8), (2, 0, 3)]
