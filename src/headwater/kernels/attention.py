"""What attention must know of a step, built once for all layers; no request, no weights.

Rows of one length class are computed together as one padded batch, so the layer loop runs over a
few groups and never over requests.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

__all__ = ["AttentionGroup", "AttentionMeta", "AttentionRow", "build_attention_meta"]

# (start, end, pages): tokens [start, end) are computed, keys of [0, end) are in the pages.
AttentionRow = tuple[int, int, Sequence[int]]


@dataclass(slots=True, frozen=True)
class AttentionGroup:
    """Rows that are computed as one padded batch.

    Attributes:
        query_index: [batch, query_len] rows of the step's tokens; padding repeats row 0.
        valid: [num_valid] flat places of `query_index` that are not padding.
        targets: [num_valid] the step's tokens at those places.
        kv_slots: [batch, kv_len] slots of the pool; padding is the row's first slot.
        mask: [batch, 1, query_len, kv_len] added to scores: 0 or -inf.
        sliding_mask: The same for layers with a sliding window, or None without one.
    """

    query_index: torch.Tensor
    valid: torch.Tensor
    targets: torch.Tensor
    kv_slots: torch.Tensor
    mask: torch.Tensor
    sliding_mask: torch.Tensor | None

    @property
    def is_decode(self) -> bool:
        """True when every row has one token."""
        return self.query_index.shape[1] == 1


@dataclass(slots=True, frozen=True)
class AttentionMeta:
    """One step.

    Attributes:
        positions: [num_tokens] position of each token in its request.
        slots: [num_tokens] where its keys and values go.
        groups: Rows by length class.
    """

    positions: torch.Tensor
    slots: torch.Tensor
    groups: list[AttentionGroup]


def build_attention_meta(
    rows: Sequence[AttentionRow],
    *,
    page_size: int,
    sliding_window: int | None,
    dtype: torch.dtype,
    device: str,
) -> AttentionMeta:
    """Lay out a step's rows, whose tokens stand one row after the other.

    Args:
        rows: One for each request.
        page_size: Tokens in a page.
        sliding_window: Keys further back than this many positions are not seen, in layers that
            have a window.
        dtype: Of the masks; that of the queries.
        device: Of all tensors.
    """
    slots = [_slots(pages, end, page_size) for _, end, pages in rows]
    positions = [np.arange(start, end) for start, end, _ in rows]
    offsets = np.cumsum([0, *(len(p) for p in positions)])
    classes: dict[tuple[int, int], list[int]] = {}
    for i, (start, end, _) in enumerate(rows):
        classes.setdefault((_class(end - start), _class(end)), []).append(i)

    def tensor(values: NDArray[np.int64]) -> torch.Tensor:
        return torch.from_numpy(values).to(device)

    groups = []
    for members in classes.values():
        batch = _pad([positions[i] for i in members], [slots[i] for i in members])
        batch_offsets = offsets[members]
        mask = _mask(batch, None, dtype).to(device)
        window = None if sliding_window is None else _mask(batch, sliding_window, dtype).to(device)
        is_real = batch.positions >= 0
        query_index = np.where(is_real, batch_offsets[:, None] + batch.columns, 0)
        groups.append(
            AttentionGroup(
                query_index=tensor(query_index),
                valid=tensor(np.flatnonzero(is_real)),
                targets=tensor(query_index[is_real]),
                kv_slots=tensor(batch.slots),
                mask=mask,
                sliding_mask=window,
            )
        )
    new_slots = np.concatenate([s[start:] for s, (start, _, _) in zip(slots, rows, strict=True)])
    return AttentionMeta(tensor(np.concatenate(positions)), tensor(new_slots), groups)


def _class(length: int) -> int:
    """Length class: the padded size is less than 1.5 times the length, and often equal to it."""
    if length <= 2:
        return length
    step = 1 << max((length - 1).bit_length() - 2, 0)
    return -(-length // step) * step


def _slots(pages: Sequence[int], end: int, page_size: int) -> NDArray[np.int64]:
    """Slot of each of the positions [0, end)."""
    num_pages = -(-end // page_size)
    table = np.asarray(pages[:num_pages], dtype=np.int64)
    return (table[:, None] * page_size + np.arange(page_size)).reshape(-1)[:end]


@dataclass(slots=True, frozen=True)
class _Batch:
    """Padded rows: positions [batch, query_len] (-1 pads), slots and lengths of the keys."""

    positions: NDArray[np.int64]
    slots: NDArray[np.int64]
    kv_lens: NDArray[np.int64]

    @property
    def columns(self) -> NDArray[np.int64]:
        return np.arange(self.positions.shape[1])[None, :]


def _pad(positions: list[NDArray[np.int64]], slots: list[NDArray[np.int64]]) -> _Batch:
    padded = np.full((len(positions), max(map(len, positions))), -1, dtype=np.int64)
    tables = np.zeros((len(slots), max(map(len, slots))), dtype=np.int64)
    for i, (p, s) in enumerate(zip(positions, slots, strict=True)):
        padded[i, : len(p)] = p
        # Padding is the row's own first slot: a masked key still meets a weight of zero, and a NaN
        # that another request has left somewhere times zero is NaN.
        tables[i] = s[0]
        tables[i, : len(s)] = s
    return _Batch(padded, tables, np.array([len(s) for s in slots], dtype=np.int64))


def _mask(batch: _Batch, window: int | None, dtype: torch.dtype) -> torch.Tensor:
    keys = np.arange(batch.slots.shape[1])[None, None, :]
    queries = batch.positions[:, :, None]
    seen = keys <= queries
    if window is not None:
        seen &= keys > queries - window
    # A padding query sees key 0: a row that sees nothing would be NaN.
    seen |= (queries < 0) & (keys == 0)
    mask = torch.zeros(seen.shape, dtype=dtype)
    mask.masked_fill_(torch.from_numpy(~seen), float("-inf"))
    return mask.unsqueeze(1)
