"""What a model's files say beside its weights; torch-free.

Everything comes out in the form of Hugging Face's config.json, GGUF metadata included.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headwater.errors import ModelLoadError
from headwater.sources.chat_templates import directory_templates, gguf_templates
from headwater.sources.gguf_config import config_from_gguf, eos_ids_from_gguf
from headwater.sources.gguf_file import GgufFile
from headwater.sources.json_file import read_json
from headwater.sources.resolve import ModelFiles

__all__ = ["ModelInfo", "read_model_info"]

_SPECIAL_TOKENS = (
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
)
_SAMPLING_KEYS = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")


@dataclass(slots=True, frozen=True, kw_only=True)
class ModelInfo:
    """A model without its weights.

    Attributes:
        name: A short name, from its path.
        config: As in config.json.
        generation_defaults: Sampling parameters that the model's generation_config sets.
        eos_token_ids: Tokens that end an answer.
        chat_templates: Jinja sources by name; `default`, where there is one, is the usual one.
        special_tokens: `bos_token`, `eos_token` ... as text, for the template.
        tokenizer_json: The tokenizer's file; None when it is in the GGUF.
        gguf_fields: Metadata of a GGUF file.
    """

    name: str
    config: dict[str, Any]
    generation_defaults: dict[str, Any] = field(default_factory=dict)
    eos_token_ids: list[int] = field(default_factory=list)
    chat_templates: dict[str, str] = field(default_factory=dict)
    special_tokens: dict[str, str] = field(default_factory=dict)
    tokenizer_json: Path | None = None
    gguf_fields: Mapping[str, Any] | None = None

    @property
    def architecture(self) -> str:
        """Class name in the config."""
        names = self.config.get("architectures")
        return str(names[0]) if isinstance(names, list) and names else "unknown"

    @property
    def context_length(self) -> int | None:
        """The model's own context, in tokens."""
        length = self.config.get("max_position_embeddings")
        return length if isinstance(length, int) else None


def read_model_info(files: ModelFiles) -> ModelInfo:
    """Read config, generation config, special tokens and chat template.

    Raises:
        ModelLoadError: A file is missing or broken; the text names it.
    """
    return _from_gguf(files) if files.kind == "gguf" else _from_directory(files.path)


def _from_gguf(files: ModelFiles) -> ModelInfo:
    file = GgufFile(files.path)
    fields = file.fields
    tokens = fields.get("tokenizer.ggml.tokens", [])
    special = {}
    for name, key in (("bos_token", "bos"), ("eos_token", "eos"), ("unk_token", "unknown")):
        token_id = fields.get(f"tokenizer.ggml.{key}_token_id")
        if isinstance(token_id, int) and 0 <= token_id < len(tokens):
            special[name] = tokens[token_id]
    return ModelInfo(
        name=files.path.stem,
        config=config_from_gguf(file),
        eos_token_ids=eos_ids_from_gguf(fields),
        chat_templates=gguf_templates(fields),
        special_tokens=special,
        gguf_fields=fields,
    )


def _from_directory(path: Path) -> ModelInfo:
    config = read_json(path / "config.json")
    generation = read_json(path / "generation_config.json", default={})
    settings = read_json(path / "tokenizer_config.json", default={})
    return ModelInfo(
        name=path.resolve().name,
        config=config,
        generation_defaults=_generation_defaults(generation, path / "generation_config.json"),
        eos_token_ids=_eos_ids(generation) or _eos_ids(config) or _eos_ids(_text_config(config)),
        chat_templates=directory_templates(path, settings),
        special_tokens=_special_tokens(settings),
        tokenizer_json=_tokenizer_json(path),
    )


def _text_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    inner = config.get("text_config")
    return inner if isinstance(inner, dict) else {}


def _eos_ids(config: Mapping[str, Any]) -> list[int]:
    value = config.get("eos_token_id")
    ids = value if isinstance(value, list) else [value]
    return [i for i in ids if isinstance(i, int)]


def _generation_defaults(generation: Mapping[str, Any], path: Path) -> dict[str, Any]:
    # A file that says do_sample false means greedy, whatever temperature it also carries.
    if generation.get("do_sample") is False:
        return {"temperature": 0.0}
    found = {key: generation[key] for key in _SAMPLING_KEYS if generation.get(key) is not None}
    for key, value in found.items():
        if type(value) not in (int, float):
            raise ModelLoadError(f"{path}: {key} is {value!r}, not a number")
    if found.get("top_k") == 0:
        found["top_k"] = -1  # transformers' spelling of "all"
    return found


def _special_tokens(settings: Mapping[str, Any]) -> dict[str, str]:
    found = {}
    for name in _SPECIAL_TOKENS:
        value = settings.get(name)
        if isinstance(value, dict):
            value = value.get("content")
        if isinstance(value, str):
            found[name] = value
    return found


def _tokenizer_json(path: Path) -> Path:
    file = path / "tokenizer.json"
    if file.is_file():
        return file
    if (path / "tokenizer.model").is_file():
        raise ModelLoadError(
            f"{path} has only a tokenizer.model; make a tokenizer.json from it: "
            "AutoTokenizer.from_pretrained(...).save_pretrained(...) of transformers"
        )
    raise ModelLoadError(f"{path} has no tokenizer.json")
