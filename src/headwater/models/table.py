"""Which file serves an architecture; the names of `architectures` in config.json."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from headwater.errors import ModelLoadError
from headwater.models.config import DecoderConfig

__all__ = ["FAMILIES", "family_config"]

# Architecture to "module:function"; the function reads a config.json into a DecoderConfig.
FAMILIES: Mapping[str, str] = {
    "LlamaForCausalLM": "headwater.models.families.llama:read_config",
    "MistralForCausalLM": "headwater.models.families.mistral:read_config",
    "Qwen2ForCausalLM": "headwater.models.families.qwen2:read_config",
    "Qwen3ForCausalLM": "headwater.models.families.qwen3:read_config",
}


def family_config(architecture: str, config: Mapping[str, Any]) -> DecoderConfig:
    """The shape of a model.

    Raises:
        ModelLoadError: The architecture is unknown, or the config is incomplete.
    """
    if architecture not in FAMILIES:
        known = ", ".join(FAMILIES)
        raise ModelLoadError(f"architecture {architecture} is not supported; known are {known}")
    module, _, name = FAMILIES[architecture].partition(":")
    read: Callable[[Mapping[str, Any]], DecoderConfig] = getattr(import_module(module), name)
    return read(config)
