"""Sampling against a naive reference, and what a row's token may depend on."""

import math
from collections import Counter
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
def test_samples_follow_the_distribution(logits: list[float], params: dict[str, Any]) -> None:
    """Chi-square over 2,000 seeds, and never a token that the filters leave out."""
    # A mask is made by biases; the model's own logits are finite.
    biased = [max(x, -1e30) for x in logits]
    expected = reference(logits, SamplingParams(**params))
    rows = [make_row(seed=s, **params) for s in range(2000)]
    tensor = torch.tensor([biased] * len(rows))
    counts = Counter(Sampler().sample(tensor, rows))
    assert set(counts) <= set(expected)
    chi = sum((counts[i] - 2000 * p) ** 2 / (2000 * p) for i, p in expected.items() if p > 1e-4)
    assert chi < 30  # 5 degrees of freedom: by chance once in 60,000; the seeds are fixed


def test_a_large_vocabulary_takes_the_same_tokens_as_the_whole_sort() -> None:
    """The candidates' short cut does not change the set: nearly flat and peaked logits."""
    generator = torch.Generator().manual_seed(3)
    for scale in (0.01, 1.0, 6.0):
        logits = torch.randn(50_000, generator=generator) * scale
        for params in ({"top_p": 0.9}, {"min_p": 0.5}, {"top_k": 2000}, {"top_p": 0.01}):
            expected = reference(logits.tolist(), SamplingParams(**params))
            rows = [make_row(seed=s, **params) for s in range(40)]
            picked = Sampler().sample(logits.expand(40, -1), rows)
            assert set(picked) <= set(expected)


def test_ties_take_the_lower_id() -> None:
    """Greedy, and the order in which equals are cut off."""
    logits = torch.tensor([[1.0, 7.0, 7.0, 7.0]])
    assert Sampler().sample(logits, [make_row(temperature=0.0)]) == [1]
    picked = {Sampler().sample(logits, [make_row(seed=s, top_k=2)])[0] for s in range(50)}
    assert picked == {1, 2}


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(0, len(PARAMS) - 1), min_size=2, max_size=6), st.integers(0, 99))
def test_a_row_does_not_know_its_neighbours(kinds: list[int], seed: int) -> None:
    """P3: the token is the same alone and in any company."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(len(kinds), 40, generator=generator)
    rows = [make_row(uid=i, seed=seed + i, **PARAMS[k]) for i, k in enumerate(kinds)]
    together = Sampler().sample(logits, rows)
    alone = [Sampler().sample(logits[i : i + 1], [row])[0] for i, row in enumerate(rows)]
    assert together == alone


def test_a_row_that_is_not_finite_fails_alone() -> None:
    """NaN or infinity is that row's error only."""
    logits = torch.tensor([[1.0, 2.0], [float("nan"), 1.0], [float("inf"), 0.0], [3.0, 2.0]])
    rows = [make_row(uid=i, temperature=0.0) for i in range(4)]
    assert Sampler().sample(logits, rows) == [1, None, None, 0]


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
    params = {
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
        kept.apply(stepwise, row)
        Penalties().apply(fresh, row)
        assert stepwise.tolist() == fresh.tolist()
        assert stepwise.tolist() == pytest.approx(naive_penalties(base.tolist(), row), abs=1e-5)


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
