"""Rotary frequencies: all scalings that transformers knows for these families.

A scaling that depends on the length of the text (`dynamic`, `longrope`) is decided once, by the
context that is served: an answer must not depend on how long other texts, or its own later tokens,
are.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch

from headwater.errors import ModelLoadError
from headwater.models.config import DecoderConfig

__all__ = ["rotary_tables"]

_Frequencies = tuple[torch.Tensor, float]  # inverse frequencies [rotary_dim / 2], factor


def rotary_tables(
    config: DecoderConfig, *, context_length: int, dtype: torch.dtype, device: str
) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines, each [context_length, rotary_dim / 2].

    Raises:
        ModelLoadError: The scaling is unknown or lacks a parameter.
    """
    rope = config.rope
    compute = _TYPES.get(rope["rope_type"])
    if compute is None:
        known = ", ".join(sorted(_TYPES))
        raise ModelLoadError(f"rope type {rope['rope_type']!r} is unknown; known are {known}")
    try:
        inverse, factor = compute(rope, config, context_length)
    except KeyError as err:
        raise ModelLoadError(f"rope type {rope['rope_type']!r} needs the parameter {err}") from None
    angles = torch.outer(torch.arange(context_length, dtype=torch.float32), inverse)
    cos, sin = angles.cos() * factor, angles.sin() * factor
    return cos.to(device, dtype), sin.to(device, dtype)


def _rotary_dim(rope: Mapping[str, Any], config: DecoderConfig) -> int:
    return int(config.head_dim * rope["partial_rotary_factor"])


def _base_powers(rope: Mapping[str, Any], config: DecoderConfig, base: float) -> torch.Tensor:
    dim = _rotary_dim(rope, config)
    return base ** (torch.arange(0, dim, 2, dtype=torch.float32) / dim)


def _original(rope: Mapping[str, Any], config: DecoderConfig) -> int:
    return int(rope.get("original_max_position_embeddings") or config.max_position_embeddings)


def _default(rope: Mapping[str, Any], config: DecoderConfig, context_length: int) -> _Frequencies:
    """arXiv:2104.09864."""
    return 1.0 / _base_powers(rope, config, rope["rope_theta"]), 1.0


def _linear(rope: Mapping[str, Any], config: DecoderConfig, context_length: int) -> _Frequencies:
    """arXiv:2306.15595: positions are divided."""
    return _default(rope, config, context_length)[0] / rope["factor"], 1.0


def _dynamic(rope: Mapping[str, Any], config: DecoderConfig, context_length: int) -> _Frequencies:
    """NTK-aware: the base grows with the context that is served."""
    factor, dim = rope["factor"], _rotary_dim(rope, config)
    length = max(context_length, config.max_position_embeddings)
    growth = factor * length / config.max_position_embeddings - (factor - 1)
    base = rope["rope_theta"] * growth ** (dim / (dim - 2))
    return 1.0 / _base_powers(rope, config, base), 1.0


def _yarn(rope: Mapping[str, Any], config: DecoderConfig, context_length: int) -> _Frequencies:
    """arXiv:2309.00071: slow frequencies are divided, fast ones kept, with a ramp between."""
    dim, base = _rotary_dim(rope, config), rope["rope_theta"]
    original = _original(rope, config)
    factor = rope.get("factor") or config.max_position_embeddings / original

    def magnitude(scale: float, by: float = 1.0) -> float:
        return 1.0 if scale <= 1 else 0.1 * by * math.log(scale) + 1.0

    attention_factor = rope.get("attention_factor")
    if attention_factor is None:
        by, by_all = rope.get("mscale"), rope.get("mscale_all_dim")
        attention_factor = (
            magnitude(factor, by) / magnitude(factor, by_all)
            if by and by_all
            else magnitude(factor)
        )

    def dim_of(num_rotations: float) -> float:
        return dim * math.log(original / (num_rotations * 2 * math.pi)) / (2 * math.log(base))

    low, high = dim_of(rope.get("beta_fast") or 32), dim_of(rope.get("beta_slow") or 1)
    if rope.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    ramp = (torch.arange(dim // 2, dtype=torch.float32) - low) / max(high - low, 0.001)
    kept = 1 - ramp.clamp(0, 1)
    inverse = 1.0 / _base_powers(rope, config, base)
    return inverse / factor * (1 - kept) + inverse * kept, attention_factor


def _longrope(rope: Mapping[str, Any], config: DecoderConfig, context_length: int) -> _Frequencies:
    """arXiv:2402.13753: a divisor for each frequency; the long ones for a long served context."""
    original = _original(rope, config)
    key = "long_factor" if context_length > original else "short_factor"
    divisors = torch.tensor(rope[key], dtype=torch.float32)
    factor = config.max_position_embeddings / original
    if "original_max_position_embeddings" not in rope:
        factor = rope.get("factor") or factor
    attention_factor = rope.get("attention_factor")
    if attention_factor is None:
        is_longer = factor > 1
        attention_factor = (
            math.sqrt(1 + math.log(factor) / math.log(original)) if is_longer else 1.0
        )
    return 1.0 / (divisors * _base_powers(rope, config, rope["rope_theta"])), attention_factor


def _llama3(rope: Mapping[str, Any], config: DecoderConfig, context_length: int) -> _Frequencies:
    """Llama 3.1's scaling, from Meta's reference code: by wavelength, with a smooth middle."""
    factor, original = rope["factor"], rope["original_max_position_embeddings"]
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    inverse = _default(rope, config, context_length)[0]
    wavelength = 2 * math.pi / inverse
    smooth = ((original / wavelength - low) / (high - low)).clamp(0, 1)
    return (1 - smooth) * inverse / factor + smooth * inverse, 1.0


def _factors(rope: Mapping[str, Any], config: DecoderConfig, context_length: int) -> _Frequencies:
    """A GGUF file's ready-made divisors (its tensor rope_freqs.weight)."""
    divisors = torch.tensor(rope["factors"], dtype=torch.float32)
    return _default(rope, config, context_length)[0] / divisors, 1.0


_TYPES: dict[str, Callable[[Mapping[str, Any], DecoderConfig, int], _Frequencies]] = {
    "default": _default,
    "linear": _linear,
    "dynamic": _dynamic,
    "yarn": _yarn,
    "longrope": _longrope,
    "llama3": _llama3,
    "freq_factors": _factors,
}
