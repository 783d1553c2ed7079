"""Runs step plans on a real model; it knows rows, not why they were chosen."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from headwater.messages.requests import LogprobSpec
from headwater.messages.tokens import PositionLogprobs
from headwater.models.model import PoolT, StepModel
from headwater.worker.sampling.logprobs import position_logprobs
from headwater.worker.sampling.sampler import Sampler
from headwater.worker.scheduler.plan import Row, RowResult, StepPlan, StepResult

__all__ = ["ModelRunner"]


class ModelRunner:
    """A model, its KV pool and a sampler.

    Args:
        model: The model.
        pool: Keys and values.
    """

    def __init__(self, model: StepModel[PoolT], pool: PoolT) -> None:
        self._model = model
        self._pool = pool
        self._sampler = Sampler(model.pick)

    def run(self, plan: StepPlan) -> StepResult:
        """Compute every row of a plan, and sample where it says so."""
        rows = plan.rows
        token_ids = np.concatenate([row.token_ids[row.start : row.end] for row in rows])
        errors = self._replace_unknown(token_ids, rows)
        wanted = _LogitRows(rows)
        logits = self._forward(token_ids, rows, wanted.indices)
        sampling = list(wanted.last)
        places = list(wanted.last.values())
        # Without prompt positions, all logits are those of sampled rows, in order: no copy.
        last = logits if len(places) == len(logits) else logits[torch.tensor(places).long()]
        picked = self._sampler.sample(last, [rows[i] for i in sampling]) if sampling else []
        tokens = dict(zip(sampling, picked, strict=True))
        outputs = _output_logprobs(rows, sampling, picked, last)
        inputs = _input_logprobs(rows, wanted, logits)
        for i in [i for i, token_id in tokens.items() if token_id is None] + _with_nan(inputs):
            errors.setdefault(i, "the model's logits are not finite")
        return StepResult(
            [
                RowResult(None, error=errors[i])
                if i in errors
                else RowResult(tokens.get(i), outputs.get(i), inputs.get(i))
                for i in range(len(rows))
            ]
        )

    def forget(self, uids: Sequence[int]) -> None:
        """These requests have ended."""
        self._sampler.forget(uids)

    def _replace_unknown(self, token_ids: NDArray[np.int64], rows: Sequence[Row]) -> dict[int, str]:
        """Errors of rows with ids that the embedding lacks; the ids become 0.

        The front end lets none through; this is the second lock on the door, because such an id
        would end the process and everybody's answers.
        """
        size = self._model.config.vocab_size
        is_unknown = (token_ids < 0) | (token_ids >= size)
        errors: dict[int, str] = {}
        if is_unknown.any():
            ends = np.cumsum([row.end - row.start for row in rows])
            for place in np.flatnonzero(is_unknown).tolist():
                owner = int(np.searchsorted(ends, place, side="right"))
                errors[owner] = f"token id {token_ids[place]} is not in [0, {size})"
            token_ids[is_unknown] = 0
        return errors

    def _forward(
        self, token_ids: NDArray[np.int64], rows: Sequence[Row], logit_rows: Sequence[int]
    ) -> torch.Tensor:
        attended = [(row.start, row.end, row.pages) for row in rows]
        return self._model.step(token_ids, attended, self._pool, logit_rows)


class _LogitRows:
    """Which of a step's tokens need logits.

    Attributes:
        indices: Tokens of the step, in the order of the logits.
        last: Row to the place of its last token's logits, for rows that sample.
        inputs: Row to the places of its prompt positions' logits, which are side by side.
    """

    def __init__(self, rows: Sequence[Row]) -> None:
        self.indices: list[int] = []
        self.last: dict[int, int] = {}
        self.inputs: dict[int, slice] = {}
        offset = 0
        for i, row in enumerate(rows):
            if row.input_from is not None:
                # The token at position p is judged by the logits of position p - 1.
                positions = range(row.input_from, min(row.end + 1, row.prompt_len))
                base = len(self.indices)
                self.indices += [offset + p - 1 - row.start for p in positions]
                self.inputs[i] = slice(base, len(self.indices))
            if row.samples:
                self.last[i] = len(self.indices)
                self.indices.append(offset + row.end - row.start - 1)
            offset += row.end - row.start


def _output_logprobs(
    rows: Sequence[Row],
    sampling: Sequence[int],
    picked: Sequence[int | None],
    last: torch.Tensor,
) -> dict[int, PositionLogprobs]:
    places, ids, specs, owners = [], [], [], []
    for place, (i, token_id) in enumerate(zip(sampling, picked, strict=True)):
        spec: LogprobSpec | None = rows[i].logprobs
        if spec is not None and token_id is not None:
            places.append(place)
            ids.append(token_id)
            specs.append(spec)
            owners.append(i)
    if not places:
        return {}
    found = position_logprobs(last[torch.tensor(places)], ids, specs)
    return dict(zip(owners, found, strict=True))


def _input_logprobs(
    rows: Sequence[Row], wanted: _LogitRows, logits: torch.Tensor
) -> dict[int, list[PositionLogprobs]]:
    found = {}
    for i, places in wanted.inputs.items():
        row, spec = rows[i], rows[i].logprobs
        assert spec is not None, "log-probabilities of a prompt that nobody asked for"
        assert row.input_from is not None, "a row without the positions it wants"
        ids = row.token_ids[row.input_from : row.input_from + places.stop - places.start]
        found[i] = position_logprobs(logits[places], ids, [spec] * len(ids))
    return found


def _with_nan(inputs: Mapping[int, Sequence[PositionLogprobs]]) -> list[int]:
    """Rows with a log-probability that is not a number."""
    return [
        i
        for i, positions in inputs.items()
        if any(p.token[0] is not None and math.isnan(p.token[0]) for p in positions)
    ]
