"""The operations in plain PyTorch: right on every device, and what native ones are held to."""

import torch
from torch.nn import functional

from headwater.kernels.attention import AttentionGroup, AttentionMeta

__all__ = ["PortableOps"]


class PortableOps:
    """Implements `Ops`."""

    def linear(
        self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
    ) -> torch.Tensor:
        """See `Ops.linear`."""
        return functional.linear(x, weight, bias)

    def rms_norm(self, x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        """See `Ops.rms_norm`; computed in float32."""
        wide = x.float()
        scaled = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
        return scaled.to(x.dtype) * weight

    def rope(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        """See `Ops.rope`."""
        half = cos.shape[-1]
        cos, sin = cos[:, None, :], sin[:, None, :]
        first, second, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
        rotated = [first * cos - second * sin, second * cos + first * sin]
        return torch.cat([*rotated, rest] if rest.shape[-1] else rotated, dim=-1)

    def write_kv(
        self,
        k: torch.Tensor,
        v: torch.Tensor,
        k_pool: torch.Tensor,
        v_pool: torch.Tensor,
        slots: torch.Tensor,
    ) -> None:
        """See `Ops.write_kv`."""
        k_pool.index_copy_(0, slots, k)
        v_pool.index_copy_(0, slots, v)

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
        """See `Ops.paged_attention`: pages are gathered, then torch's own attention runs."""
        out = torch.empty_like(q)
        for group in meta.groups:
            mask = group.sliding_mask if is_sliding else group.mask
            assert mask is not None, "a sliding layer needs the step's sliding masks"
            # [batch, kv_len, num_kv_heads, head_dim] -> [batch, num_kv_heads, kv_len, head_dim]
            k = k_pool[group.kv_slots].transpose(1, 2)
            v = v_pool[group.kv_slots].transpose(1, 2)
            attend = _attend_decode if group.is_decode else _attend_prompt
            out.index_copy_(0, group.targets, attend(q, k, v, mask, group, scale))
        return out.flatten(1)

    def silu_mul(self, gate_up: torch.Tensor) -> torch.Tensor:
        """See `Ops.silu_mul`."""
        gate, up = gate_up.chunk(2, dim=-1)
        return functional.silu(gate) * up


def _attend_decode(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: torch.Tensor,
    group: AttentionGroup,
    scale: float,
) -> torch.Tensor:
    """One query for each row: the heads that share keys stand where queries would."""
    batch, num_kv_heads, _, head_dim = k.shape
    rows = q[group.query_index[:, 0]].view(batch, num_kv_heads, -1, head_dim)
    out = functional.scaled_dot_product_attention(rows, k, v, attn_mask=mask, scale=scale)
    return out.reshape(batch, -1, head_dim)


def _attend_prompt(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: torch.Tensor,
    group: AttentionGroup,
    scale: float,
) -> torch.Tensor:
    """Several queries for each row."""
    rows = q[group.query_index].transpose(1, 2)  # [batch, num_heads, query_len, head_dim]
    out = functional.scaled_dot_product_attention(
        rows, k, v, attn_mask=mask, scale=scale, enable_gqa=rows.shape[1] != k.shape[1]
    )
    return out.transpose(1, 2).flatten(0, 1)[group.valid]
