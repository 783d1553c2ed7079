"""Rows of logits to token ids, in plain PyTorch; the native operations do the same.

Order, as in SGLang: temperature, softmax, then top-k, top-p and min-p together on that one
distribution. Ties are broken by the lower id. What is left is sampled by inverting its cumulative
distribution, in the order of ids.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

__all__ = ["Pick", "pick_tokens"]

# Numbers that are worked on at once: 4 MB in float64, which caches hold. Larger blocks are slower.
_BLOCK = 1 << 19


@dataclass(slots=True, frozen=True, kw_only=True)
class Pick:
    """How a row's token is picked.

    Attributes:
        is_greedy: The most probable one; all other fields but `may_be_masked` are ignored.
        temperature: Above 0.
        top_k: Number of candidates, or -1 for all.
        top_p: Nucleus mass in (0, 1].
        min_p: Least probability relative to the best token.
        share: Uniform number in [0, 1).
        may_be_masked: Minus infinity is no fault of the model.
    """

    is_greedy: bool
    temperature: float = 1.0
    top_k: int = -1
    top_p: float = 1.0
    min_p: float = 0.0
    share: float = 0.0
    may_be_masked: bool = False

    @property
    def has_filter(self) -> bool:
        """True when not every token is a candidate."""
        return self.top_k != -1 or self.top_p != 1 or self.min_p != 0


def pick_tokens(logits: torch.Tensor, picks: Sequence[Pick]) -> list[int | None]:
    """Pick tokens.

    Args:
        logits: float32 [num_rows, vocab], not changed.
        picks: How.

    Returns:
        A token id for each row; None where logits are not numbers, or every token is masked.
    """
    is_good = _good_rows(logits, picks)
    picked: list[int | None] = [None] * len(picks)
    greedy = [i for i, pick in enumerate(picks) if is_good[i] and pick.is_greedy]
    drawn = [i for i, pick in enumerate(picks) if is_good[i] and not pick.is_greedy]
    for i, token_id in zip(greedy, _take(logits, greedy).argmax(dim=1).tolist(), strict=True):
        picked[i] = token_id
    num_at_once = max(_BLOCK // logits.shape[1], 1)
    for start in range(0, len(drawn), num_at_once):
        part = drawn[start : start + num_at_once]
        ids = _draw(_take(logits, part), [picks[i] for i in part])
        for i, token_id in zip(part, ids, strict=True):
            picked[i] = token_id
    return picked


def _good_rows(logits: torch.Tensor, picks: Sequence[Pick]) -> list[bool]:
    """Which rows have no NaN, no infinity but that of masks, and a token that is not masked."""
    # A sum shows them at a tenth of the price of a look at each number; but it can overflow.
    is_finite: list[bool] = torch.isfinite(logits.sum(dim=1)).tolist()
    return [good or _is_good(logits[i], picks[i]) for i, good in enumerate(is_finite)]


def _is_good(row: torch.Tensor, pick: Pick) -> bool:
    if not pick.may_be_masked:
        return bool(torch.isfinite(row).all())
    return bool((row < math.inf).all()) and row.max().item() > -math.inf


def _take(values: torch.Tensor, places: Sequence[int]) -> torch.Tensor:
    """Some rows of a matrix; all of them are not copied."""
    return values if len(places) == len(values) else values[torch.tensor(places, dtype=torch.int64)]


def _draw(logits: torch.Tensor, picks: Sequence[Pick]) -> list[int]:
    """Sample rows [num_rows, vocab], each with its own uniform number."""
    temperatures = torch.tensor([pick.temperature for pick in picks], dtype=torch.float64)
    # float64: the sum of 100,000 float32 numbers would depend on how they are added.
    probs = torch.softmax(logits.double() / temperatures[:, None], dim=1)
    picked = [0] * len(picks)
    plain = [i for i, pick in enumerate(picks) if not pick.has_filter]
    if plain:
        shares = torch.tensor([picks[i].share for i in plain], dtype=torch.float64)
        for i, token_id in zip(plain, _invert(_take(probs, plain), shares), strict=True):
            picked[i] = token_id
    for i, pick in enumerate(picks):
        if pick.has_filter:
            values = probs[i].numpy()
            kept = _kept_ids(values, pick)
            cumulative = np.cumsum(values[kept])
            place = np.searchsorted(cumulative, pick.share * cumulative[-1], side="right")
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


def _kept_ids(probs: NDArray[np.float64], pick: Pick) -> NDArray[np.int64]:
    """Ids that pass the filters, ascending.

    Only probabilities above a floor are sorted. Below it lies what min-p leaves out, and what top-p
    surely does: tokens of at most (1 - top_p) / vocab each weigh 1 - top_p together at most, so the
    others reach top_p without them. Half of that bound leaves room for rounding.
    """
    best = probs.max()
    least = max(pick.min_p * best, 0.5 * (1 - pick.top_p) / len(probs))
    ids = np.flatnonzero(probs >= max(least, np.finfo(np.float64).tiny))
    values = probs[ids]
    ranked = values
    if 0 < pick.top_k < len(values):
        ranked = np.partition(values, len(values) - pick.top_k)[len(values) - pick.top_k :]
    ranked = np.sort(ranked)[::-1]
    count = len(ranked)
    if pick.top_p < 1:
        # A token stays while those before it weigh less than top_p.
        count = min(count, int(np.searchsorted(np.cumsum(ranked), pick.top_p)) + 1)
    is_kept = values > ranked[count - 1]
    ties = np.flatnonzero(values == ranked[count - 1])
    is_kept[ties[: count - np.count_nonzero(is_kept)]] = True
    kept: NDArray[np.int64] = ids[is_kept]
    return kept
