"""Qwen3: queries and keys are normed, head by head; no biases unless asked."""

from collections.abc import Mapping
from typing import Any

from headwater.models.config import DecoderConfig, decoder_config
from headwater.models.families.qwen2 import sliding_fields

__all__ = ["read_config"]


def read_config(config: Mapping[str, Any]) -> DecoderConfig:
    """`attention_bias` covers all four attention layers."""
    bias = bool(config.get("attention_bias", False))
    sliding = sliding_fields(config)
    return decoder_config(config, qk_norm=True, qkv_bias=bias, output_bias=bias, **sliding)
