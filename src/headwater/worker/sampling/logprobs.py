"""Log-probabilities of the model's own distribution: before temperature, penalties and filters."""

from collections.abc import Sequence

import torch

from headwater.messages.requests import LogprobSpec
from headwater.messages.tokens import PositionLogprobs

__all__ = ["position_logprobs"]

_ROWS_AT_ONCE = 64  # a row of a large vocabulary is half a megabyte


def position_logprobs(
    logits: torch.Tensor, token_ids: Sequence[int], specs: Sequence[LogprobSpec]
) -> list[PositionLogprobs]:
    """Report positions.

    Args:
        logits: float32 [num_positions, vocab].
        token_ids: The token that stands at each position.
        specs: What to report for each.
    """
    found = []
    for start in range(0, len(token_ids), _ROWS_AT_ONCE):
        part = slice(start, start + _ROWS_AT_ONCE)
        rows = torch.log_softmax(logits[part], dim=1)
        found += [
            _report(row, token_id, spec)
            for row, token_id, spec in zip(rows, token_ids[part], specs[part], strict=True)
        ]
    return found


def _report(row: torch.Tensor, token_id: int, spec: LogprobSpec) -> PositionLogprobs:
    top = picked = None
    if spec.top_num:
        top = _top(row, min(spec.top_num, len(row)))
    if spec.token_ids:
        picked = list(zip(row[torch.tensor(spec.token_ids)].tolist(), spec.token_ids, strict=True))
    return PositionLogprobs((row[token_id].item(), token_id), top, picked)


def _top(row: torch.Tensor, count: int) -> list[tuple[float, int]]:
    """The most likely tokens, the lower id first among equals."""
    floor = torch.topk(row, count).values[-1]
    ids = torch.nonzero(row >= floor).squeeze(1)
    pairs = zip(row[ids].tolist(), ids.tolist(), strict=True)
    return sorted(pairs, key=lambda pair: (-pair[0], pair[1]))[:count]
