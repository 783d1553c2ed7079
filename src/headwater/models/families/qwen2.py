"""Qwen2 and Qwen2.5: biases on queries, keys and values; windows in the upper layers if asked."""

from collections.abc import Mapping
from typing import Any

from headwater.models.config import DecoderConfig, decoder_config

__all__ = ["read_config", "sliding_fields"]


def sliding_fields(config: Mapping[str, Any]) -> dict[str, Any]:
    """Which layers have a window: `layer_types`, or those from `max_window_layers` on."""
    window = config.get("sliding_window") if config.get("use_sliding_window") else None
    if not window:
        return {}
    num_layers = config.get("num_hidden_layers", 0)
    types = config.get("layer_types")
    if types:
        layers = [i for i, kind in enumerate(types) if kind == "sliding_attention"]
    else:
        layers = list(range(config.get("max_window_layers", 28), num_layers))
    return {"sliding_window": window, "sliding_layers": frozenset(layers)}


def read_config(config: Mapping[str, Any]) -> DecoderConfig:
    """The output layer has no bias."""
    return decoder_config(config, qkv_bias=True, **sliding_fields(config))
