"""safetensors checkpoints against the safetensors library, and files that are broken."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file

from headwater.errors import ModelLoadError
from headwater.sources.resolve import ModelFiles
from headwater.sources.weights import WeightTensor, iter_weights


def read(folder: Path) -> dict[str, WeightTensor]:
    """All tensors of a directory, by name."""
    return {w.name: w for w in iter_weights(ModelFiles(folder, "hf", str(folder)))}


def write_raw(path: Path, header: Any, body: bytes = b"") -> None:
    """A file with any header."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + body)


def entry(**changes: Any) -> dict[str, Any]:
    """The header entry of two float32 numbers."""
    return {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **changes}


def bits(tensor: torch.Tensor) -> NDArray[Any]:
    """The numbers of a tensor as numpy has them; bfloat16 as its bits."""
    whole = tensor.view(torch.uint16) if tensor.dtype == torch.bfloat16 else tensor
    values: NDArray[Any] = whole.numpy()
    return values


DTYPES = [torch.float32, torch.float16, torch.bfloat16, torch.float64]


def test_types_and_shapes_as_the_library_writes_them(tmp_path: Path) -> None:
    """Every number comes back bit by bit, also where tensors lie at odd places of the file."""
    generator = torch.Generator().manual_seed(0)
    written = {}
    for dtype in DTYPES:
        for shape in ((3, 5), (1,), (7, 3, 2), (), (0, 4)):
            name = f"{dtype}-{shape}".removeprefix("torch.")
            written[name] = torch.randn(shape, generator=generator).to(dtype)
    save_file(written, tmp_path / "model.safetensors", metadata={"format": "pt"})
    found = read(tmp_path)
    assert set(found) == set(written)
    for name, tensor in written.items():
        weight = found[name]
        assert weight.shape == tuple(tensor.shape)
        assert f"torch.{weight.dtype}" == str(tensor.dtype)
        values = weight.load()
        assert values.dtype == bits(tensor).dtype
        np.testing.assert_array_equal(values, bits(tensor))


def test_special_numbers_survive(tmp_path: Path) -> None:
    """Infinities, NaN, the smallest and the largest numbers of bfloat16."""
    numbers = torch.tensor([0, 0x8000, 1, 0x7F80, 0xFF80, 0x7FC0, 0x7F7F], dtype=torch.uint16)
    save_file({"x": numbers.view(torch.bfloat16)}, tmp_path / "model.safetensors")
    np.testing.assert_array_equal(read(tmp_path)["x"].load(), numbers.numpy())


def test_shards(tmp_path: Path) -> None:
    """The index says which files belong to the model; others beside them do not."""
    tensors = {f"t{i}": torch.full((2,), float(i)) for i in range(3)}
    save_file({"t0": tensors["t0"], "t2": tensors["t2"]}, tmp_path / "b.safetensors")
    save_file({"t1": tensors["t1"]}, tmp_path / "a.safetensors")
    save_file({"other": tensors["t1"]}, tmp_path / "consolidated.safetensors")
    index = {"weight_map": {"t0": "b.safetensors", "t1": "a.safetensors", "t2": "b.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    found = read(tmp_path)
    assert sorted(found) == ["t0", "t1", "t2"]
    for name, tensor in tensors.items():
        np.testing.assert_array_equal(found[name].load(), tensor.numpy())
    (tmp_path / "a.safetensors").unlink()
    with pytest.raises(ModelLoadError, match=r"lacks the shard a\.safetensors"):
        read(tmp_path)


def test_files_without_an_index(tmp_path: Path) -> None:
    """`model.safetensors` is the model; without it, all files together are."""
    save_file({"a": torch.zeros(1)}, tmp_path / "one.safetensors")
    save_file({"b": torch.zeros(1)}, tmp_path / "two.safetensors")
    assert sorted(read(tmp_path)) == ["a", "b"]
    save_file({"a": torch.zeros(1)}, tmp_path / "model.safetensors")
    assert sorted(read(tmp_path)) == ["a"]


def test_no_weights_at_all(tmp_path: Path) -> None:
    """A directory of pickled weights says why it is not loaded."""
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(ModelLoadError, match=r"no \.safetensors file; pickled"):
        read(tmp_path)


@pytest.mark.parametrize(
    "text", ["{", "[]", "{}", '{"weight_map": []}', '{"weight_map": 3}', "null", "\xff"]
)
def test_a_broken_index_is_named(text: str, tmp_path: Path) -> None:
    """Whatever its JSON is."""
    (tmp_path / "model.safetensors.index.json").write_text(text, encoding="latin-1")
    with pytest.raises(ModelLoadError, match=r"index\.json is not a valid shard index"):
        read(tmp_path)


@pytest.mark.parametrize("name", ["../evil.safetensors", "/etc/passwd", "sub/a.safetensors", 3])
def test_an_index_does_not_lead_out_of_its_directory(name: str | int, tmp_path: Path) -> None:
    """A shard is a file of the model's own directory."""
    (tmp_path / "sub").mkdir()
    save_file({"a": torch.zeros(1)}, tmp_path / "sub" / "a.safetensors")
    index = {"weight_map": {"a": name}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ModelLoadError, match="lacks the shard"):
        read(tmp_path)


@pytest.mark.parametrize("keep", [0, 1, 8, 20, -1, -100])
def test_a_truncated_file_is_named(keep: int, tmp_path: Path) -> None:
    """Cut anywhere, it is found before any number of it is used."""
    path = tmp_path / "model.safetensors"
    save_file({"a": torch.zeros(64), "b": torch.zeros(64)}, path)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ModelLoadError, match=r"model\.safetensors.*(complete|readable)"):
        read(tmp_path)


@pytest.mark.parametrize(
    "header",
    [
        b"{",
        b"\xff\xfe",
        b" ",
        [],
        3,
        {"a": 3},
        {"a": {}},
        {"a": entry(dtype=3)},
        {"a": entry(dtype="I64")},
        {"a": entry(dtype=[])},
        {"a": entry(shape=3)},
        {"a": entry(shape=[-1, -2])},
        {"a": entry(shape=[2.0])},
        {"a": entry(shape=["2"])},
        {"a": entry(shape=[3])},
        {"a": entry(shape=[1 << 70])},
        {"a": entry(data_offsets=[0])},
        {"a": entry(data_offsets=[-8, 0])},
        {"a": entry(data_offsets=[8, 0])},
        {"a": entry(data_offsets=[1, 9])},
        {"a": entry(data_offsets=["0", "8"])},
    ],
)
def test_a_broken_header_is_a_load_error(header: Any, tmp_path: Path) -> None:
    """Of any kind, and it names the file."""
    write_raw(tmp_path / "model.safetensors", header, bytes(8))
    with pytest.raises(ModelLoadError, match=r"model\.safetensors"):
        read(tmp_path)


def test_a_huge_header_is_not_read(tmp_path: Path) -> None:
    """A length that is nonsense takes no memory."""
    path = tmp_path / "model.safetensors"
    path.write_bytes((1 << 62).to_bytes(8, "little") + b"{}")
    with pytest.raises(ModelLoadError, match="header does not fit"):
        read(tmp_path)


def test_a_file_that_shrinks_is_noticed(tmp_path: Path) -> None:
    """Between its header and its numbers a file can be replaced; no short tensor comes of it."""
    path = tmp_path / "model.safetensors"
    save_file({"a": torch.zeros(64)}, path)
    weight = read(tmp_path)["a"]
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(ModelLoadError, match="shorter"):
        weight.load()
