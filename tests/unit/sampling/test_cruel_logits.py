"""Sampling of logits that no sane model gives, and of rows whose every token is masked."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.messages.params import SamplingParams
from headwater.worker.sampling.noise import uniform
from tests.unit.sampling.test_sampler import MakeSampler, draw_slowly, make_row, reference

HUGE = 3e38
KINDS: list[dict[str, Any]] = [{}, {"temperature": 0.0}, {"top_p": 0.9}, {"min_p": 0.5, "top_k": 3}]


@settings(deadline=None, max_examples=300)
@given(
    st.lists(st.sampled_from([0.0, 1.0, 2.5, -7.0, 88.0, -88.0, 1e30, -1e30]), min_size=1),
    st.sampled_from([1e-5, 0.3, 1.0, 50.0]),
    st.sampled_from([-1, 1, 2, 5, 1000]),
    st.sampled_from([1.0, 0.9113, 0.3717, 1e-9]),
    st.sampled_from([0.0, 1e-9, 0.2113, 1.0]),
    st.integers(0, 2**63 - 1),
)
def test_ties_and_extremes(
    make_sampler: MakeSampler,
    logits: list[float],
    temperature: float,
    top_k: int,
    top_p: float,
    min_p: float,
    seed: int,
) -> None:
    """The very token of the naive reference, with every combination of filters."""
    fields: dict[str, Any] = {
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "min_p": min_p,
    }
    (picked,) = make_sampler().sample(torch.tensor([logits]), [make_row(seed=seed, **fields)])
    params = SamplingParams(**fields)
    if params.is_greedy:
        assert picked == next(iter(reference(logits, params)))
    else:
        assert picked == draw_slowly(logits, params, uniform(seed, 0))


@pytest.mark.parametrize("params", KINDS, ids=str)
def test_large_numbers_are_numbers(make_sampler: MakeSampler, params: dict[str, Any]) -> None:
    """Logits whose sum does not fit into a float32 are finite all the same."""
    logits = torch.tensor([[HUGE, 0.0, HUGE, HUGE], [-HUGE, -HUGE, -HUGE, 0.0]])
    first, second = make_sampler().sample(logits, [make_row(uid=i, **params) for i in range(2)])
    assert first in (0, 2, 3)
    assert second == 3


@pytest.mark.parametrize("params", KINDS, ids=str)
def test_a_row_without_any_token_fails_alone(
    make_sampler: MakeSampler, params: dict[str, Any]
) -> None:
    """When every token is an end token that is masked, there is nothing to take."""
    logits = torch.tensor([[1.0, 2.0], [1.0, 2.0]])
    masked = make_row(uid=0, eos_ids=frozenset({0, 1}), min_new_tokens=3, **params)
    other = make_row(uid=1, temperature=0.0)
    assert make_sampler().sample(logits, [masked, other]) == [None, 1]


@pytest.mark.parametrize("position", [0, 1, 2])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("params", KINDS, ids=str)
def test_one_number_spoils_its_row_only(
    make_sampler: MakeSampler, params: dict[str, Any], value: float, position: int
) -> None:
    """Wherever it stands, with penalties or without, and whatever the neighbours do."""
    logits = torch.tensor([[0.0, 5.0, 1.0]] * 4)
    logits[1, position] = value
    rows = [make_row(uid=i, repetition_penalty=1 + i % 2, **params) for i in range(4)]
    picked = make_sampler().sample(logits, rows)
    good = [0, 2, 3]
    assert picked[1] is None
    assert [picked[i] for i in good] == make_sampler().sample(logits[good], [rows[i] for i in good])
    assert None not in [picked[i] for i in good]


def test_the_logits_of_the_model_are_not_changed(make_sampler: MakeSampler) -> None:
    """They are reported as log-probabilities afterwards."""
    logits = torch.tensor([[0.0, 5.0, 1.0]] * 2)
    before = logits.clone()
    rows = [make_row(uid=1, logit_bias={1: -100.0}), make_row(uid=2, repetition_penalty=2.0)]
    make_sampler().sample(logits, rows)
    assert torch.equal(logits, before)
