"""What the worker needs of a model."""

from collections.abc import Sequence
from typing import Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from headwater.kernels import AttentionRow, Pick
from headwater.models.config import DecoderConfig

__all__ = ["Pool", "StepModel"]


class Pool(Protocol):
    """Keys and values of all requests; only its model looks inside."""

    num_pages: int
    page_size: int


PoolT = TypeVar("PoolT", bound=Pool)


class StepModel(Protocol[PoolT]):
    """A model that can run steps.

    Attributes:
        config: Its shape.
        device: Where it lies.
        cache_dtype: Type of keys and values.
        precision: Of the weights, for people.
    """

    config: DecoderConfig
    device: str
    cache_dtype: torch.dtype
    precision: str

    @property
    def num_parameters(self) -> int:
        """Weights, tied ones counted once."""

    @property
    def weight_bytes(self) -> int:
        """Memory of the weights."""

    def make_pool(self, num_pages: int, page_size: int) -> PoolT:
        """An empty pool of pages of `page_size` tokens.

        Raises:
            MemoryError: There is none for it.
        """

    def step(
        self,
        token_ids: NDArray[np.int64],
        rows: Sequence[AttentionRow],
        pool: PoolT,
        logit_rows: Sequence[int],
    ) -> torch.Tensor:
        """Compute a step's tokens and write their keys and values.

        Args:
            token_ids: [num_tokens], one row's tokens after the other's.
            rows: Where they stand.
            pool: Keys and values of all requests.
            logit_rows: Tokens whose logits are wanted.

        Returns:
            float32 logits [len(logit_rows), vocab], on the CPU.
        """

    def pick(self, logits: torch.Tensor, picks: Sequence[Pick]) -> list[int | None]:
        """Tokens of rows of logits; see `kernels.pick_tokens`."""
