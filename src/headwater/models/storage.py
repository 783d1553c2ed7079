"""Where weights are put: plain tensors here, packed matrices in `native`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np
import torch

from headwater.sources.weights import WeightTensor

__all__ = ["Slot", "Storage", "TensorStorage", "as_torch", "tensor_slots"]

MadeT = TypeVar("MadeT", covariant=True)


@dataclass(slots=True, frozen=True)
class Slot:
    """The place of one checkpoint tensor.

    Attributes:
        shape: The tensor's shape.
        fill: Puts the tensor there.
    """

    shape: tuple[int, ...]
    fill: Callable[[WeightTensor], object]


class Storage(Protocol[MadeT]):
    """Allocates the parts of a model."""

    def matrix(self, rows: Sequence[int], columns: int) -> tuple[MadeT, list[Slot]]:
        """One matrix of several checkpoint tensors, stacked along the rows."""

    def vector(self, sizes: Sequence[int]) -> tuple[torch.Tensor, list[Slot]]:
        """One vector of several checkpoint tensors."""


@dataclass(slots=True, frozen=True)
class TensorStorage:
    """Torch tensors; a part is a slice of the whole, so nothing is kept twice.

    Attributes:
        dtype: Type of all of them.
        device: Where they lie.
    """

    dtype: torch.dtype
    device: str

    def matrix(self, rows: Sequence[int], columns: int) -> tuple[torch.Tensor, list[Slot]]:
        """See `Storage.matrix`."""
        whole = torch.empty((sum(rows), columns), dtype=self.dtype, device=self.device)
        return whole, tensor_slots(whole, rows)

    def vector(self, sizes: Sequence[int]) -> tuple[torch.Tensor, list[Slot]]:
        """See `Storage.vector`."""
        whole = torch.empty((sum(sizes),), dtype=self.dtype, device=self.device)
        return whole, tensor_slots(whole, sizes)


def tensor_slots(whole: torch.Tensor, sizes: Sequence[int]) -> list[Slot]:
    """Slots for the parts of a tensor, one after the other."""
    slots = []
    for part in torch.split(whole, list(sizes)):

        def fill(weight: WeightTensor, part: torch.Tensor = part) -> None:
            part.copy_(as_torch(weight))

        slots.append(Slot(tuple(part.shape), fill))
    return slots


def as_torch(weight: WeightTensor) -> torch.Tensor:
    """A checkpoint tensor in torch."""
    values = weight.load()
    if not values.flags.writeable:  # a view of a mapped file; torch wants to be told
        values = np.array(values)
    tensor = torch.from_numpy(values)
    return tensor.view(torch.bfloat16) if weight.dtype == "bfloat16" else tensor
