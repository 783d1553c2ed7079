"""Sampling against a naive reference, and what a row's token may depend on."""

import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.messages.params import SamplingParams
from headwater.messages.requests import LogprobSpec
from headwater.worker.sampling.logprobs import position_logprobs
from headwater.worker.sampling.noise import uniform
from headwater.worker.sampling.penalties import Penalties
from headwater.worker.sampling.sampler import Sampler
from headwater.worker.scheduler.plan import Row

MakeSampler = Callable[[], Sampler]


def make_row(
    ids: list[int] | None = None,
    *,
    prompt_len: int = 1,
    uid: int = 1,
    seed: int = 0,
    eos_ids: frozenset[int] = frozenset(),
    **params: Any,
) -> Row:
    """A row that samples after `ids`."""
    ids = [0] if ids is None else ids
    return Row(
        uid=uid,
        token_ids=ids,
        start=0,
        end=len(ids),
        pages=[],
        prompt_len=prompt_len,
        params=SamplingParams(**params),
        seed=seed,
        samples=True,
        eos_ids=eos_ids,
        logprobs=None,
        input_from=None,
    )


def reference(logits: list[float], params: SamplingParams) -> dict[int, float]:
    """The distribution that is sampled, token by token."""
    if params.is_greedy:
        return {logits.index(max(logits)): 1.0}
    top = max(logits)
    weights = [math.exp((x - top) / params.temperature) for x in logits]
    total = sum(weights)
    ranked = sorted(range(len(logits)), key=lambda i: (-weights[i], i))
    kept: dict[int, float] = {}
    before = 0.0
    best = weights[ranked[0]] / total
    for rank, i in enumerate(ranked):
        p = weights[i] / total
        is_out = (params.top_k != -1 and rank >= params.top_k) or p < params.min_p * best
        if rank == 0 or (not is_out and before < params.top_p and p > 0):
            kept[i] = p
        before += p
    scale = sum(kept.values())
    return {i: p / scale for i, p in kept.items()}


PARAMS: list[dict[str, Any]] = [
    {},
    {"temperature": 0.5},
    {"temperature": 2.0, "top_k": 3},
    {"top_p": 0.6},
    {"min_p": 0.3},
    {"top_k": 4, "top_p": 0.8, "min_p": 0.05},
    {"top_k": 1},
    {"temperature": 0.0},
    {"temperature": 0.01},
]
LOGITS = [
    [0.0, 1.0, 2.0, -1.0, 0.5, 2.0],
    [3.0, 3.0, 3.0, 3.0],
    [5.0, -float("inf"), 4.0, -float("inf"), 4.5],
    [0.0, 50.0, 0.0],
]


@pytest.mark.parametrize("params", PARAMS)
@pytest.mark.parametrize("logits", LOGITS)
def test_samples_follow_the_distribution(
    make_sampler: MakeSampler, logits: list[float], params: dict[str, Any]
) -> None:
    """Chi-square over 2,000 seeds, and never a token that the filters leave out."""
    # A mask is made by biases; the model's own logits are finite.
    biased = [max(x, -1e30) for x in logits]
    expected = reference(logits, SamplingParams(**params))
    rows = [make_row(seed=s, **params) for s in range(2000)]
    tensor = torch.tensor([biased] * len(rows))
    counts = Counter(make_sampler().sample(tensor, rows))
    assert set(counts) <= set(expected)
    chi = sum((counts[i] - 2000 * p) ** 2 / (2000 * p) for i, p in expected.items() if p > 1e-4)
    assert chi < 30  # 5 degrees of freedom: by chance once in 60,000; the seeds are fixed


def draw_slowly(logits: list[float], params: SamplingParams, share: float) -> int:
    """The id at which the reference's cumulative probability passes a share of its total."""
    expected = reference(logits, params)
    target = share * math.fsum(expected.values())
    seen = 0.0
    for token_id in sorted(expected):
        seen += expected[token_id]
        if seen > target:
            return token_id
    raise AssertionError("the share is not less than one")


FILTERS: list[dict[str, Any]] = [
    {"temperature": 0.8},
    {"top_p": 0.9},
    {"top_p": 0.01},
    {"min_p": 0.5},
    {"top_k": 2000},
    {"top_k": 20, "top_p": 0.95, "min_p": 0.02},
]


