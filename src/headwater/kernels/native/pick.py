"""Rows of logits to token ids, natively."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from headwater.kernels.native.library import Library
from headwater.kernels.native.structs import CPick, address
from headwater.kernels.pick import Pick

__all__ = ["pick_tokens_natively"]


def pick_tokens_natively(
    library: Library, logits: NDArray[np.float32], picks: Sequence[Pick], num_threads: int
) -> list[int | None]:
    """See `kernels.pick.pick_tokens`; weights are float32 here, their sums float64."""
    structs = (CPick * len(picks))(*map(_struct, picks))
    tokens = np.empty(len(picks), dtype=np.int64)
    rows, vocab_size = logits.shape
    library.call(
        "hw_pick", address(logits), rows, vocab_size, structs, address(tokens), num_threads
    )
    return [token_id if token_id >= 0 else None for token_id in tokens.tolist()]


def _struct(pick: Pick) -> CPick:
    return CPick(
        pick.temperature,
        pick.top_p,
        pick.min_p,
        pick.share,
        max(pick.top_k, 0),
        pick.is_greedy,
        pick.may_be_masked,
        0,
    )
