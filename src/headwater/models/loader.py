"""Weights into a decoder: each tensor is read once and copied to its place in the fused matrices.

Nothing is kept twice: the places are allocated first, in the type that is served, so the peak is
the model plus one tensor.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from tqdm import tqdm

from headwater.errors import ModelLoadError
from headwater.kernels import Ops
from headwater.models.config import DecoderConfig
from headwater.models.decoder import Decoder, Layer
from headwater.models.table import family_config
from headwater.sources.info import ModelInfo
from headwater.sources.resolve import ModelFiles
from headwater.sources.weights import WeightTensor, iter_weights

__all__ = ["build_decoder", "load_model"]

# Buffers that some checkpoints carry; they follow from the config.
_IGNORED = ("rotary_emb.inv_freq", ".masked_bias", ".attn.bias")


def load_model(
    files: ModelFiles,
    info: ModelInfo,
    *,
    dtype: torch.dtype,
    device: str,
    ops: Ops,
    context_length: int,
) -> Decoder:
    """Load a model.

    Args:
        files: Where it lies.
        info: Its config.
        dtype: Type of the weights as served.
        device: Where they go.
        ops: The operations.
        context_length: Positions that will be served.

    Raises:
        ModelLoadError: The architecture is unknown, or a tensor is missing, unexpected or of the
            wrong shape; the text names it.
    """
    config = family_config(info.architecture, info.config)
    weights = tqdm(iter_weights(files), desc="loading weights", unit=" tensors", disable=None)
    return build_decoder(
        config, weights, dtype=dtype, device=device, ops=ops, context_length=context_length
    )


def build_decoder(
    config: DecoderConfig,
    weights: Iterable[WeightTensor],
    *,
    dtype: torch.dtype,
    device: str,
    ops: Ops,
    context_length: int,
) -> Decoder:
    """Allocate a decoder and fill it; see `load_model`."""
    model = _Places(config, dtype, device)
    for weight in weights:
        if weight.name.endswith(_IGNORED):
            continue
        if weight.name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        model.fill(weight)
    model.check_full()
    return Decoder(
        config,
        embedding=model.embedding,
        layers=model.layers,
        norm=model.norm,
        lm_head=model.lm_head,
        ops=ops,
        context_length=context_length,
    )


@dataclass(slots=True)
class _Place:
    """Where a checkpoint tensor goes."""

    target: torch.Tensor
    is_filled: bool = False


class _Places:
    """An empty decoder, and the place of every checkpoint name in it."""

    def __init__(self, config: DecoderConfig, dtype: torch.dtype, device: str) -> None:
        self._config = config
        self._dtype = dtype
        self._device = device
        self._places: dict[str, _Place] = {}
        hidden, vocab = config.hidden_size, config.vocab_size
        self.embedding = self._add([("model.embed_tokens.weight", vocab)], hidden)
        self.layers = [self._layer(i) for i in range(config.num_layers)]
        self.norm = self._add([("model.norm.weight", hidden)])
        self.lm_head = self.embedding
        if not config.tie_word_embeddings:
            self.lm_head = self._add([("lm_head.weight", vocab)], hidden)

    def fill(self, weight: WeightTensor) -> None:
        """Copy a tensor to its place."""
        place = self._places.get(weight.name)
        if place is None:
            raise ModelLoadError(f"the checkpoint has an unexpected tensor {weight.name}")
        if tuple(place.target.shape) != tuple(weight.shape):
            raise ModelLoadError(
                f"tensor {weight.name} has shape {list(weight.shape)}, the config says "
                f"{list(place.target.shape)}"
            )
        if place.is_filled:
            raise ModelLoadError(f"the checkpoint has tensor {weight.name} twice")
        place.target.copy_(_as_torch(weight))
        place.is_filled = True

    def check_full(self) -> None:
        """Raise when a tensor has not come."""
        missing = [name for name, place in self._places.items() if not place.is_filled]
        if missing:
            more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
            raise ModelLoadError(f"the checkpoint lacks tensor {', '.join(missing[:3])}{more}")

    def _add(self, parts: Sequence[tuple[str, int]], columns: int | None = None) -> torch.Tensor:
        """Allocate one tensor for several checkpoint tensors, stacked along the rows."""
        rows = sum(count for _, count in parts)
        shape = (rows,) if columns is None else (rows, columns)
        whole = torch.empty(shape, dtype=self._dtype, device=self._device)
        start = 0
        for name, count in parts:
            self._places[name] = _Place(whole[start : start + count])
            start += count
        return whole

    def _layer(self, index: int) -> Layer:
        config, prefix = self._config, f"model.layers.{index}."
        hidden, inner = config.hidden_size, config.intermediate_size
        q_size, kv_size = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
        qkv = {"q_proj": q_size, "k_proj": kv_size, "v_proj": kv_size}

        def named(group: str, sizes: dict[str, int], kind: str) -> list[tuple[str, int]]:
            return [(f"{prefix}{group}.{name}.{kind}", size) for name, size in sizes.items()]

        def bias(group: str, sizes: dict[str, int], has_bias: bool) -> torch.Tensor | None:
            return self._add(named(group, sizes, "bias")) if has_bias else None

        def norm(name: str, size: int) -> torch.Tensor:
            return self._add([(f"{prefix}{name}.weight", size)])

        attention, mlp = "self_attn", "mlp"
        gate_up, out, down = {"gate_proj": inner, "up_proj": inner}, {"o_proj": hidden}, hidden
        return Layer(
            input_norm=norm("input_layernorm", hidden),
            qkv=self._add(named(attention, qkv, "weight"), hidden),
            qkv_bias=bias(attention, qkv, config.qkv_bias),
            q_norm=norm("self_attn.q_norm", config.head_dim) if config.qk_norm else None,
            k_norm=norm("self_attn.k_norm", config.head_dim) if config.qk_norm else None,
            output=self._add(named(attention, out, "weight"), q_size),
            output_bias=bias(attention, out, config.output_bias),
            post_norm=norm("post_attention_layernorm", hidden),
            gate_up=self._add(named(mlp, gate_up, "weight"), hidden),
            gate_up_bias=bias(mlp, gate_up, config.mlp_bias),
            down=self._add(named(mlp, {"down_proj": down}, "weight"), inner),
            down_bias=bias(mlp, {"down_proj": down}, config.mlp_bias),
        )


def _as_torch(weight: WeightTensor) -> torch.Tensor:
    values = weight.load()
    if not values.flags.writeable:  # a view of a mapped file; torch wants to be told
        values = np.array(values)
    tensor = torch.from_numpy(values)
    return tensor.view(torch.bfloat16) if weight.dtype == "bfloat16" else tensor
