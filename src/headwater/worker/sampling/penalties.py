"""Changes to logits before sampling: penalties, biases, masked end tokens.

Counts are kept from step to step, so a step reads only the tokens that have come since the last
one; they follow from the request's ids alone, so a retracted request finds the same counts again.
"""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from headwater.messages.params import SamplingParams
from headwater.worker.scheduler.plan import Row

__all__ = ["Penalties", "changes_logits"]


def changes_logits(row: Row) -> bool:
    """True when a row's logits are not the model's own."""
    return _has_penalty(row.params) or bool(row.params.logit_bias) or _is_end_masked(row)


def _has_penalty(params: SamplingParams) -> bool:
    return (
        params.frequency_penalty != 0
        or params.presence_penalty != 0
        or params.repetition_penalty != 1
    )


def _is_end_masked(row: Row) -> bool:
    is_short = len(row.token_ids) - row.prompt_len < row.params.min_new_tokens
    return is_short and bool(row.eos_ids)


class _Tally:
    """Distinct token ids and how often each came, as arrays that grow in place."""

    __slots__ = ("_ids", "_places", "_times")

    def __init__(self) -> None:
        self._places: dict[int, int] = {}
        self._ids = np.zeros(64, dtype=np.int64)
        self._times = np.zeros(64, dtype=np.float32)

    def add(self, token_ids: Iterable[int]) -> None:
        """Count these tokens."""
        for token_id in token_ids:
            place = self._places.setdefault(token_id, len(self._places))
            if place == len(self._ids):
                self._ids = np.concatenate([self._ids, np.zeros_like(self._ids)])
                self._times = np.concatenate([self._times, np.zeros_like(self._times)])
            self._ids[place] = token_id
            self._times[place] += 1

    @property
    def ids(self) -> NDArray[np.int64]:
        """[num_distinct]; valid until the next `add`."""
        return self._ids[: len(self._places)]

    @property
    def times(self) -> NDArray[np.float32]:
        """[num_distinct], in the order of `ids`; valid until the next `add`."""
        return self._times[: len(self._places)]


class _Counts:
    """Tokens of one request so far."""

    __slots__ = ("_num_read", "everything", "output")

    def __init__(self) -> None:
        self._num_read = 0
        self.everything = _Tally()
        self.output = _Tally()

    def read(self, row: Row) -> None:
        """Take in the ids that have come since the last step."""
        self.everything.add(row.token_ids[self._num_read :])
        self.output.add(row.token_ids[max(self._num_read, row.prompt_len) :])
        self._num_read = len(row.token_ids)


class Penalties:
    """Applies penalties, and keeps the counts they need."""

    def __init__(self) -> None:
        self._counts: dict[int, _Counts] = {}

    def apply(self, logits: NDArray[np.float32], row: Row) -> None:
        """Change one row of logits [vocab] in place, in this order.

        Repetition (CTRL, arXiv:1909.05858) over prompt and answer, frequency and presence over the
        answer (as OpenAI documents them), biases, then the mask of end tokens. Finite logits never
        become NaN or +inf, whatever the parameters.
        """
        params = row.params
        if _has_penalty(params):
            counts = self._counts.setdefault(row.uid, _Counts())
            counts.read(row)
            if params.repetition_penalty != 1:
                _repeat(logits, counts.everything.ids, params.repetition_penalty)
            if params.frequency_penalty or params.presence_penalty:
                by = params.frequency_penalty * counts.output.times + params.presence_penalty
                logits[counts.output.ids] -= by.astype(np.float32)
        if params.logit_bias:
            ids = np.fromiter(params.logit_bias, dtype=np.int64)
            logits[ids] += np.fromiter(params.logit_bias.values(), dtype=np.float32)
        if _is_end_masked(row):
            # A model's config may name end tokens that its output layer does not have.
            ends = [token_id for token_id in sorted(row.eos_ids) if token_id < len(logits)]
            logits[ends] = -np.inf

    def forget(self, uids: Sequence[int]) -> None:
        """These requests have ended."""
        for uid in uids:
            self._counts.pop(uid, None)


def _repeat(logits: NDArray[np.float32], ids: NDArray[np.int64], by: float) -> None:
    values = logits[ids].astype(np.float64)
    # Divided by a number near zero a logit overflows, and infinite logits have no distribution.
    with np.errstate(over="ignore"):
        changed = np.where(values > 0, values / by, values * by)
    logits[ids] = np.clip(changed, None, np.finfo(np.float32).max)
