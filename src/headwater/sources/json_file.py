"""JSON files of a model directory; it knows no keys."""

import json
from pathlib import Path
from typing import Any

from headwater.errors import ModelLoadError

__all__ = ["read_json"]


def read_json(path: Path, default: dict[str, Any] | None = None) -> dict[str, Any]:
    """An object from a JSON file.

    Args:
        path: The file.
        default: What a missing file means; None makes it an error.

    Raises:
        ModelLoadError: It cannot be read, or holds no object.
    """
    if default is not None and not path.is_file():
        return default
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError as err:
        raise ModelLoadError(f"cannot read {path}: {err}") from None
    except ValueError as err:
        raise ModelLoadError(f"{path} is not valid JSON: {err}") from None
    if not isinstance(value, dict):
        raise ModelLoadError(f"{path} must hold a JSON object")
    return value
