"""A short name for what shapes the answers: weights, precision, version."""

import hashlib
from pathlib import Path

__all__ = ["fingerprint"]

# Of each file this many blocks are read, evenly spread: training changes weights everywhere, and
# a start must not wait until many gigabytes have been read.
_NUM_BLOCKS = 64
_BLOCK_BYTES = 16 << 10
_SUFFIXES = (".safetensors", ".gguf", ".json", ".bin")


def fingerprint(model: Path, *settings: str) -> str:
    """`fp_` and 12 hexadecimal digits, another when weights or settings are.

    Args:
        model: The model's file or directory.
        settings: What else shapes the answers.
    """
    files = [model] if model.is_file() else sorted(model.iterdir())
    digest = hashlib.sha256("\0".join(settings).encode())
    for path in files:
        if path.is_file() and path.suffix in _SUFFIXES:
            digest.update(f"\0{path.name}\0{path.stat().st_size}\0".encode())
            digest.update(_sample(path))
    return f"fp_{digest.hexdigest()[:12]}"


def _sample(path: Path) -> bytes:
    """Blocks of a file, from its first byte to its last."""
    size = path.stat().st_size
    with path.open("rb") as file:
        if size <= _NUM_BLOCKS * _BLOCK_BYTES:
            return file.read()
        blocks = []
        for k in range(_NUM_BLOCKS):
            file.seek((size - _BLOCK_BYTES) * k // (_NUM_BLOCKS - 1))
            blocks.append(file.read(_BLOCK_BYTES))
        return b"".join(blocks)
