"""A runner without a model, and what it must answer, computed alone from the same rule.

The "model" is a hash chain: the state after a token depends on all tokens before it. The fake pool
keeps the state of every position in its page slot, and a row is computed from those slots only, so
a page that is lost, shared wrongly or overwritten changes the answer or fails an assertion.
"""

from dataclasses import dataclass, field
from typing import Any

from headwater.messages.params import SamplingParams
from headwater.messages.requests import Generate, LogprobSpec
from headwater.messages.tokens import Finish, PositionLogprobs, TokenOutput
from headwater.worker.scheduler.plan import Row, RowResult, StepPlan, StepResult
from headwater.worker.scheduler.scheduler import Scheduler, SchedulerOptions

VOCAB = 40
EOS = 3
_MODULUS = (1 << 61) - 1


def advance(state: int, token_id: int) -> int:
    """The state after one more token."""
    return (state * 6364136223846793005 + token_id * 1442695040888963407 + 12345) % _MODULUS


def sample(state: int, seed: int, index: int, masked: frozenset[int]) -> int:
    """Token `index` of an answer: a function of history, seed and index alone."""
    token_id = ((state ^ (seed * 7919 + index)) >> 7) % VOCAB
    while token_id in masked:
        token_id = (token_id + 1) % VOCAB
    return token_id


def record(state: int, token_id: int, spec: LogprobSpec) -> PositionLogprobs:
    """The log-probabilities of a token that follows `state`."""
    top = [(-(state % (97 + i)) / 7, i) for i in range(spec.top_num)]
    picked = [(-(state % (89 + i)) / 5, i) for i in spec.token_ids]
    return PositionLogprobs((-(state % 101) / 3 - token_id, token_id), top, picked)


