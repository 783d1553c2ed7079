"""The operations a model is made of, behind one interface."""

from headwater.kernels.attention import AttentionMeta, AttentionRow, build_attention_meta
from headwater.kernels.kv_pool import KVPool
from headwater.kernels.ops import Ops
from headwater.kernels.pick import Pick, pick_tokens
from headwater.kernels.portable import PortableOps

__all__ = [
    "AttentionMeta",
    "AttentionRow",
    "KVPool",
    "Ops",
    "Pick",
    "PortableOps",
    "build_attention_meta",
    "pick_tokens",
    "select_ops",
]


def select_ops(device: str) -> Ops:
    """The implementation for a device; there is one, in plain PyTorch, for all of them."""
    del device
    return PortableOps()
