"""Random requests, aborts, stops and faults never lose a page, a lock, a slot or a last output."""

import random
from dataclasses import dataclass, field

import pytest

from headwater.messages.requests import Generate
from tests.unit.scheduler.fake import Driver, expect, options
from tests.unit.scheduler.test_answers import random_request


@dataclass
class _Story:
    """What was done to the requests of one run."""

    requests: dict[int, Generate] = field(default_factory=dict)
    ended: set[int] = field(default_factory=set)

    def live(self, driver: Driver) -> list[int]:
        return [
            uid
            for uid in self.requests
            if uid not in driver.outputs or driver.last(uid).finish is None
        ]


def _one_event(rng: random.Random, driver: Driver, story: _Story) -> None:
    live = story.live(driver)
    kind = rng.choice(["add", "add", "step", "step", "step", "abort", "stop", "fault", "flush"])
    if kind == "add":
        generate = random_request(rng, len(story.requests))
        story.requests[generate.uid] = generate
        driver.add(generate)
    elif kind == "step":
        driver.step()
    elif kind == "abort" and live:
        uids = rng.sample(live, min(len(live), rng.randint(1, 3)))
        story.ended.update(uids)
        driver.keep(driver.scheduler.abort([*uids, uids[0], 10**9], "gone"))
    elif kind == "stop" and live:
        uid = rng.choice(live)
        if driver.ids(uid):
            story.ended.add(uid)
            driver.keep(driver.scheduler.stop(uid, rng.randint(1, len(driver.ids(uid)))))
            assert driver.last(uid).ids == []
    elif kind == "fault" and live and rng.random() < 0.3:
        uid = rng.choice(live)
        story.ended.add(uid)
        driver.runner.fault_uids.add(uid)
    elif kind == "flush":
        assert driver.scheduler.flush_cache() == (not driver.scheduler.has_work)


def _event_inside_a_step(rng: random.Random, driver: Driver, story: _Story) -> None:
    """Abort and stop between a plan and its commit."""
    plan = driver.scheduler.plan()
    if plan is None:
        return
    early, late = rng.sample(["plan", "run"], 2)
    gone = rng.choice([row.uid for row in plan.rows])
    if early == "plan":
        driver.keep(driver.scheduler.abort([gone], "between"))
    result = driver.runner.run(plan)
    if late == "plan":
        driver.keep(driver.scheduler.stop(gone, 0))
    story.ended.add(gone)
    driver.keep(driver.scheduler.commit(plan, result))


@pytest.mark.parametrize("seed", range(12))
def test_random_events_leave_nothing_behind(seed: int) -> None:
    """600 events: integrity after each, one finish per request, no page in use at the end."""
    rng = random.Random(seed)
    driver = Driver(
        options(
            num_pages=rng.choice([20, 30, 80]),
            chunked_prefill_size=rng.choice([1, 4, 16, 64]),
            max_running_requests=rng.choice([1, 4, 16]),
            max_queued_requests=rng.choice([None, 3]),
            schedule_policy=rng.choice(["lpm", "fcfs"]),
            disable_radix_cache=seed % 4 == 3,
        )
    )
    story = _Story()
    for _ in range(600):
        if rng.random() < 0.05:
            _event_inside_a_step(rng, driver, story)
        else:
            _one_event(rng, driver, story)
    driver.finish()
    assert not story.live(driver)
    refused = 0
    for uid, generate in story.requests.items():
        finish = driver.last(uid).finish
        assert finish is not None
        if finish.code == "overloaded":
            refused += 1
        elif uid not in story.ended:
            driver.check_answer(generate)
        else:
            ids = driver.ids(uid)
            assert ids == expect(generate).ids[: len(ids)]
    state = driver.scheduler.state()
    assert state["num_requests"] == len(story.requests)
    assert state["num_refused"] == refused
    ends = state["num_finished"] + state["num_aborted"] + state["num_errors"] + refused
    assert ends == len(story.requests)


def test_abort_frees_everything_at_every_stage() -> None:
    """Waiting, half prefilled, decoding, retracted: after the abort nothing is held."""
    for num_steps in range(12):
        driver = Driver(options(num_pages=12, chunked_prefill_size=6, max_running_requests=3))
        rng = random.Random(num_steps)
        requests = [random_request(rng, uid, max_prompt=20) for uid in range(6)]
        driver.add(*requests)
        for _ in range(num_steps):
            driver.step()
        driver.keep(driver.scheduler.abort(range(6), "client went away"))
        assert not driver.scheduler.has_work
        assert driver.scheduler.state()["num_used_pages"] == 0
        assert driver.scheduler.plan() is None
        for uid in range(6):
            assert driver.last(uid).finish is not None
        driver.finish()