@pytest.mark.parametrize("scale", [0.0, 0.01, 1.0, 6.0])
def test_a_large_vocabulary_takes_the_same_tokens_as_the_whole_sort(
    make_sampler: MakeSampler, scale: float
) -> None:
    """Short cuts do not change one token: flat, nearly flat, usual and peaked logits."""
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(20_011, generator=generator) * scale
    rows = [make_row(seed=s, **params) for s, params in enumerate(FILTERS * 2)]
    picked = make_sampler().sample(logits.expand(len(rows), -1), rows)
    values = logits.tolist()
    assert picked == [draw_slowly(values, row.params, uniform(row.seed, 0)) for row in rows]


def test_ties_take_the_lower_id(make_sampler: MakeSampler) -> None:
    """Greedy, and the order in which equals are cut off."""
    logits = torch.tensor([[1.0, 7.0, 7.0, 7.0]])
    assert make_sampler().sample(logits, [make_row(temperature=0.0)]) == [1]
    picked = {make_sampler().sample(logits, [make_row(seed=s, top_k=2)])[0] for s in range(50)}
    assert picked == {1, 2}


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(0, len(PARAMS) - 1), min_size=2, max_size=6), st.integers(0, 99))
def test_a_row_does_not_know_its_neighbours(
    make_sampler: MakeSampler, kinds: list[int], seed: int
) -> None:
    """P3: the token is the same alone and in any company."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(len(kinds), 40, generator=generator)
    rows = [make_row(uid=i, seed=seed + i, **PARAMS[k]) for i, k in enumerate(kinds)]
    together = make_sampler().sample(logits, rows)
    alone = [make_sampler().sample(logits[i : i + 1], [row])[0] for i, row in enumerate(rows)]
    assert together == alone


def test_rows_of_a_real_vocabulary_do_not_know_their_neighbours(make_sampler: MakeSampler) -> None:
    """P3 where rows are long enough for blocks and wide instructions: tokens and logprobs.

    An odd size puts each row of the batch at another alignment.
    """
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(13, 50_257, generator=generator) * 4
    kinds = [*FILTERS, {"temperature": 0.0}]
    rows = [make_row(uid=i, seed=i, **kinds[i % len(kinds)]) for i in range(len(logits))]
    specs = [LogprobSpec(top_num=2, token_ids=[5])] * len(rows)
    together = make_sampler().sample(logits, rows)
    reports = position_logprobs(logits, list(range(len(rows))), specs)
    for i, row in enumerate(rows):
        alone = logits[i : i + 1].clone()
        assert make_sampler().sample(alone, [row]) == [together[i]]
        assert position_logprobs(alone, [i], specs[:1]) == [reports[i]]


def test_a_row_that_is_not_finite_fails_alone(make_sampler: MakeSampler) -> None:
    """NaN or infinity is that row's error only."""
    logits = torch.tensor([[1.0, 2.0], [float("nan"), 1.0], [float("inf"), 0.0], [3.0, 2.0]])
    rows = [make_row(uid=i, temperature=0.0) for i in range(4)]
    assert make_sampler().sample(logits, rows) == [1, None, None, 0]


def test_noise_is_a_fixed_function() -> None:
    """Golden values: a new release must not change seeded answers silently."""
    assert [uniform(s, i) for s, i in ((0, 0), (0, 1), (1, 0), (-1, 5))] == [
        0.6524484863740322,
        0.03401170130434639,
        0.36818951565166946,
        0.20852775745463303,
    ]
    values = [uniform(s, i) for s in range(50) for i in range(200)]
    assert all(0 <= value < 1 for value in values)
    assert len(set(values)) == len(values)
    buckets = Counter(int(value * 10) for value in values)
    assert sum((count - 1000) ** 2 / 1000 for count in buckets.values()) < 30


def naive_penalties(logits: list[float], row: Row) -> list[float]:
    """Penalties as documented, from the whole history."""
    params, out = row.params, list(logits)
    answer = Counter(row.token_ids[row.prompt_len :])
    for i in set(row.token_ids):
        by = params.repetition_penalty
        out[i] = out[i] / by if out[i] > 0 else out[i] * by
    for i, count in answer.items():
        out[i] -= params.frequency_penalty * count + params.presence_penalty
    for i, bias in params.logit_bias.items():
        out[i] += bias
    if len(row.token_ids) - row.prompt_len < params.min_new_tokens:
        for i in row.eos_ids:
            out[i] = -math.inf
    return out


