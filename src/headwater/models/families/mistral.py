"""Mistral: Llama's layer, all layers with a sliding window where the config has one."""

from collections.abc import Mapping
from typing import Any

from headwater.models.config import DecoderConfig, decoder_config

__all__ = ["read_config"]


def read_config(config: Mapping[str, Any]) -> DecoderConfig:
    """`sliding_window` null means none."""
    window = config.get("sliding_window")
    layers = range(config.get("num_hidden_layers", 0)) if window else ()
    return decoder_config(config, sliding_window=window, sliding_layers=frozenset(layers))
