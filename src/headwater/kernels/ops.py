"""The interface of the operations; implementations are `portable` and, later, native ones."""

from typing import Protocol

import torch

from headwater.kernels.attention import AttentionMeta

__all__ = ["Ops"]


class Ops(Protocol):
    """What a decoder layer is made of. All tensors of a call are of one type and device."""

    def linear(
        self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
    ) -> torch.Tensor:
        """Product of x [num_tokens, in] and weight [out, in] transposed, plus bias [out]."""

    def rms_norm(self, x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        """Root-mean-square norm over the last axis (arXiv:1910.07467).

        x / sqrt(mean(x^2) + eps) * weight.
        """

    def rope(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        """Rotate x [num_tokens, num_heads, head_dim] by its tokens' angles.

        The first `rotary_dim` numbers of a head are rotated, number i with number
        i + rotary_dim / 2 (arXiv:2104.09864, in the half-split order).

        Args:
            x: Queries or keys.
            cos: [num_tokens, rotary_dim / 2].
            sin: The same.
        """

    def write_kv(
        self,
        k: torch.Tensor,
        v: torch.Tensor,
        k_pool: torch.Tensor,
        v_pool: torch.Tensor,
        slots: torch.Tensor,
    ) -> None:
        """Put k, v [num_tokens, num_kv_heads, head_dim] into the slots of one layer's pool."""

    def paged_attention(
        self,
        q: torch.Tensor,
        k_pool: torch.Tensor,
        v_pool: torch.Tensor,
        meta: AttentionMeta,
        *,
        scale: float,
        is_sliding: bool,
    ) -> torch.Tensor:
        """Attention of q [num_tokens, num_heads, head_dim] over the pages of each token's request.

        Args:
            q: Queries.
            k_pool: One layer's keys [num_slots, num_kv_heads, head_dim], new ones included.
            v_pool: One layer's values.
            meta: The step.
            scale: Factor of the scores.
            is_sliding: Use the window.

        Returns:
            [num_tokens, num_heads * head_dim].
        """

    def silu_mul(self, gate_up: torch.Tensor) -> torch.Tensor:
        """Gated activation silu(gate) * up.

        gate_up [num_tokens, 2 * size] to [num_tokens, size].
        """
