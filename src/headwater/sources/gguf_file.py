"""GGUF files through the `gguf` package, which has its only home here.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

from headwater.errors import ModelLoadError

__all__ = ["GgufFile", "GgufTensor"]


@dataclass(slots=True, frozen=True)
class GgufTensor:
    """One tensor of a file.

    Attributes:
        name: Its GGUF name.
        shape: Rows first, as in torch.
        quant_type: Name of its storage type, `Q4_1`.
        raw: Its bytes, memory-mapped.
    """

    name: str
    shape: tuple[int, ...]
    quant_type: str
    raw: NDArray[Any]

    def load(self) -> NDArray[np.float32]:
        """The numbers, dequantized; [rows, columns] for a matrix.

        Raises:
            ModelLoadError: The storage type cannot be read.
        """
        kind = gguf.GGMLQuantizationType[self.quant_type]
        try:
            values = gguf.quants.dequantize(_longer_rows(self.raw), kind)
        except (NotImplementedError, KeyError):
            raise ModelLoadError(
                f"tensor {self.name} has type {self.quant_type}, which is not supported"
            ) from None
        return np.asarray(values, dtype=np.float32).reshape(self.shape)


_ROW_BYTES = 1 << 16


def _longer_rows(raw: NDArray[Any]) -> NDArray[Any]:
    """The same bytes in fewer rows: the package works through 16 rows at a time.

    Blocks lie one after the other, so where a row ends means nothing to them.
    """
    if raw.ndim < 2 or raw.dtype != np.uint8:
        return raw
    rows, width = raw.reshape(-1, raw.shape[-1]).shape
    factor = 1
    while rows % (2 * factor) == 0 and 2 * factor * width <= _ROW_BYTES:
        factor *= 2
    return raw.reshape(rows // factor, width * factor)


class _Reader(gguf.GGUFReader):  # type: ignore[misc]  # the package has no types
    """A reader that takes an array in one go.

    The package makes several small numpy arrays for each item of a vocabulary, which takes seconds.
    Here an array is one part, and `_value` takes it apart.
    """

    @property
    def data(self) -> NDArray[np.uint8]:
        """The file's bytes: a plain view, because slicing a memmap object is slow."""
        return self._bytes

    @data.setter
    def data(self, mapped: NDArray[np.uint8]) -> None:
        self._bytes = mapped.view(np.ndarray)

    def _get(self, offset: int, dtype: Any, count: int = 1, override_order: Any = None) -> Any:
        """As the package's, which returns less than was asked for at the end of a file."""
        found = super()._get(offset, dtype, count, override_order)
        if len(found) != int(count):
            raise ValueError("it ends too early")
        return found

    def _get_field_parts(self, orig_offs: int, raw_type: int) -> Any:
        if gguf.GGUFValueType(raw_type) != gguf.GGUFValueType.ARRAY:
            return super()._get_field_parts(orig_offs, raw_type)
        item_type = self._get(orig_offs, np.uint32)
        kind = gguf.GGUFValueType(int(item_type[0]))
        if kind == gguf.GGUFValueType.STRING:
            return self._string_array(orig_offs, item_type)
        if kind in self.gguf_scalar_to_np:
            return self._number_array(orig_offs, item_type, kind)
        raise ValueError("it holds an array of arrays")

    def _number_array(self, start: int, item_type: Any, kind: Any) -> Any:
        count = self._get(start + 4, np.uint64)
        values = self._get(start + 12, self.gguf_scalar_to_np[kind], int(count[0]))
        types = [gguf.GGUFValueType.ARRAY, kind]
        return 12 + values.nbytes, [item_type, count, values], [2], types

    def _string_array(self, start: int, item_type: Any) -> Any:
        count = self._get(start + 4, np.uint64)
        begin = start + 12
        data, end = self.data.data, begin
        for _ in range(int(count[0])):
            end += 8 + int.from_bytes(data[end : end + 8], "little")
            if end > len(data):  # checked in the loop: a damaged count can be astronomical
                raise ValueError("it ends too early")
        types = [gguf.GGUFValueType.ARRAY, gguf.GGUFValueType.STRING]
        return end - start, [item_type, count, self.data[begin:end]], [2], types


def _strings(data: NDArray[np.uint8]) -> list[str]:
    view, found, at = data.tobytes(), [], 0
    while at < len(view):
        size = int.from_bytes(view[at : at + 8], "little")
        found.append(view[at + 8 : at + 8 + size].decode("utf-8", errors="replace"))
        at += 8 + size
    return found


def _value(field: Any) -> Any:
    """A field as a Python value."""
    kinds = field.types
    if kinds[:1] == [gguf.GGUFValueType.ARRAY]:
        if kinds[-1] == gguf.GGUFValueType.STRING:
            return _strings(field.parts[-1])
        items: list[Any] = [item for index in field.data for item in field.parts[index].tolist()]
        return items
    return field.contents()


class GgufFile:
    """A GGUF file, memory-mapped.

    Args:
        path: The file.

    Attributes:
        path: The file.
        fields: Metadata: key to number, text or list.

    Raises:
        ModelLoadError: It cannot be read as GGUF.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with warnings.catch_warnings():
                # The package views file bytes through newer numpy's deprecated paths, and adds
                # up offsets of a damaged file in 64 bits.
                warnings.simplefilter("ignore", DeprecationWarning)
                warnings.simplefilter("ignore", RuntimeWarning)
                self._reader = _Reader(path)
            items = self._reader.fields.items()
            self.fields: Mapping[str, Any] = {name: _value(field) for name, field in items}
        except Exception as err:  # the package checks little: damage surfaces as any error
            raise ModelLoadError(f"{path} is not a readable GGUF file: {err}") from err

    def tensors(self) -> Iterator[GgufTensor]:
        """The tensors, in the file's order."""
        for tensor in self._reader.tensors:
            shape = tuple(int(n) for n in reversed(tensor.shape.tolist()))
            yield GgufTensor(tensor.name, shape, tensor.tensor_type.name, tensor.data)
