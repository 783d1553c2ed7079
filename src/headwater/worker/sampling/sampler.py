"""Logits to token ids. A row's token depends on its own logits, parameters and seed alone."""

from collections.abc import Callable, Sequence

import numpy as np
import torch

from headwater.kernels import Pick, pick_tokens
from headwater.worker.sampling.noise import uniform
from headwater.worker.sampling.penalties import Penalties, changes_logits
from headwater.worker.scheduler.plan import Row

__all__ = ["Sampler"]

PickTokens = Callable[[torch.Tensor, Sequence[Pick]], list[int | None]]


class Sampler:
    """Picks one token for each row.

    Args:
        pick: Picks tokens of rows of logits, as `kernels.pick_tokens` does.
    """

    def __init__(self, pick: PickTokens = pick_tokens) -> None:
        self._pick = pick
        self._penalties = Penalties()

    def sample(self, logits: torch.Tensor, rows: Sequence[Row]) -> list[int | None]:
        """Pick tokens.

        Args:
            logits: float32 [num_rows, vocab] of the model, not changed.
            rows: What each of them belongs to.

        Returns:
            A token id for each row; None where logits are not finite, or every token is masked.
        """
        changed = [i for i, row in enumerate(rows) if changes_logits(row)]
        if not changed:
            return self._pick(logits, [_pick(row) for row in rows])
        picked: list[int | None] = [None] * len(rows)
        own = [i for i, row in enumerate(rows) if not changes_logits(row)]
        for i, token_id in zip(own, self._some(logits, rows, own), strict=True):
            picked[i] = token_id
        copies = logits[torch.tensor(changed)]
        is_finite = []
        for copy, i in zip(copies.numpy(), changed, strict=True):
            is_finite.append(bool(np.isfinite(copy).all()))
            self._penalties.apply(copy, rows[i])
        ids = self._pick(copies, [_pick(rows[i], may_be_masked=True) for i in changed])
        for i, token_id, good in zip(changed, ids, is_finite, strict=True):
            picked[i] = token_id if good else None
        return picked

    def forget(self, uids: Sequence[int]) -> None:
        """These requests have ended."""
        self._penalties.forget(uids)

    def _some(
        self, logits: torch.Tensor, rows: Sequence[Row], places: Sequence[int]
    ) -> list[int | None]:
        """Tokens of some of the rows."""
        if not places:
            return []
        return self._pick(logits[torch.tensor(places)], [_pick(rows[i]) for i in places])


def _pick(row: Row, *, may_be_masked: bool = False) -> Pick:
    params = row.params
    if params.is_greedy:
        return Pick(is_greedy=True, may_be_masked=may_be_masked)
    return Pick(
        is_greedy=False,
        temperature=params.temperature,
        top_k=params.top_k,
        top_p=params.top_p,
        min_p=params.min_p,
        share=uniform(row.seed, len(row.token_ids) - row.prompt_len),
        may_be_masked=may_be_masked,
    )
