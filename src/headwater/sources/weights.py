"""The weights of a model, tensor by tensor, in Hugging Face names; torch-free.

A safetensors tensor is read from its file when it is asked for, not mapped: mapped pages would
count as memory of the process beside the weights that are made from them.
"""

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwater.errors import ModelLoadError
from headwater.sources.gguf_config import config_from_gguf, hf_tensor_name
from headwater.sources.gguf_file import GgufFile, GgufTensor
from headwater.sources.resolve import ModelFiles

__all__ = ["WeightTensor", "iter_weights"]

# safetensors' names of types; bfloat16 has none in numpy and comes as its bits.
_DTYPES = {
    "F32": ("float32", np.float32),
    "F16": ("float16", np.float16),
    "BF16": ("bfloat16", np.uint16),
    "F64": ("float64", np.float64),
}
_HEADER_LIMIT = 100 << 20  # as in the safetensors library


@dataclass(slots=True, frozen=True)
class WeightTensor:
    """One tensor of a checkpoint.

    Attributes:
        name: Its Hugging Face name.
        shape: Rows first.
        dtype: `float32`, `float16`, `bfloat16` or `float64`.
        load: Reads it; bfloat16 comes as uint16 bits.
        block_type: GGUF's name of its type when it is stored in blocks, `Q4_1`; else None.
        load_blocks: Reads the blocks as they are, [rows, bytes]; None when there are none.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    load: Callable[[], NDArray[Any]]
    block_type: str | None = None
    load_blocks: Callable[[], NDArray[np.uint8]] | None = None


def iter_weights(files: ModelFiles) -> Iterator[WeightTensor]:
    """All tensors of a model, file by file.

    Raises:
        ModelLoadError: A file is missing or broken; the text names it.
    """
    if files.kind == "gguf":
        yield from _iter_gguf(files.path)
        return
    for shard in _shards(files.path):
        yield from _iter_safetensors(shard)


def _shards(folder: Path) -> list[Path]:
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        try:
            entries = json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()
            names = sorted({str(name) for name in entries})
        except (ValueError, KeyError, TypeError, AttributeError, OSError) as err:
            raise ModelLoadError(f"{index} is not a valid shard index: {err!r}") from None
    elif (folder / "model.safetensors").is_file():
        names = ["model.safetensors"]  # others beside it hold the same in another form
    else:
        names = sorted(path.name for path in folder.glob("*.safetensors"))
    if not names:
        raise ModelLoadError(f"{folder} has no .safetensors file; pickled weights are not loaded")
    for name in names:
        if Path(name).name != name or not (folder / name).is_file():
            raise ModelLoadError(f"{folder} lacks the shard {name}")
    return [folder / name for name in names]


def _iter_safetensors(path: Path) -> Iterator[WeightTensor]:
    # The library has no bfloat16 for numpy, so its simple container is read here:
    # https://github.com/huggingface/safetensors#format
    try:
        with path.open("rb") as file:
            size = int.from_bytes(file.read(8), "little")
            num_bytes = path.stat().st_size - 8 - size
            if not 0 < size <= _HEADER_LIMIT or num_bytes < 0:
                raise ValueError("its header does not fit the file")
            header = json.loads(file.read(size))
        tensors = [
            _safetensor(path, 8 + size, num_bytes, name, entry)
            for name, entry in header.items()
            if name != "__metadata__"
        ]
    except (ValueError, KeyError, TypeError, AttributeError, OSError) as err:
        raise ModelLoadError(f"{path} is not a readable safetensors file: {err!r}") from None
    yield from tensors


def _safetensor(path: Path, start: int, num_bytes: int, name: str, entry: Any) -> WeightTensor:
    if entry["dtype"] not in _DTYPES:
        raise ModelLoadError(f"tensor {name} of {path} has type {entry['dtype']}, not a float type")
    dtype, numpy_dtype = _DTYPES[entry["dtype"]]
    shape = tuple(entry["shape"])
    begin, end = entry["data_offsets"]
    if not all(type(n) is int and n >= 0 for n in (*shape, begin, end)):
        raise ValueError(f"tensor {name} has a shape or place that is not whole numbers")
    count = math.prod(shape)
    if end - begin != count * np.dtype(numpy_dtype).itemsize:
        raise ModelLoadError(f"tensor {name} of {path} has a size that is not that of its shape")
    if end > num_bytes:
        raise ModelLoadError(f"tensor {name} of {path} reaches beyond the file; is it complete?")

    def load() -> NDArray[Any]:
        values = np.fromfile(path, numpy_dtype, count, offset=start + begin)
        if len(values) != count:
            raise ModelLoadError(f"{path} has become shorter while it was read")
        return values.reshape(shape)

    return WeightTensor(name, shape, dtype, load)


def _iter_gguf(path: Path) -> Iterator[WeightTensor]:
    file = GgufFile(path)
    config = config_from_gguf(file)
    for tensor in file.tensors():
        name = hf_tensor_name(tensor.name)
        if name is not None:
            yield _gguf_weight(tensor, name, _num_interleaved(name, config))


def _num_interleaved(name: str, config: dict[str, Any]) -> int:
    """Heads of a tensor whose rows are interleaved; 0 when they are in order."""
    if config["model_type"] in ("llama", "mistral"):
        # llama.cpp stores q and k with each head's halves interleaved (its rope convention).
        if ".q_proj." in name:
            return int(config["num_attention_heads"])
        if ".k_proj." in name:
            return int(config["num_key_value_heads"])
    return 0


def _gguf_weight(tensor: GgufTensor, name: str, heads: int) -> WeightTensor:
    def load() -> NDArray[np.float32]:
        return _in_order(tensor.load(), heads)

    def load_blocks() -> NDArray[np.uint8]:
        return _in_order(tensor.raw.reshape(tensor.shape[0], -1), heads)

    if len(tensor.shape) != 2 or tensor.raw.dtype != np.uint8:
        return WeightTensor(name, tensor.shape, "float32", load)
    return WeightTensor(name, tensor.shape, "float32", load, tensor.quant_type, load_blocks)


def _in_order(values: NDArray[Any], heads: int) -> NDArray[Any]:
    """The rows with each head's halves one after the other."""
    if not heads:
        return values
    rest = values.shape[1:]
    pairs = values.reshape(heads, values.shape[0] // heads // 2, 2, *rest)
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(values.shape)
