"""The weights of a model, tensor by tensor, in Hugging Face names; torch-free and memory-mapped."""

import json
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
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    load: Callable[[], NDArray[Any]]


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
            names = sorted(
                set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
            )
        except (ValueError, KeyError, AttributeError) as err:
            raise ModelLoadError(f"{index} is not a valid shard index: {err}") from None
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
        data = np.memmap(path, dtype=np.uint8, mode="r")
        size = int.from_bytes(data[:8].tobytes(), "little")
        if not 0 < size <= min(_HEADER_LIMIT, len(data) - 8):
            raise ValueError("its header does not fit the file")
        header = json.loads(data[8 : 8 + size].tobytes())
    except (ValueError, OSError) as err:
        raise ModelLoadError(f"{path} is not a readable safetensors file: {err}") from None
    for name, entry in header.items():
        if name != "__metadata__":
            yield _safetensor(path, data[8 + size :], name, entry)


def _safetensor(path: Path, body: NDArray[np.uint8], name: str, entry: Any) -> WeightTensor:
    if entry["dtype"] not in _DTYPES:
        raise ModelLoadError(f"tensor {name} of {path} has type {entry['dtype']}, not a float type")
    dtype, numpy_dtype = _DTYPES[entry["dtype"]]
    shape = tuple(entry["shape"])
    begin, end = entry["data_offsets"]
    size = int(np.prod(shape, dtype=np.int64)) * np.dtype(numpy_dtype).itemsize
    if not 0 <= begin <= end <= len(body) or end - begin != size:
        raise ModelLoadError(f"tensor {name} of {path} reaches beyond the file; is it complete?")

    def load() -> NDArray[Any]:
        return body[begin:end].view(numpy_dtype).reshape(shape)

    return WeightTensor(name, shape, dtype, load)


def _iter_gguf(path: Path) -> Iterator[WeightTensor]:
    file = GgufFile(path)
    config = config_from_gguf(file)
    for tensor in file.tensors():
        name = hf_tensor_name(tensor.name)
        if name is not None:
            yield WeightTensor(name, tensor.shape, "float32", _gguf_loader(tensor, name, config))


def _gguf_loader(
    tensor: GgufTensor, name: str, config: dict[str, Any]
) -> Callable[[], NDArray[np.float32]]:
    heads = 0
    if config["model_type"] in ("llama", "mistral"):
        # llama.cpp stores q and k with each head's halves interleaved (its rope convention).
        if ".q_proj." in name:
            heads = config["num_attention_heads"]
        elif ".k_proj." in name:
            heads = config["num_key_value_heads"]

    def load() -> NDArray[np.float32]:
        values = tensor.load()
        if not heads:
            return values
        rest = values.shape[1:]
        pairs = values.reshape(heads, values.shape[0] // heads // 2, 2, *rest)
        return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(values.shape)

    return load
