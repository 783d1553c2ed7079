"""The fingerprint: the same for the same model, another for every change that matters."""

import os
from pathlib import Path

from headwater.sources.fingerprint import fingerprint


def write(folder: Path, weights: bytes) -> Path:
    """A model of one weight file."""
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(weights)
    return folder


def test_the_same_files_have_the_same_name(tmp_path: Path) -> None:
    """Wherever they lie, and whatever lies beside them."""
    weights = os.urandom(3 << 20)
    first, second = write(tmp_path / "a", weights), write(tmp_path / "b", weights)
    (second / "README.md").write_text("hello")
    assert fingerprint(first, "float32") == fingerprint(second, "float32")
    assert fingerprint(first, "float32").startswith("fp_")


def test_every_change_gives_another_name(tmp_path: Path) -> None:
    """Weights that were trained on, one byte at either end, config, precision."""
    weights = os.urandom(3 << 20)
    changed = bytes(byte ^ 1 for byte in weights)
    names = {
        fingerprint(write(tmp_path / "a", weights), "float32"),
        fingerprint(write(tmp_path / "b", weights), "bfloat16"),
        fingerprint(write(tmp_path / "c", changed), "float32"),
        fingerprint(write(tmp_path / "d", b"x" + weights[1:]), "float32"),
        fingerprint(write(tmp_path / "e", weights[:-1] + b"x"), "float32"),
        fingerprint(write(tmp_path / "f", weights + b"x"), "float32"),
    }
    folder = write(tmp_path / "g", weights)
    (folder / "config.json").write_text('{"a": 1}')
    names.add(fingerprint(folder, "float32"))
    assert len(names) == 7


def test_a_single_file(tmp_path: Path) -> None:
    """A GGUF is a model by itself."""
    file = tmp_path / "m.gguf"
    file.write_bytes(b"abc")
    name = fingerprint(file, "q")
    file.write_bytes(b"abd")
    assert fingerprint(file, "q") != name
