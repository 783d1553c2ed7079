"""Llama 2 and 3, SmolLM2, Yi and everything else that calls itself LlamaForCausalLM."""

from collections.abc import Mapping
from typing import Any

from headwater.models.config import DecoderConfig, decoder_config

__all__ = ["read_config"]


def read_config(config: Mapping[str, Any]) -> DecoderConfig:
    """Plain pre-norm decoder; biases only where the config asks for them."""
    attention_bias = bool(config.get("attention_bias", False))
    return decoder_config(
        config,
        qkv_bias=attention_bias,
        output_bias=attention_bias,
        mlp_bias=bool(config.get("mlp_bias", False)),
    )
