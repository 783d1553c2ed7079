"""Logits to token ids. A row's token depends on its own logits, parameters and seed alone.

Order, as in SGLang: temperature, softmax, then top-k, top-p and min-p together on that one
distribution. Ties are broken by the lower id. What is left is sampled by inverting its cumulative
distribution, in the order of ids.
"""

import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from headwater.messages.params import SamplingParams
from headwater.worker.sampling.noise import uniform
from headwater.worker.sampling.penalties import Penalties, changes_logits
from headwater.worker.scheduler.plan import Row

__all__ = ["Sampler"]

# Numbers that are worked on at once: 4 MB in float64, which caches hold. Larger blocks are slower.
_BLOCK = 1 << 19


class Sampler:
    """Picks one token for each row."""

    def __init__(self) -> None:
        self._penalties = Penalties()

    def sample(self, logits: torch.Tensor, rows: Sequence[Row]) -> list[int | None]:
        """Pick tokens.

        Args:
            logits: float32 [num_rows, vocab] of the model, not changed.
            rows: What each of them belongs to.

        Returns:
            A token id for each row; None where logits are not finite, or every token is masked.
        """
        is_good = _finite_rows(logits)
        changed = [i for i, row in enumerate(rows) if is_good[i] and changes_logits(row)]
        if changed:
            logits = logits.clone()
            for i in changed:
                self._penalties.apply(logits[i], rows[i])
                is_good[i] = logits[i].max().item() > -math.inf
        picked: list[int | None] = [None] * len(rows)
        greedy = [i for i, row in enumerate(rows) if is_good[i] and row.params.is_greedy]
        drawn = [i for i, row in enumerate(rows) if is_good[i] and not row.params.is_greedy]
        for i, token_id in zip(greedy, _take(logits, greedy).argmax(dim=1).tolist(), strict=True):
            picked[i] = token_id
        num_at_once = max(_BLOCK // logits.shape[1], 1)
        for start in range(0, len(drawn), num_at_once):
            part = drawn[start : start + num_at_once]
            ids = _draw(_take(logits, part), [rows[i] for i in part])
            for i, token_id in zip(part, ids, strict=True):
                picked[i] = token_id
        return picked

    def forget(self, uids: Sequence[int]) -> None:
        """These requests have ended."""
        self._penalties.forget(uids)


def _finite_rows(logits: torch.Tensor) -> list[bool]:
    """Which rows have no NaN and no infinity."""
    # A sum shows them at a tenth of the price of a look at each number; but it can overflow.
    is_finite: list[bool] = torch.isfinite(logits.sum(dim=1)).tolist()
    return [good or bool(torch.isfinite(logits[i]).all()) for i, good in enumerate(is_finite)]


def _take(values: torch.Tensor, places: Sequence[int]) -> torch.Tensor:
    """Some rows of a matrix; all of them are not copied."""
    return values if len(places) == len(values) else values[torch.tensor(places, dtype=torch.int64)]


def _has_filter(params: SamplingParams) -> bool:
    return params.top_k != -1 or params.top_p != 1 or params.min_p != 0


def _draw(logits: torch.Tensor, rows: Sequence[Row]) -> list[int]:
    """Sample rows [num_rows, vocab], each with its own uniform number."""
    noise = [uniform(row.seed, len(row.token_ids) - row.prompt_len) for row in rows]
    temperatures = torch.tensor([row.params.temperature for row in rows], dtype=torch.float64)
    # float64: the sum of 100,000 float32 numbers would depend on how they are added.
    probs = torch.softmax(logits.double() / temperatures[:, None], dim=1)
    picked = [0] * len(rows)
    plain = [i for i, row in enumerate(rows) if not _has_filter(row.params)]
    if plain:
        shares = torch.tensor([noise[i] for i in plain], dtype=torch.float64)
        for i, token_id in zip(plain, _invert(_take(probs, plain), shares), strict=True):
            picked[i] = token_id
    for i, row in enumerate(rows):
        if _has_filter(row.params):
            values = probs[i].numpy()
            kept = _kept_ids(values, row.params)
            cumulative = np.cumsum(values[kept])
            place = np.searchsorted(cumulative, noise[i] * cumulative[-1], side="right")
            picked[i] = int(kept[place])
    return picked


def _invert(probs: torch.Tensor, shares: torch.Tensor) -> list[int]:
    """The id at which each row's cumulative probability passes its share [num_rows].

    There always is one: a share is at most 1 - 2**-53, and the total times that rounds to less than
    the total. It has a probability, because the sum grows with it.
    """
    cumulative = probs.cumsum(dim=1)
    targets = shares * cumulative[:, -1]
    ids = torch.searchsorted(cumulative, targets[:, None], right=True)
    return [int(token_id) for token_id in ids[:, 0].tolist()]


def _kept_ids(probs: NDArray[np.float64], params: SamplingParams) -> NDArray[np.int64]:
    """Ids that pass the filters, ascending.

    Only probabilities above a floor are sorted. Below it lies what min-p leaves out, and what top-p
    surely does: tokens of at most (1 - top_p) / vocab each weigh 1 - top_p together at most, so the
    others reach top_p without them. Half of that bound leaves room for rounding.
    """
    best = probs.max()
    least = max(params.min_p * best, 0.5 * (1 - params.top_p) / len(probs))
    ids = np.flatnonzero(probs >= max(least, np.finfo(np.float64).tiny))
    values = probs[ids]
    ranked = values
    if 0 < params.top_k < len(values):
        ranked = np.partition(values, len(values) - params.top_k)[len(values) - params.top_k :]
    ranked = np.sort(ranked)[::-1]
    count = len(ranked)
    if params.top_p < 1:
        # A token stays while those before it weigh less than top_p.
        count = min(count, int(np.searchsorted(np.cumsum(ranked), params.top_p)) + 1)
    is_kept = values > ranked[count - 1]
    ties = np.flatnonzero(values == ranked[count - 1])
    is_kept[ties[: count - np.count_nonzero(is_kept)]] = True
    kept: NDArray[np.int64] = ids[is_kept]
    return kept
