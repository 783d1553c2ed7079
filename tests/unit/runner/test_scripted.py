"""The scripted runner: what it emits, row by row, and behind the real scheduler."""

import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import pytest

from headwater.errors import ModelLoadError
from headwater.messages.params import SamplingParams
from headwater.messages.requests import Generate, LogprobSpec
from headwater.worker.runner.scripted import Script, ScriptedRunner
from headwater.worker.scheduler.plan import Row, RowResult, StepPlan
from headwater.worker.scheduler.scheduler import Scheduler, SchedulerOptions

VOCAB, EOS, START, END, FAULT, CRASH = 40, 30, 31, 32, 33, 34
CONFIG = {
    "vocab_size": VOCAB,
    "eos_token_id": EOS,
    "script_start_id": START,
    "script_end_id": END,
    "fault_id": FAULT,
    "crash_id": CRASH,
}


def make_row(prompt: Sequence[int], answer: Sequence[int] = (), **fields: Any) -> Row:
    """A row that computes everything and samples, unless told otherwise."""
    params = SamplingParams(**fields.pop("params", {}))
    ids = [*prompt, *answer]
    values: dict[str, Any] = {
        "uid": 1,
        "token_ids": ids,
        "start": 0,
        "end": len(ids),
        "pages": [],
        "prompt_len": len(prompt),
        "params": params,
        "seed": 0,
        "samples": True,
        "eos_ids": frozenset({EOS}),
        "logprobs": None,
        "input_from": None,
        **fields,
    }
    return Row(**values)


def run_row(row: Row) -> RowResult:
    """One row in a runner of its own."""
    (result,) = ScriptedRunner(Script.from_config(CONFIG)).run(StepPlan([row])).rows
    return result


def answer(prompt: Sequence[int], count: int, **fields: Any) -> list[int]:
    """The first tokens of an answer, each from a fresh runner, as after a retraction."""
    ids: list[int] = []
    while len(ids) < count:
        token_id = run_row(make_row(prompt, ids, **fields)).token_id
        assert token_id is not None
        ids.append(token_id)
    return ids


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ([1, START, 5, 6, 7, END, 2], [5, 6, 7, EOS, EOS]),
        ([START, 5, 6], [5, 6, EOS, EOS]),  # no end: to the prompt's end
        ([START, 5, END, START, 6, 7, END], [6, 7, EOS]),  # the last script counts
        ([END, START, 5, END, 9, END], [5, EOS]),  # up to the next end
        ([START, END], [EOS, EOS]),
        ([START], [EOS]),
        ([START, EOS, 5, END], [EOS, 5, EOS]),  # an end token in the script is said
        ([4, 5, 6], [4, 5, 6, 4, 5, 6, 4]),  # no script: the prompt, over and over
        ([4], [4, 4, 4]),
        ([4, END], [4, END, 4]),
    ],
)
def test_scripts_and_echoes(prompt: list[int], expected: list[int]) -> None:
    """What the prompt says is emitted, and then the end for ever; else the prompt is echoed."""
    assert answer(prompt, len(expected)) == expected


def test_an_end_token_is_masked_while_the_answer_is_short() -> None:
    """`min_new_tokens` holds as for a real model: another token comes instead."""
    params = {"min_new_tokens": 3}
    assert answer([START, 5, END], 5, params=params) == [5, 0, 0, EOS, EOS]
    stops = frozenset({EOS, 0, 5})
    assert answer([START, 5, END], 4, params=params, eos_ids=stops) == [1, 1, 1, EOS]


def test_rows_of_a_step_are_apart_and_inner_chunks_sample_nothing() -> None:
    """Each row has its own script; a chunk without the prompt's end has no token."""
    runner = ScriptedRunner(Script.from_config(CONFIG))
    rows = [
        make_row([START, 5, END], uid=1),
        make_row([7, 8], [7], uid=2),
        make_row([9, 9, 9], uid=3, end=2, samples=False),
        make_row([START, FAULT, END], uid=4),
    ]
    results = runner.run(StepPlan(rows)).rows
    assert [result.token_id for result in results] == [5, 8, None, None]
    assert [result.error is not None for result in results] == [False, False, False, True]