@settings(deadline=None)
@given(
    st.lists(st.integers(0, 9), min_size=2, max_size=30),
    st.sampled_from([0.0, 0.7, -1.0]),
    st.sampled_from([0.0, 1.5]),
    st.sampled_from([1.0, 1.3, 0.6]),
)
def test_penalties_equal_the_naive_ones(
    ids: list[int], frequency: float, presence: float, repetition: float
) -> None:
    """Kept from step to step, and rebuilt at once as after a retraction."""
    params: dict[str, Any] = {
        "frequency_penalty": frequency,
        "presence_penalty": presence,
        "repetition_penalty": repetition,
        "logit_bias": {3: 2.5},
        "min_new_tokens": 4,
    }
    base = torch.linspace(-2, 2, 10)
    kept = Penalties()
    for length in range(2, len(ids) + 1):
        row = make_row(ids[:length], prompt_len=2, eos_ids=frozenset({7}), **params)
        stepwise, fresh = base.clone(), base.clone()
        kept.apply(stepwise.numpy(), row)
        Penalties().apply(fresh.numpy(), row)
        assert stepwise.tolist() == fresh.tolist()
        assert stepwise.tolist() == pytest.approx(naive_penalties(base.tolist(), row), abs=1e-5)


def test_tiny_repetition_penalties_leave_a_distribution(make_sampler: MakeSampler) -> None:
    """A logit divided by nearly zero would be infinite, and sampling it would end the process."""
    logits = torch.randn(5000, generator=torch.Generator().manual_seed(0)).unsqueeze(0) + 5
    for penalty in (1e-39, 1e-300, 5e-324):
        kinds: list[dict[str, Any]] = [{}, {"top_p": 0.9}, {"min_p": 0.1}, {"temperature": 0.0}]
        for params in kinds:
            row = make_row([1, 2], repetition_penalty=penalty, **params)
            picked = make_sampler().sample(logits, [row])
            assert picked[0] in (1, 2)
    assert bool(torch.isfinite(logits).all())


def test_end_tokens_outside_the_vocabulary_are_not_masked(make_sampler: MakeSampler) -> None:
    """Some models name end tokens that their output layer lacks; the others are masked."""
    row = make_row(eos_ids=frozenset({1, 77}), min_new_tokens=3, temperature=0.0)
    assert make_sampler().sample(torch.tensor([[1.0, 3.0, 2.0]]), [row]) == [2]


class WatchedIds(list[int]):
    """Ids that count how many of them are read."""

    num_read = 0

    def __getitem__(self, key: Any) -> Any:
        found = super().__getitem__(key)
        self.num_read += len(found) if isinstance(key, slice) else 1
        return found


def test_a_step_reads_new_tokens_only() -> None:
    """Penalties of a long answer cost no more reading than those of a short one."""
    ids, kept, logits = WatchedIds(i % 9 for i in range(500)), Penalties(), torch.zeros(10)
    kept.apply(logits.numpy(), make_row(ids, prompt_len=400, frequency_penalty=1.0))
    assert ids.num_read == 600  # the prompt once, the answer for both counts
    for token_id in range(50):
        ids.append(token_id % 9)
        kept.apply(logits.numpy(), make_row(ids, prompt_len=400, frequency_penalty=1.0))
    assert ids.num_read == 700


def test_forgotten_counts_are_gone() -> None:
    """What was counted for a request that ended does not stay in memory."""
    kept, logits = Penalties(), torch.zeros(4)
    kept.apply(logits.numpy(), make_row([0, 1, 1], uid=5, presence_penalty=1.0))
    assert logits.tolist() == [0.0, -1.0, 0.0, 0.0]
    kept.forget([5, 6])
    again = torch.zeros(4)
    kept.apply(again.numpy(), make_row([0, 2], uid=5, presence_penalty=1.0))
    assert again.tolist() == [0.0, 0.0, -1.0, 0.0]


def test_logprobs_are_those_of_the_model() -> None:
    """Against torch; alternatives best first with ties by id; picked ids in the order asked."""
    logits = torch.tensor([[0.0, 2.0, 2.0, 1.0], [5.0, 0.0, 0.0, 0.0]])
    spec = LogprobSpec(top_num=3, token_ids=[3, 0])
    first, second = position_logprobs(logits, [3, 0], [spec, LogprobSpec()])
    expected = torch.log_softmax(logits, dim=1)
    assert first.token == (expected[0, 3].item(), 3)
    assert first.top is not None
    assert [i for _, i in first.top] == [1, 2, 3]
    assert first.picked == [(expected[0, 3].item(), 3), (expected[0, 0].item(), 0)]
    assert second.top is None
    assert second.picked is None