class FakeRunner:
    """Runs plans on a pool of page slots.

    Attributes:
        num_computed: Tokens computed so far.
        fault_uids: Requests whose next row fails.
    """

    def __init__(self, page_size: int) -> None:
        self._page_size = page_size
        self._slots: dict[int, tuple[int, int]] = {}
        self.num_computed = 0
        self.fault_uids: set[int] = set()

    def run(self, plan: StepPlan) -> StepResult:
        """Compute all rows; every row reads what it needs from its pages."""
        assert plan.rows
        assert len({row.uid for row in plan.rows}) == len(plan.rows)
        return StepResult([self._run_row(row) for row in plan.rows])

    def _slot(self, row: Row, position: int) -> int:
        page = row.pages[position // self._page_size]
        return page * self._page_size + position % self._page_size

    def _run_row(self, row: Row) -> RowResult:
        assert 0 <= row.start < row.end <= len(row.token_ids)
        self.num_computed += row.end - row.start
        states, state = [], 0
        for position in range(row.end):
            state = advance(state, row.token_ids[position])
            states.append(state)
            if position < row.start:
                held = self._slots[self._slot(row, position)]
                assert held == (position, state), f"{row.uid}: wrong page at {position}"
        for position in range(row.start, row.end):
            self._slots[self._slot(row, position)] = (position, states[position])
        if row.uid in self.fault_uids:
            return RowResult(None, error="the logits are not finite")
        return self._result(row, states)

    def _result(self, row: Row, states: list[int]) -> RowResult:
        inputs = None
        if row.input_from is not None:
            assert row.start < row.input_from <= row.end
            assert row.logprobs is not None
            inputs = [
                record(states[p - 1], row.token_ids[p], row.logprobs)
                for p in range(row.input_from, min(row.end + 1, row.prompt_len))
            ]
        if not row.samples:
            return RowResult(None, input_logprobs=inputs)
        index = row.end - row.prompt_len
        masked = row.eos_ids if index < row.params.min_new_tokens else frozenset[int]()
        token_id = sample(states[-1], row.seed, index, masked)
        logprobs = record(states[-1], token_id, row.logprobs) if row.logprobs else None
        return RowResult(token_id, logprobs, inputs)


@dataclass
class Expected:
    """What a request must give, whatever else happens."""

    ids: list[int] = field(default_factory=list)
    finish: Finish | None = None
    inputs: list[PositionLogprobs] | None = None
    outputs: list[PositionLogprobs] | None = None


def expect(generate: Generate) -> Expected:
    """Answer a request alone, straight from the rule."""
    params, spec = generate.params, generate.logprobs
    ids, expected, states = list(generate.prompt_ids), Expected(), [0]
    for token_id in ids:
        states.append(advance(states[-1], token_id))
    if spec is not None:
        expected.outputs = []
        if spec.start_len >= 0:
            expected.inputs = [
                record(states[p], ids[p], spec) if p else PositionLogprobs((None, ids[0]))
                for p in range(spec.start_len, len(ids))
            ]
    stop_ids = frozenset(params.stop_token_ids) | ({EOS} if not params.ignore_eos else set())
    state = states[-1]
    assert params.max_new_tokens is not None
    while len(expected.ids) < params.max_new_tokens:
        masked = stop_ids if len(expected.ids) < params.min_new_tokens else frozenset[int]()
        token_id = sample(state, params.sampling_seed or 0, len(expected.ids), masked)
        if expected.outputs is not None and spec is not None:
            expected.outputs.append(record(state, token_id, spec))
        expected.ids.append(token_id)
        state = advance(state, token_id)
        if token_id in stop_ids:
            expected.finish = Finish("stop", matched=token_id)
            return expected
    expected.finish = Finish("length", length=params.max_new_tokens)
    return expected


def request(uid: int, prompt_ids: list[int], **fields: Any) -> Generate:
    """A request; `logprobs`, `stream` and `cache_salt` belong to it, the rest to its parameters."""
    own = {key: fields.pop(key) for key in ("logprobs", "stream", "cache_salt") if key in fields}
    values = {"max_new_tokens": 8, "sampling_seed": uid, "ignore_eos": True, **fields}
    return Generate(uid, f"r{uid}", prompt_ids, SamplingParams(**values), **own)


def options(**fields: Any) -> SchedulerOptions:
    """Small settings for tests."""
    values: dict[str, Any] = {
        "num_pages": 64,
        "page_size": 4,
        "context_length": 1000,
        "eos_token_ids": frozenset({EOS}),
        "max_running_requests": 8,
        "chunked_prefill_size": 16,
        **fields,
    }
    return SchedulerOptions(**values)


class Driver:
    """A scheduler and its runner, with all outputs folded and checked as they come.

    Attributes:
        outputs: All outputs of each request, in order.
        plans: Every plan that ran, as (uid, start, end) of its rows.
        is_checked: Check the integrity after every event.
    """

    def __init__(self, settings: SchedulerOptions) -> None:
        self.scheduler = Scheduler(settings)
        self.runner = FakeRunner(settings.page_size)
        self.outputs: dict[int, list[TokenOutput]] = {}
        self.plans: list[list[tuple[int, int, int]]] = []
        self.is_checked = True

    def keep(self, outputs: list[TokenOutput]) -> None:
        """Fold outputs; nothing may come after a finish, and only the first opens."""
        for output in outputs:
            earlier = self.outputs.setdefault(output.uid, [])
            assert not earlier or earlier[-1].finish is None, "an output after the last one"
            assert (output.opening is None) == bool(earlier), "not exactly one opening, first"
            earlier.append(output)
        if self.is_checked:
            self.scheduler.check_integrity()

    def add(self, *requests: Generate) -> None:
        """Add requests."""
        for generate in requests:
            self.keep(self.scheduler.add(generate))

    def step(self) -> bool:
        """Plan, run, commit; False when there was nothing to do."""
        plan = self.scheduler.plan()
        if plan is None:
            assert not self.scheduler.has_work
            return False
        self.plans.append([(row.uid, row.start, row.end) for row in plan.rows])
        result = self.runner.run(plan)
        self.keep(self.scheduler.commit(plan, result))
        return True

    def finish(self, max_steps: int = 5000) -> None:
        """Step until nothing is left; the pool must be whole then."""
        for _ in range(max_steps):
            if not self.step():
                break
        else:
            raise AssertionError("the scheduler does not come to an end")
        assert self.scheduler.flush_cache()
        self.scheduler.check_integrity()
        state = self.scheduler.state()
        assert (state["num_used_pages"], state["num_cached_pages"]) == (0, 0)
        assert state["num_free_pages"] == state["num_pages"]

    def ids(self, uid: int) -> list[int]:
        """The answer's ids so far."""
        return [token_id for output in self.outputs.get(uid, []) for token_id in output.ids]

    def last(self, uid: int) -> TokenOutput:
        """The latest output."""
        return self.outputs[uid][-1]

    def check_answer(self, generate: Generate) -> None:
        """A finished request gave what it gives alone: ids, finish and every record."""
        outputs, expected = self.outputs[generate.uid], expect(generate)
        assert self.ids(generate.uid) == expected.ids
        assert outputs[-1].finish == expected.finish
        assert all(output.finish is None for output in outputs[:-1])
        if expected.outputs is None:
            assert all(output.output_logprobs is None for output in outputs)
        else:
            records = [r for output in outputs for r in output.output_logprobs or []]
            assert records == expected.outputs
            assert all(len(o.ids) == len(o.output_logprobs or []) for o in outputs)
        inputs = outputs[0].input_logprobs
        assert (None if inputs is None else inputs.positions) == expected.inputs
        assert all(output.input_logprobs is None for output in outputs[1:])
