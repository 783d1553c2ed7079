"""Weights into a decoder: each tensor is read once and copied to its place in the fused matrices.

Nothing is kept twice: the places are allocated first, in the type that is served, so the peak is
the model plus one tensor.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Generic

import torch
from tqdm import tqdm

from headwater.errors import ModelLoadError
from headwater.kernels import Ops
from headwater.models.config import DecoderConfig
from headwater.models.decoder import Decoder
from headwater.models.parts import Layer, MatrixT, Parts
from headwater.models.storage import Slot, Storage, TensorStorage
from headwater.models.table import family_config
from headwater.sources.info import ModelInfo
from headwater.sources.resolve import ModelFiles
from headwater.sources.weights import WeightTensor, iter_weights

__all__ = ["load_model", "load_parts", "read_weights"]

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
    """Load a model into plain tensors.

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
    parts = load_parts(config, read_weights(files), TensorStorage(dtype, device))
    return Decoder(config, parts, ops=ops, context_length=context_length)


def read_weights(files: ModelFiles) -> Iterable[WeightTensor]:
    """A model's weights, with a progress bar on a terminal."""
    return tqdm(iter_weights(files), desc="loading weights", unit=" tensors", disable=None)


def load_parts(
    config: DecoderConfig, weights: Iterable[WeightTensor], storage: Storage[MatrixT]
) -> Parts[MatrixT]:
    """Allocate the parts of a decoder and fill them; see `load_model`."""
    places = _Places(config, storage)
    for weight in weights:
        if weight.name.endswith(_IGNORED):
            continue
        if weight.name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        places.fill(weight)
    places.check_full()
    return places.parts


@dataclass(slots=True)
class _Place:
    """Where a checkpoint tensor goes."""

    slot: Slot
    is_filled: bool = False


class _Places(Generic[MatrixT]):
    """An empty decoder, and the place of every checkpoint name in it."""

    def __init__(self, config: DecoderConfig, storage: Storage[MatrixT]) -> None:
        self._config = config
        self._storage = storage
        self._places: dict[str, _Place] = {}
        hidden, vocab = config.hidden_size, config.vocab_size
        embedding = self._matrix([("model.embed_tokens.weight", vocab)], hidden)
        layers = [self._layer(i) for i in range(config.num_layers)]
        norm = self._vector([("model.norm.weight", hidden)])
        lm_head = embedding
        if not config.tie_word_embeddings:
            lm_head = self._matrix([("lm_head.weight", vocab)], hidden)
        self.parts = Parts(embedding, layers, norm, lm_head)

    def fill(self, weight: WeightTensor) -> None:
        """Copy a tensor to its place."""
        place = self._places.get(weight.name)
        if place is None:
            raise ModelLoadError(f"the checkpoint has an unexpected tensor {weight.name}")
        if tuple(place.slot.shape) != tuple(weight.shape):
            raise ModelLoadError(
                f"tensor {weight.name} has shape {list(weight.shape)}, the config says "
                f"{list(place.slot.shape)}"
            )
        if place.is_filled:
            raise ModelLoadError(f"the checkpoint has tensor {weight.name} twice")
        place.slot.fill(weight)
        place.is_filled = True

    def check_full(self) -> None:
        """Raise when a tensor has not come."""
        missing = [name for name, place in self._places.items() if not place.is_filled]
        if missing:
            more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
            raise ModelLoadError(f"the checkpoint lacks tensor {', '.join(missing[:3])}{more}")

    def _matrix(self, parts: Sequence[tuple[str, int]], columns: int) -> MatrixT:
        """One matrix for several checkpoint tensors, stacked along the rows."""
        matrix, slots = self._storage.matrix([rows for _, rows in parts], columns)
        self._note(parts, slots)
        return matrix

    def _vector(self, parts: Sequence[tuple[str, int]]) -> torch.Tensor:
        """The same for vectors, one after the other."""
        vector, slots = self._storage.vector([size for _, size in parts])
        self._note(parts, slots)
        return vector

    def _note(self, parts: Sequence[tuple[str, int]], slots: Sequence[Slot]) -> None:
        for (name, _), slot in zip(parts, slots, strict=True):
            self._places[name] = _Place(slot)

    def _layer(self, index: int) -> Layer[MatrixT]:
        config, prefix = self._config, f"model.layers.{index}."
        hidden, inner = config.hidden_size, config.intermediate_size
        q_size, kv_size = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
        qkv = {"q_proj": q_size, "k_proj": kv_size, "v_proj": kv_size}

        def named(group: str, sizes: dict[str, int], kind: str) -> list[tuple[str, int]]:
            return [(f"{prefix}{group}.{name}.{kind}", size) for name, size in sizes.items()]

        def bias(group: str, sizes: dict[str, int], has_bias: bool) -> torch.Tensor | None:
            return self._vector(named(group, sizes, "bias")) if has_bias else None

        def norm(name: str, size: int) -> torch.Tensor:
            return self._vector([(f"{prefix}{name}.weight", size)])

        attention, mlp = "self_attn", "mlp"
        gate_up, out, down = {"gate_proj": inner, "up_proj": inner}, {"o_proj": hidden}, hidden
        return Layer(
            input_norm=norm("input_layernorm", hidden),
            qkv=self._matrix(named(attention, qkv, "weight"), hidden),
            qkv_bias=bias(attention, qkv, config.qkv_bias),
            q_norm=norm("self_attn.q_norm", config.head_dim) if config.qk_norm else None,
            k_norm=norm("self_attn.k_norm", config.head_dim) if config.qk_norm else None,
            output=self._matrix(named(attention, out, "weight"), q_size),
            output_bias=bias(attention, out, config.output_bias),
            post_norm=norm("post_attention_layernorm", hidden),
            gate_up=self._matrix(named(mlp, gate_up, "weight"), hidden),
            gate_up_bias=bias(mlp, gate_up, config.mlp_bias),
            down=self._matrix(named(mlp, {"down_proj": down}, "weight"), inner),
            down_bias=bias(mlp, {"down_proj": down}, config.mlp_bias),
        )
