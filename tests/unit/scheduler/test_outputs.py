"""What leaves the scheduler: when, with what, and why an answer ends."""

from typing import Any

import pytest

from headwater.messages.requests import LogprobSpec
from headwater.messages.tokens import Finish, Opening
from tests.unit.scheduler.fake import EOS, Driver, expect, options, request

PROMPT = [5, 6, 7, 8, 9]


def answer(num_tokens: int = 12, **fields: Any) -> list[int]:
    """The first tokens that the rule gives to PROMPT, with nothing to end them."""
    return expect(request(1, PROMPT, max_new_tokens=num_tokens, **fields)).ids


def run(settings: dict[str, Any] | None = None, **fields: Any) -> Driver:
    """Run one request to its end."""
    driver = Driver(options(**(settings or {})))
    driver.add(request(1, PROMPT, **{"max_new_tokens": 12, **fields}))
    driver.finish()
    return driver


def sizes(driver: Driver) -> list[int]:
    """Ids in each output."""
    return [len(output.ids) for output in driver.outputs[1]]


@pytest.mark.parametrize(
    ("server", "fields", "expected"),
    [
        (1, {}, [1] * 12),
        (5, {}, [1, 5, 5, 1]),
        (5, {"stream_interval": 4}, [1, 4, 4, 3]),
        (5, {"stream": False}, [12]),
        (5, {"stop": ["x"]}, [1] * 12),
        (5, {"stop_regex": ["x"], "stream": False}, [1] * 12),
    ],
)
def test_cadence(server: int, fields: dict[str, Any], expected: list[int]) -> None:
    """First token at once, then every interval; at the end only when nobody listens."""
    assert sizes(run({"stream_interval": server}, **fields)) == expected


def test_first_output_comes_with_the_prefill() -> None:
    """No step lies between the last prompt chunk and the first token's output."""
    driver = Driver(options(chunked_prefill_size=2, stream_interval=9))
    driver.add(request(1, PROMPT))
    driver.step()
    driver.step()
    assert 1 not in driver.outputs
    driver.step()
    assert sizes(driver) == [1]


def test_opening_tells_the_detokenizer_what_it_needs() -> None:
    """All text parameters travel with the first output, and the last 64 prompt ids."""
    prompt = [i % 40 for i in range(100)]
    driver = Driver(options())
    driver.add(
        request(
            1,
            prompt,
            max_new_tokens=2,
            min_new_tokens=1,
            stop=["a"],
            stop_regex=["b"],
            no_stop_trim=True,
            skip_special_tokens=False,
            spaces_between_special_tokens=False,
            stream=False,
            logprobs=LogprobSpec(with_text=True),
        )
    )
    driver.finish()
    assert driver.outputs[1][0].opening == Opening(
        prompt[-64:], False, False, ["a"], ["b"], True, 1, True, False, 100
    )


@pytest.mark.parametrize("no_stop_trim", [False, True])
@pytest.mark.parametrize("kind", ["eos", "stop_token_ids"])
def test_stop_token_ends_the_answer(kind: str, no_stop_trim: bool) -> None:
    """The token that ended it is in the ids, named in the finish, and trimmed from the text."""
    ids = answer()
    end = ids[4]
    assert end not in ids[:4]
    driver = run(
        {"eos_token_ids": frozenset({end} if kind == "eos" else ())},
        stop_token_ids=[end] if kind == "stop_token_ids" else [],
        ignore_eos=kind != "eos",
        no_stop_trim=no_stop_trim,
    )
    assert driver.ids(1) == ids[:5]
    assert driver.last(1).finish == Finish("stop", matched=end)
    assert driver.last(1).trim_ids == (0 if no_stop_trim else 1)


def test_ignored_eos_does_not_end_the_answer_nor_is_it_masked() -> None:
    """With ignore_eos the end token is a token like any other, also below min_new_tokens."""
    ids = answer()
    driver = run({"eos_token_ids": frozenset({ids[2]})}, ignore_eos=True, min_new_tokens=12)
    assert driver.ids(1) == ids
    assert driver.last(1).finish == Finish("length", length=12)
    assert driver.last(1).trim_ids == 0


