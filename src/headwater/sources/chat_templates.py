"""A model's own chat templates, by name, from its directory or its GGUF metadata; unchecked."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headwater.errors import ModelLoadError
from headwater.sources.json_file import read_json

__all__ = ["directory_templates", "gguf_templates"]

_GGUF_KEY = "tokenizer.chat_template"


def directory_templates(path: Path, settings: Mapping[str, Any]) -> dict[str, str]:
    """Templates of a model directory; files come before the tokenizer's settings.

    Args:
        path: The directory.
        settings: Its tokenizer_config.json.

    Raises:
        ModelLoadError: A file cannot be read.
    """
    files = sorted((path / "additional_chat_templates").glob("*.jinja"))
    main = path / "chat_template.jinja"
    if main.is_file() or files:
        named = {"default": main} if main.is_file() else {}
        return {name: _read(file) for name, file in {**named, **{f.stem: f for f in files}}.items()}
    template = settings.get("chat_template")
    if template is None:
        template = read_json(path / "chat_template.json", default={}).get("chat_template")
    if isinstance(template, list):  # several, by name
        found = [(t.get("name"), t.get("template")) for t in template if isinstance(t, dict)]
        return _texts(dict(found))
    return _texts({"default": template})


def gguf_templates(fields: Mapping[str, Any]) -> dict[str, str]:
    """Templates of a GGUF file: `tokenizer.chat_template`, and `tokenizer.chat_template.NAME`."""
    named = {
        key.removeprefix(f"{_GGUF_KEY}."): value
        for key, value in fields.items()
        if key.startswith(f"{_GGUF_KEY}.")
    }
    return _texts({"default": fields.get(_GGUF_KEY), **named})


def _texts(templates: Mapping[Any, Any]) -> dict[str, str]:
    return {
        name: template
        for name, template in templates.items()
        if isinstance(name, str) and isinstance(template, str)
    }


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as err:
        raise ModelLoadError(f"cannot read {file}: {err}") from None
