"""The pre-norm decoder that all families here are a parameter set of.

It knows tensors and one step's layout, no request. Weights are fused where they share an input:
query, key and value in one matrix, gate and up in another.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from headwater.kernels import (
    AttentionMeta,
    AttentionRow,
    KVPool,
    Ops,
    Pick,
    build_attention_meta,
    pick_tokens,
)
from headwater.models.config import DecoderConfig
from headwater.models.parts import Layer, Parts
from headwater.models.rope import rotary_tables

__all__ = ["Decoder"]


class Decoder:
    """A model that can run steps.

    Args:
        config: Its shape.
        parts: Its weights.
        ops: The operations.
        context_length: Positions that can occur.

    Attributes:
        config: Its shape.
        device: Where it lies.
        cache_dtype: Type of keys and values.
        precision: Of the weights, for people.
    """

    def __init__(
        self,
        config: DecoderConfig,
        parts: Parts[torch.Tensor],
        *,
        ops: Ops,
        context_length: int,
    ) -> None:
        self.config = config
        self.dtype = parts.embedding.dtype
        self.cache_dtype = self.dtype
        self.precision = str(self.dtype).removeprefix("torch.")
        self.device = str(parts.embedding.device)
        self._embedding = parts.embedding
        self._layers = parts.layers
        self._norm = parts.norm
        self._lm_head = parts.lm_head
        self._ops = ops
        self._scale = config.head_dim**-0.5
        self._cos, self._sin = rotary_tables(
            config, context_length=context_length, dtype=self.dtype, device=self.device
        )

    @property
    def num_parameters(self) -> int:
        """Weights, tied ones counted once."""
        return sum(weight.numel() for weight in self.weights())

    @property
    def weight_bytes(self) -> int:
        """Memory of the weights."""
        return sum(weight.numel() * weight.itemsize for weight in self.weights())

    def weights(self) -> Iterator[torch.Tensor]:
        """All weights, a tied output layer once."""
        yield self._embedding
        for layer in self._layers:
            values = (getattr(layer, name) for name in Layer.__slots__)
            yield from (value for value in values if value is not None)
        yield self._norm
        if self._lm_head is not self._embedding:
            yield self._lm_head

    def make_pool(self, num_pages: int, page_size: int) -> KVPool:
        """See `models.model.StepModel`."""
        return KVPool(
            num_layers=self.config.num_layers,
            num_pages=num_pages,
            page_size=page_size,
            num_kv_heads=self.config.num_kv_heads,
            head_dim=self.config.head_dim,
            dtype=self.cache_dtype,
            device=self.device,
        )

    def step(
        self,
        token_ids: NDArray[np.int64],
        rows: Sequence[AttentionRow],
        pool: KVPool,
        logit_rows: Sequence[int],
    ) -> torch.Tensor:
        """See `models.model.StepModel`."""
        meta = build_attention_meta(
            rows,
            page_size=pool.page_size,
            sliding_window=self.config.sliding_window,
            dtype=self.dtype,
            device=self.device,
        )
        wanted = torch.tensor(logit_rows, dtype=torch.int64, device=self.device)
        ids = torch.from_numpy(token_ids).to(self.device)
        return self.forward(ids, meta, pool, wanted).cpu()

    def pick(self, logits: torch.Tensor, picks: Sequence[Pick]) -> list[int | None]:
        """See `models.model.StepModel`."""
        return pick_tokens(logits, picks)

    @torch.inference_mode()
    def forward(
        self,
        token_ids: torch.Tensor,
        meta: AttentionMeta,
        pool: KVPool,
        logit_rows: torch.Tensor,
    ) -> torch.Tensor:
        """Compute a step's tokens and write their keys and values.

        Args:
            token_ids: [num_tokens] int64, one row's tokens after the other's.
            meta: Where they stand.
            pool: Keys and values.
            logit_rows: [num_rows] int64, tokens whose logits are wanted.

        Returns:
            float32 logits [num_rows, vocab].
        """
        ops, eps = self._ops, self.config.rms_norm_eps
        cos, sin = self._cos[meta.positions], self._sin[meta.positions]
        hidden = self._embedding[token_ids]
        for index, layer in enumerate(self._layers):
            normed = ops.rms_norm(hidden, layer.input_norm, eps)
            hidden = hidden + self._attention(index, layer, normed, meta, pool, cos, sin)
            normed = ops.rms_norm(hidden, layer.post_norm, eps)
            gate_up = ops.linear(normed, layer.gate_up, layer.gate_up_bias)
            hidden = hidden + ops.linear(ops.silu_mul(gate_up), layer.down, layer.down_bias)
        last = ops.rms_norm(hidden[logit_rows], self._norm, eps)
        return ops.linear(last, self._lm_head, None).float()

    def _attention(
        self,
        index: int,
        layer: Layer[torch.Tensor],
        normed: torch.Tensor,
        meta: AttentionMeta,
        pool: KVPool,
        cos: torch.Tensor,
        sin: torch.Tensor,
    ) -> torch.Tensor:
        """Self-attention of one layer: [num_tokens, hidden] to the same."""
        ops, config = self._ops, self.config
        heads = ops.linear(normed, layer.qkv, layer.qkv_bias).view(len(normed), -1, config.head_dim)
        sizes = [config.num_heads, config.num_kv_heads, config.num_kv_heads]
        q, k, v = torch.split(heads, sizes, dim=1)
        if layer.q_norm is not None and layer.k_norm is not None:
            q = ops.rms_norm(q, layer.q_norm, config.rms_norm_eps)
            k = ops.rms_norm(k, layer.k_norm, config.rms_norm_eps)
        q, k = ops.rope(q, cos, sin), ops.rope(k, cos, sin)
        ops.write_kv(k, v, pool.k[index], pool.v[index], meta.slots)
        attended = ops.paged_attention(
            q,
            pool.k[index],
            pool.v[index],
            meta,
            scale=self._scale,
            is_sliding=index in config.sliding_layers,
        )
        return ops.linear(attended, layer.output, layer.output_bias)