def test_min_new_tokens_masks_stop_tokens() -> None:
    """The row tells the runner which ids to mask while the answer is short."""
    ids = answer()
    driver = Driver(options())
    driver.add(request(1, PROMPT, stop_token_ids=[ids[0]], min_new_tokens=3, ignore_eos=False))
    plan = driver.scheduler.plan()
    assert plan is not None
    assert plan.rows[0].eos_ids == {ids[0], EOS}
    driver.keep(driver.scheduler.commit(plan, driver.runner.run(plan)))
    driver.finish()
    assert driver.ids(1)[0] != ids[0]
    assert len(driver.ids(1)) > 3


def test_stop_token_below_min_new_tokens_does_not_count() -> None:
    """A model that ignores the mask cannot end an answer before `min_new_tokens`."""
    ids = answer()
    driver = Driver(options())
    generate = request(1, PROMPT, stop_token_ids=[ids[1]], min_new_tokens=6, max_new_tokens=8)
    driver.add(generate)
    for token_id in [ids[1]] * 7:
        plan = driver.scheduler.plan()
        assert plan is not None
        result = driver.runner.run(plan)
        object.__setattr__(result.rows[0], "token_id", token_id)
        driver.keep(driver.scheduler.commit(plan, result))
    assert driver.last(1).finish == Finish("stop", matched=ids[1])
    assert len(driver.ids(1)) == 7


def test_stop_token_wins_over_the_length() -> None:
    """An answer whose last allowed token is a stop token ended by the stop."""
    ids = answer()
    driver = run(stop_token_ids=[ids[4]], max_new_tokens=5)
    assert driver.last(1).finish == Finish("stop", matched=ids[4])


def test_stop_from_the_text_ends_the_answer() -> None:
    """The worker confirms a stop with a last output without ids; the late tokens do not count."""
    driver = Driver(options())
    driver.add(request(1, PROMPT, stop=["x"], logprobs=LogprobSpec()))
    for _ in range(5):
        driver.step()
    driver.keep(driver.scheduler.stop(1, 3))
    last = driver.last(1)
    assert (last.ids, last.finish, last.trim_ids) == ([], Finish("stop"), 0)
    assert not driver.scheduler.has_work
    assert driver.scheduler.state()["num_generated_tokens"] == 3
    assert driver.scheduler.stop(1, 3) == []
    driver.finish()


def test_abort_sends_what_was_not_sent() -> None:
    """The last output of an aborted answer has the tokens since the one before, and the reason."""
    driver = Driver(options(stream_interval=10))
    driver.add(request(1, PROMPT, logprobs=LogprobSpec(0)), request(2, [1], max_new_tokens=3))
    for _ in range(4):
        driver.step()
    driver.keep(driver.scheduler.abort([1, 77], "client went away"))
    last = driver.last(1)
    assert last.finish == Finish("abort", message="client went away")
    assert driver.ids(1) == answer()[:4]
    assert [len(o.ids) for o in driver.outputs[1]] == [1, 3]
    assert last.output_logprobs is not None
    assert len(last.output_logprobs) == 3
    driver.finish()


def test_abort_before_the_prefill_ends_has_no_half_records() -> None:
    """Input log-probabilities are complete or absent."""
    driver = Driver(options(chunked_prefill_size=2))
    driver.add(request(1, PROMPT, logprobs=LogprobSpec(0)))
    driver.step()
    driver.keep(driver.scheduler.abort([1], "gone"))
    last = driver.last(1)
    assert last.input_logprobs is None
    assert last.ids == []
    assert last.opening is not None
    assert last.opening.prompt_tokens == 5


def test_commit_ignores_rows_whose_request_is_gone() -> None:
    """An abort between plan and commit ends the request once; the neighbour goes on."""
    driver = Driver(options())
    other = request(2, [1, 2])
    driver.add(request(1, PROMPT), other)
    plan = driver.scheduler.plan()
    assert plan is not None
    driver.keep(driver.scheduler.abort([1], "gone"))
    driver.keep(driver.scheduler.commit(plan, driver.runner.run(plan)))
    assert len(driver.ids(2)) == 1
    driver.finish()
    driver.check_answer(other)
    assert len(driver.outputs[1]) == 1