def test_a_number_that_is_used_again_is_a_new_request() -> None:
    """After `forget`, nothing is known of the request that had this number."""
    runner = ScriptedRunner(Script.from_config(CONFIG))
    assert runner.run(StepPlan([make_row([START, 5, END])])).rows[0].token_id == 5
    runner.forget([1, 77])
    assert runner.run(StepPlan([make_row([START, 6, END])])).rows[0].token_id == 6


def test_a_crash_ends_the_process() -> None:
    """With its own exit code, so that a supervisor's test can tell it from a bug."""
    code = (
        "from tests.unit.runner.test_scripted import make_row, run_row, START, CRASH, END\n"
        "run_row(make_row([START, CRASH, END]))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True)
    assert (done.returncode, done.stderr) == (3, b"")


def test_log_probabilities_obey_the_rules_of_real_ones() -> None:
    """Never above 0, best first, the token itself on top, and one number for one id."""
    spec = LogprobSpec(top_num=5, token_ids=[6, 5, 39])
    result = run_row(make_row([START, 5, END], logprobs=spec))
    assert result.logprobs is not None
    logprob, token_id = result.logprobs.token
    top, picked = result.logprobs.top, result.logprobs.picked
    assert token_id == 5
    assert top is not None
    assert picked is not None
    assert top[0] == (logprob, 5)
    assert len({i for _, i in top}) == 5
    values = [value for value, _ in top]
    assert values == sorted(values, reverse=True)
    assert all(value <= 0 for value in values)
    assert [i for _, i in picked] == [6, 5, 39]
    both = {i: value for value, i in top}
    assert all(both.get(i, value) == value for value, i in picked)
    bare = run_row(make_row([START, 5, END], logprobs=LogprobSpec())).logprobs
    assert bare is not None
    assert (bare.top, bare.picked) == (None, None)  # as a real model reports nothing


def test_log_probabilities_of_the_prompt_by_chunks() -> None:
    """Each position once: those of a chunk and the one after it, never past the prompt."""
    prompt = [10, 11, 12, 13, 14]
    spec = LogprobSpec(start_len=1)

    def positions(start: int, end: int, first: int | None) -> list[int] | None:
        row = make_row(
            prompt, start=start, end=end, samples=end == 5, logprobs=spec, input_from=first
        )
        found = run_row(row).input_logprobs
        return None if found is None else [position.token[1] for position in found]

    assert positions(0, 2, 1) == [11, 12]
    assert positions(2, 4, 3) == [13, 14]
    assert positions(4, 5, None) is None
    assert positions(0, 5, 1) == [11, 12, 13, 14]
    assert positions(0, 5, 3) == [13, 14]


def test_behind_the_scheduler() -> None:
    """Scripts run to their end, in company, chunks and a small pool."""
    scripts = {uid: [(uid * 7 + i) % 29 for i in range(10 + uid)] for uid in range(1, 7)}
    options = SchedulerOptions(
        num_pages=14,
        page_size=4,
        context_length=200,
        eos_token_ids=frozenset({EOS}),
        chunked_prefill_size=5,
    )
    scheduler, runner = Scheduler(options), ScriptedRunner(Script.from_config(CONFIG))
    for uid, script in scripts.items():
        scheduler.add(Generate(uid, "", [START, *script, END], SamplingParams(max_new_tokens=20)))
    answers: dict[int, list[int]] = {uid: [] for uid in scripts}
    finishes: dict[int, str] = {}
    while (plan := scheduler.plan()) is not None:
        for output in scheduler.commit(plan, runner.run(plan)):
            answers[output.uid] += output.ids
            if output.finish is not None:
                finishes[output.uid] = output.finish.type
    assert answers == {uid: [*script, EOS] for uid, script in scripts.items()}
    assert set(finishes.values()) == {"stop"}
    assert scheduler.state()["num_retractions"] > 0


@pytest.mark.parametrize("key", ["vocab_size", "eos_token_id", "script_start_id", "script_end_id"])
def test_a_missing_field_is_named(key: str) -> None:
    """A scripted model's config says what it lacks."""
    with pytest.raises(ModelLoadError, match=key):
        Script.from_config({k: v for k, v in CONFIG.items() if k != key})
