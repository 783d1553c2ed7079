"""A decoder's shape, from a config in Hugging Face form; refuses what it does not know."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headwater.errors import ModelLoadError

__all__ = ["DecoderConfig", "decoder_config"]


@dataclass(slots=True, frozen=True, kw_only=True)
class DecoderConfig:
    """What `models.decoder` is a function of.

    Attributes:
        vocab_size: Rows of the embedding.
        hidden_size: Width of the residual stream.
        intermediate_size: Width of the MLP.
        num_layers: Layers.
        num_heads: Query heads.
        num_kv_heads: Key and value heads.
        head_dim: Width of a head.
        rms_norm_eps: Added under the root.
        rope: Rotary parameters: `rope_type`, `rope_theta` and those of the type.
        max_position_embeddings: The model's own context, in tokens.
        tie_word_embeddings: The output layer is the embedding.
        qkv_bias: Query, key and value layers have biases.
        output_bias: The attention's output layer has a bias.
        mlp_bias: The MLP's layers have biases.
        qk_norm: Queries and keys are normed, head by head.
        sliding_window: Positions seen by windowed layers, or None.
        sliding_layers: Which layers have the window.
    """

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_norm_eps: float
    rope: Mapping[str, Any]
    max_position_embeddings: int
    tie_word_embeddings: bool
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    sliding_window: int | None = None
    sliding_layers: frozenset[int] = field(default_factory=frozenset)


def decoder_config(config: Mapping[str, Any], **family: Any) -> DecoderConfig:
    """Read the fields that all families share.

    Args:
        config: A config.json.
        family: What the family sets itself (`qkv_bias`, `qk_norm`, `sliding_window` ...).

    Raises:
        ModelLoadError: A field is missing or has a value that is not supported.
    """

    def need(key: str) -> Any:
        if config.get(key) is None:
            raise ModelLoadError(f"config.json lacks {key}")
        return config[key]

    if config.get("hidden_act", "silu") != "silu":
        raise ModelLoadError(f"hidden_act {config['hidden_act']!r} is not supported, only silu")
    num_heads, hidden_size = need("num_attention_heads"), need("hidden_size")
    num_kv_heads = config.get("num_key_value_heads") or num_heads
    if num_heads % num_kv_heads:
        raise ModelLoadError(f"{num_heads} heads cannot share {num_kv_heads} key and value heads")
    return DecoderConfig(
        vocab_size=need("vocab_size"),
        hidden_size=hidden_size,
        intermediate_size=need("intermediate_size"),
        num_layers=need("num_hidden_layers"),
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=config.get("head_dim") or hidden_size // num_heads,
        rms_norm_eps=config.get("rms_norm_eps", 1e-6),
        rope=_rope(config),
        max_position_embeddings=need("max_position_embeddings"),
        tie_word_embeddings=bool(config.get("tie_word_embeddings", False)),
        **family,
    )


def _rope(config: Mapping[str, Any]) -> dict[str, Any]:
    """Rotary parameters, from both the older (`rope_scaling`) and the newer spelling."""
    rope = dict(config.get("rope_parameters") or config.get("rope_scaling") or {})
    rope.setdefault("rope_type", rope.pop("type", None) or "default")
    rope.setdefault("rope_theta", config.get("rope_theta", 10000.0))
    rope.setdefault("partial_rotary_factor", config.get("partial_rotary_factor") or 1.0)
    if config.get("original_max_position_embeddings"):
        rope["original_max_position_embeddings"] = config["original_max_position_embeddings"]
    return rope