@pytest.mark.parametrize(
    ("start_len", "num_steps"), [(None, 0), (-1, 0), (0, 3), (2, 3), (4, 3), (5, 0), (9, 0)]
)
def test_prefill_only(start_len: int | None, num_steps: int) -> None:
    """Without a token to make, steps run only for input log-probabilities."""
    driver = Driver(options(chunked_prefill_size=2))
    spec = None if start_len is None else LogprobSpec(start_len, 1)
    generate = request(1, PROMPT, max_new_tokens=0, logprobs=spec)
    driver.add(generate)
    driver.finish()
    assert len(driver.plans) in (num_steps, num_steps - 1 if num_steps else 0)
    driver.check_answer(generate)
    assert driver.last(1).finish == Finish("length", length=0)
    assert driver.scheduler.state()["num_finished"] == 1


def test_one_token_prompt_has_a_record_without_number() -> None:
    """The first prompt token has no distribution; it needs no step to say so."""
    driver = Driver(options())
    generate = request(1, [4], max_new_tokens=0, logprobs=LogprobSpec(0))
    driver.add(generate)
    assert driver.plans == []
    driver.check_answer(generate)


@pytest.mark.parametrize(
    ("settings", "prompt_len", "max_new_tokens", "code", "words"),
    [
        ({}, 0, 4, "invalid_value", "at least one"),
        ({"num_pages": 4}, 10, 8, "invalid_value", "need 5 KV pages of 4 tokens; the pool has 4"),
        ({"context_length": 10}, 10, 1, "context_length_exceeded", "at most 9"),
        ({"context_length": 10}, 11, 0, "context_length_exceeded", "at most 10"),
    ],
)
def test_refusal(
    settings: dict[str, Any], prompt_len: int, max_new_tokens: int, code: str, words: str
) -> None:
    """What can never run is refused with numbers, and the next request is served."""
    driver = Driver(options(**settings))
    driver.add(request(1, [1] * prompt_len, max_new_tokens=max_new_tokens))
    finish = driver.last(1).finish
    assert finish is not None
    assert (finish.type, finish.code) == ("error", code)
    assert words in (finish.message or "")
    assert not driver.scheduler.has_work
    good = request(2, [1, 2], max_new_tokens=3)
    driver.add(good)
    driver.finish()
    driver.check_answer(good)


def test_request_that_just_fits_the_pool_runs() -> None:
    """The last token of an answer needs no place: a pool of exactly the rest is enough."""
    driver = Driver(options(num_pages=4))
    generate = request(1, [1] * 10, max_new_tokens=7)
    driver.add(generate)
    driver.finish()
    driver.check_answer(generate)


def test_full_queue_is_an_overload() -> None:
    """Beyond running and queued requests the answer is `overloaded`, until one ends."""
    driver = Driver(options(max_running_requests=2, max_queued_requests=1))
    driver.add(*(request(uid, [uid], max_new_tokens=2) for uid in range(4)))
    finish = driver.last(3).finish
    assert finish is not None
    assert finish.code == "overloaded"
    driver.finish()
    late = request(9, [1])
    driver.add(late)
    driver.finish()
    driver.check_answer(late)
    assert driver.scheduler.state()["num_refused"] == 1


def test_unset_length_goes_to_the_end_of_the_context() -> None:
    """Without a number, and with one too large, the answer fills the context."""
    for max_new_tokens in (None, 500):
        driver = Driver(options(context_length=20))
        driver.add(request(1, PROMPT, max_new_tokens=max_new_tokens))
        driver.finish()
        assert driver.last(1).finish == Finish("length", length=15)


def test_state_counts_what_happens() -> None:
    """The counts name what runs, waits and is held, and what was done since the start."""
    driver = Driver(options(max_running_requests=1))
    driver.add(request(1, [1] * 8, max_new_tokens=3), request(2, [2], max_new_tokens=1))
    driver.step()
    assert driver.scheduler.state() == {
        "num_running": 1,
        "num_waiting": 1,
        "num_pages": 64,
        "num_free_pages": 62,
        "num_used_pages": 2,
        "num_cached_pages": 2,
        "num_steps": 1,
        "num_requests": 2,
        "num_refused": 0,
        "num_finished": 0,
        "num_aborted": 0,
        "num_errors": 0,
        "num_retractions": 0,
        "num_prompt_tokens": 8,
        "num_cached_tokens": 0,
        "num_generated_tokens": 1,
    }
    assert not driver.scheduler.flush_cache()
    driver.finish()
    state = driver.scheduler.state()
    assert (state["num_steps"], state["num_finished"]) == (4, 2)
    assert (state["num_prompt_tokens"], state["num_generated_tokens"]) == (9, 4)
