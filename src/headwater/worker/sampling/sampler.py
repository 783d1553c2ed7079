"""Logits to token ids. A row's token depends on its own logits, parameters and seed alone.

Order, as in SGLang: temperature, softmax, then top-k, top-p and min-p together on that one
distribution. Ties are broken by the lower id.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from headwater.messages.params import SamplingParams
from headwater.worker.sampling.noise import uniform
from headwater.worker.sampling.penalties import Penalties, changes_logits
from headwater.worker.scheduler.plan import Row

__all__ = ["Sampler"]

# A top-p or min-p set is nearly always among this many best tokens; when it is not, all are sorted.
_NUM_CANDIDATES = 1024


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
            A token id for each row; None where logits are not finite.
        """
        is_finite = torch.isfinite(logits.sum(dim=1)).tolist()
        changed = [i for i, row in enumerate(rows) if changes_logits(row)]
        if changed:
            logits = logits.clone()
            for i in changed:
                self._penalties.apply(logits[i], rows[i])
        picked: list[int | None] = list(logits.argmax(dim=1).tolist())
        for i, row in enumerate(rows):
            if not is_finite[i]:
                picked[i] = None
            elif not row.params.is_greedy:
                picked[i] = _draw(logits[i], row)
        return picked

    def forget(self, uids: Sequence[int]) -> None:
        """These requests have ended."""
        self._penalties.forget(uids)


def _draw(logits: torch.Tensor, row: Row) -> int:
    """Sample one row: invert the cumulative distribution at the row's own uniform number."""
    params = row.params
    u = uniform(row.seed, len(row.token_ids) - row.prompt_len)
    # float64: the sum of 100,000 float32 numbers would depend on how they are added.
    probs = torch.softmax(logits.double() / params.temperature, dim=0)
    if params.top_k == -1 and params.top_p == 1 and params.min_p == 0:
        cumulative = probs.cumsum(0)
        index = int(torch.searchsorted(cumulative, u * cumulative[-1], right=True))
        # Rounding can lead past the end, or onto a masked token of probability zero behind it.
        return index if index < len(probs) and probs[index] > 0 else int(probs.argmax())
    ids, kept = _candidates(probs, params)
    cumulative_kept = np.cumsum(kept)
    index = int(np.searchsorted(cumulative_kept, u * cumulative_kept[-1], side="right"))
    return int(ids[min(index, len(ids) - 1)])


def _candidates(
    probs: torch.Tensor, params: SamplingParams
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Tokens that pass the filters and their probabilities, best first."""
    count = len(probs) if params.top_k == -1 else min(params.top_k, len(probs))
    ids, values = _best(probs, min(count, _NUM_CANDIDATES))
    is_partial = len(ids) < count
    if is_partial and not _is_complete(values, params):
        ids, values = _best(probs, count)
    before = np.cumsum(values) - values
    keep = (before < params.top_p) & (values >= params.min_p * values[0]) & (values > 0)
    keep[0] = True
    return ids[keep], values[keep]


def _is_complete(values: NDArray[np.float64], params: SamplingParams) -> bool:
    """Whether no token behind these best ones can pass the filters."""
    return bool(values.sum() >= params.top_p or values[-1] < params.min_p * values[0])


def _best(probs: torch.Tensor, count: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The `count` most likely tokens, best first, the lower id first among equals."""
    if count < len(probs):
        # Everything above the smallest value that belongs to them, then ties by id.
        floor = torch.topk(probs, count, sorted=True).values[-1]
        ids = torch.nonzero(probs >= floor).squeeze(1).numpy()
    else:
        ids = np.arange(len(probs))
    values = probs.numpy()[ids]
    order = np.lexsort((ids, -values))[:count]
    return ids[order], values[order]
