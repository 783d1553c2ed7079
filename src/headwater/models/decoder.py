"""The pre-norm decoder that all families here are a parameter set of.

It knows tensors and one step's layout, no request. Weights are fused where they share an input:
query, key and value in one matrix, gate and up in another.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from headwater.kernels import AttentionMeta, KVPool, Ops
from headwater.models.config import DecoderConfig
from headwater.models.rope import rotary_tables

__all__ = ["Decoder", "Layer"]


@dataclass(slots=True)
class Layer:
    """Weights of one layer; matrices are [out, in].

    Attributes:
        input_norm: [hidden].
        qkv: [(num_heads + 2 * num_kv_heads) * head_dim, hidden]: queries, keys, values.
        qkv_bias: Or None.
        q_norm: [head_dim], or None.
        k_norm: [head_dim], or None.
        output: [hidden, num_heads * head_dim].
        output_bias: Or None.
        post_norm: [hidden].
        gate_up: [2 * intermediate, hidden]: gate, then up.
        gate_up_bias: Or None.
        down: [hidden, intermediate].
        down_bias: Or None.
    """

    input_norm: torch.Tensor
    qkv: torch.Tensor
    qkv_bias: torch.Tensor | None
    q_norm: torch.Tensor | None
    k_norm: torch.Tensor | None
    output: torch.Tensor
    output_bias: torch.Tensor | None
    post_norm: torch.Tensor
    gate_up: torch.Tensor
    gate_up_bias: torch.Tensor | None
    down: torch.Tensor
    down_bias: torch.Tensor | None


class Decoder:
    """A model that can run steps.

    Args:
        config: Its shape.
        embedding: [vocab, hidden].
        layers: One after the other.
        norm: [hidden], before the output layer.
        lm_head: [vocab, hidden]; the embedding itself when they are tied.
        ops: The operations.
        context_length: Positions that can occur.
    """

    def __init__(
        self,
        config: DecoderConfig,
        *,
        embedding: torch.Tensor,
        layers: list[Layer],
        norm: torch.Tensor,
        lm_head: torch.Tensor,
        ops: Ops,
        context_length: int,
    ) -> None:
        self.config = config
        self.dtype = embedding.dtype
        self.device = str(embedding.device)
        self._embedding = embedding
        self._layers = layers
        self._norm = norm
        self._lm_head = lm_head
        self._ops = ops
        self._scale = config.head_dim**-0.5
        self._cos, self._sin = rotary_tables(
            config, context_length=context_length, dtype=self.dtype, device=self.device
        )

    def weights(self) -> Iterator[torch.Tensor]:
        """All weights, a tied output layer once."""
        yield self._embedding
        for layer in self._layers:
            values = (getattr(layer, name) for name in Layer.__slots__)
            yield from (value for value in values if value is not None)
        yield self._norm
        if self._lm_head is not self._embedding:
            yield self._lm_head

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
        layer: Layer,
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
