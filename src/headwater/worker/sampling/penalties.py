"""Changes to logits before sampling: penalties, biases, masked end tokens.

Counts are kept from step to step, so a long answer costs no more per token than a short one; they
follow from the request's ids alone, so a retracted request finds the same counts again.
"""

from collections import Counter
from collections.abc import Sequence

import torch

from headwater.messages.params import SamplingParams
from headwater.worker.scheduler.plan import Row

__all__ = ["Penalties", "changes_logits"]


def changes_logits(row: Row) -> bool:
    """True when a row's logits are not the model's own."""
    index = len(row.token_ids) - row.prompt_len
    return (
        _has_penalty(row.params)
        or bool(row.params.logit_bias)
        or (index < row.params.min_new_tokens and bool(row.eos_ids))
    )


def _has_penalty(params: SamplingParams) -> bool:
    return (
        params.frequency_penalty != 0
        or params.presence_penalty != 0
        or params.repetition_penalty != 1
    )


class _Counts:
    """Tokens of one request so far."""

    __slots__ = ("num_read", "output", "seen")

    def __init__(self) -> None:
        self.num_read = 0
        self.output: Counter[int] = Counter()
        self.seen: set[int] = set()

    def read(self, row: Row) -> None:
        """Take in the ids that have come since the last step."""
        fresh = row.token_ids[self.num_read :]
        self.seen.update(fresh)
        self.output.update(row.token_ids[max(self.num_read, row.prompt_len) :])
        self.num_read = len(row.token_ids)


class Penalties:
    """Applies penalties, and keeps the counts they need."""

    def __init__(self) -> None:
        self._counts: dict[int, _Counts] = {}

    def apply(self, logits: torch.Tensor, row: Row) -> None:
        """Change one row of logits [vocab] in place, in this order.

        Repetition (CTRL, arXiv:1909.05858) over prompt and answer, frequency and presence over the
        answer (as OpenAI documents them), biases, then the mask of end tokens.
        """
        params = row.params
        if _has_penalty(params):
            counts = self._counts.setdefault(row.uid, _Counts())
            counts.read(row)
            if params.repetition_penalty != 1 and counts.seen:
                ids = torch.tensor(sorted(counts.seen))
                values = logits[ids]
                by = params.repetition_penalty
                logits[ids] = torch.where(values > 0, values / by, values * by)
            if counts.output and (params.frequency_penalty or params.presence_penalty):
                ids = torch.tensor(list(counts.output))
                times = torch.tensor(list(counts.output.values()), dtype=logits.dtype)
                logits[ids] -= params.frequency_penalty * times + params.presence_penalty
        if params.logit_bias:
            ids = torch.tensor(list(params.logit_bias))
            logits[ids] += torch.tensor(list(params.logit_bias.values()), dtype=logits.dtype)
        if row.eos_ids and len(row.token_ids) - row.prompt_len < params.min_new_tokens:
            logits[torch.tensor(sorted(row.eos_ids))] = float("-inf")

    def forget(self, uids: Sequence[int]) -> None:
        """These requests have ended."""
        for uid in uids:
            self._counts.pop(uid, None)
