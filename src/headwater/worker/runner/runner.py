"""Runs step plans on a real model; it knows rows, not why they were chosen."""

from collections.abc import Sequence

import torch

from headwater.kernels import KVPool, build_attention_meta
from headwater.messages.requests import LogprobSpec
from headwater.messages.tokens import PositionLogprobs
from headwater.models.decoder import Decoder
from headwater.worker.sampling.logprobs import position_logprobs
from headwater.worker.sampling.sampler import Sampler
from headwater.worker.scheduler.plan import Row, RowResult, StepPlan, StepResult

__all__ = ["ModelRunner"]


class ModelRunner:
    """A model, its KV pool and a sampler.

    Args:
        model: The decoder.
        pool: Keys and values.
    """

    def __init__(self, model: Decoder, pool: KVPool) -> None:
        self._model = model
        self._pool = pool
        self._sampler = Sampler()

    def run(self, plan: StepPlan) -> StepResult:
        """Compute every row of a plan, and sample where it says so."""
        rows = plan.rows
        wanted = _LogitRows(rows)
        logits = self._forward(rows, wanted.indices)
        inputs = self._input_logprobs(rows, wanted, logits)
        sampling = [i for i, row in enumerate(rows) if row.samples]
        last = logits[torch.tensor([wanted.last[i] for i in sampling], dtype=torch.int64)]
        picked = self._sampler.sample(last, [rows[i] for i in sampling]) if sampling else []
        tokens = dict(zip(sampling, picked, strict=True))
        outputs = _output_logprobs(rows, sampling, picked, last)
        return StepResult(
            [
                _row_result(row, tokens.get(i), outputs.get(i), inputs.get(i))
                for i, row in enumerate(rows)
            ]
        )

    def forget(self, uids: Sequence[int]) -> None:
        """These requests have ended."""
        self._sampler.forget(uids)

    def _forward(self, rows: Sequence[Row], logit_rows: Sequence[int]) -> torch.Tensor:
        model = self._model
        ids = [token_id for row in rows for token_id in row.token_ids[row.start : row.end]]
        meta = build_attention_meta(
            [(row.start, row.end, row.pages) for row in rows],
            page_size=self._pool.page_size,
            sliding_window=model.config.sliding_window,
            dtype=model.dtype,
            device=model.device,
        )
        wanted = torch.tensor(logit_rows, dtype=torch.int64, device=model.device)
        token_ids = torch.tensor(ids, dtype=torch.int64, device=model.device)
        return model.forward(token_ids, meta, self._pool, wanted).cpu()

    def _input_logprobs(
        self, rows: Sequence[Row], wanted: "_LogitRows", logits: torch.Tensor
    ) -> dict[int, list[PositionLogprobs]]:
        found = {}
        for i, places in wanted.inputs.items():
            row, spec = rows[i], rows[i].logprobs
            if spec is None or row.input_from is None:
                continue
            ids = row.token_ids[row.input_from : row.input_from + len(places)]
            found[i] = position_logprobs(logits[torch.tensor(places)], ids, [spec] * len(ids))
        return found


class _LogitRows:
    """Which of a step's tokens need logits.

    Attributes:
        indices: Tokens of the step, in the order of the logits.
        last: Row to the place of its last token's logits, for rows that sample.
        inputs: Row to the places of its prompt positions' logits.
    """

    def __init__(self, rows: Sequence[Row]) -> None:
        self.indices: list[int] = []
        self.last: dict[int, int] = {}
        self.inputs: dict[int, list[int]] = {}
        offset = 0
        for i, row in enumerate(rows):
            if row.input_from is not None:
                # The token at position p is judged by the logits of position p - 1.
                positions = range(row.input_from, min(row.end + 1, row.prompt_len))
                base = len(self.indices)
                self.indices += [offset + p - 1 - row.start for p in positions]
                self.inputs[i] = list(range(base, base + len(positions)))
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


def _row_result(
    row: Row,
    token_id: int | None,
    logprobs: PositionLogprobs | None,
    inputs: list[PositionLogprobs] | None,
) -> RowResult:
    error = None
    if row.samples and token_id is None:
        error = "the model's logits are not finite"
    return RowResult(token_id, logprobs=logprobs, input_logprobs=inputs, error=error)
