"""Weights in the forms of csrc/headwater.h."""

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwater.kernels.native.library import Library
from headwater.kernels.native.structs import CLinear, CMatrix, address

__all__ = ["GROUP_SIZE", "PackedLinear", "PackedMatrix", "Precision", "SourceKind"]

GROUP_SIZE = 32  # columns that share a scale
_ALIGNMENT = 64
_BLOCK = 16


class Precision(IntEnum):
    """How a matrix is kept; the numbers are those of the C header."""

    F32 = 0
    F16 = 1
    BF16 = 2
    Q8 = 3
    Q4 = 4
    Q4_WIDE = 5

    @property
    def label(self) -> str:
        """Its name for people."""
        return _LABELS.get(self, self.name.split("_")[0].lower())

    @property
    def is_quantized(self) -> bool:
        """Columns stand in groups that share a scale."""
        return self >= Precision.Q8


_LABELS = {Precision.F32: "float32", Precision.F16: "float16", Precision.BF16: "bfloat16"}


class SourceKind(IntEnum):
    """What rows are packed from; the numbers are those of the C header."""

    F32 = 0
    F16 = 1
    BF16 = 2
    GGUF_Q4_0 = 3
    GGUF_Q4_1 = 4
    GGUF_Q4_K = 5
    GGUF_Q8_0 = 6


class PackedMatrix:
    """A matrix [rows, cols] of weights, rows being outputs.

    Args:
        library: The native library.
        source: [rows, cols] numbers (bfloat16 as uint16 bits), or [rows, bytes] blocks.
        kind: What `source` is.
        precision: How to keep it.
        shape: Rows and columns.

    Raises:
        ValueError: These rows cannot be kept so.
    """

    def __init__(
        self,
        library: Library,
        source: NDArray[Any],
        kind: SourceKind,
        precision: Precision,
        shape: tuple[int, int],
    ) -> None:
        self.rows, self.cols = shape
        self.precision = precision
        if precision.is_quantized and self.cols % GROUP_SIZE:
            raise ValueError(
                f"{self.cols} columns are not a multiple of {GROUP_SIZE}, the size of a group"
            )
        num_bytes = library.call("hw_packed_bytes", precision, *shape)
        self.data = _aligned(num_bytes)
        rows = np.ascontiguousarray(source)
        done = library.call(
            "hw_pack", address(self.data), precision, *shape, 0, self.rows, address(rows), kind
        )
        if done != 0:
            raise ValueError(f"{kind.name} cannot be kept as {precision.name}")

    @property
    def struct(self) -> CMatrix:
        """The C struct; the matrix must outlive it."""
        return CMatrix(address(self.data), self.precision, self.rows, self.cols, 0)

    def unpack(self, library: Library) -> NDArray[np.float32]:
        """The weights as they are used, [rows, cols]."""
        out = np.empty((self.rows, self.cols), dtype=np.float32)
        for i in range(self.rows):
            library.call("hw_unpack_row", self.struct, i, address(out[i]))
        return out


def _aligned(num_bytes: int) -> NDArray[np.uint8]:
    memory = np.empty(num_bytes + _ALIGNMENT, dtype=np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT
    return memory[start : start + num_bytes]


@dataclass(slots=True)
class PackedLinear:
    """Matrices that share their input; their outputs stand one after the other.

    Attributes:
        parts: At most three; None while the weights have not come.
    """

    parts: list[PackedMatrix | None]

    @property
    def matrices(self) -> list[PackedMatrix]:
        """The parts, all of which are there."""
        return [part for part in self.parts if part is not None]

    def struct(self, bias: NDArray[np.float32] | None) -> CLinear:
        """The C struct; matrices and bias [outputs] must outlive it."""
        linear = CLinear(num_parts=len(self.parts), bias=address(bias))
        for i, part in enumerate(self.matrices):
            linear.parts[i] = part.struct
        return linear
