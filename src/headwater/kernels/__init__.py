"""The operations a model is made of, behind one interface."""

from headwater.kernels.attention import AttentionMeta, build_attention_meta
from headwater.kernels.kv_pool import KVPool
from headwater.kernels.ops import Ops
from headwater.kernels.portable import PortableOps

__all__ = ["AttentionMeta", "KVPool", "Ops", "PortableOps", "build_attention_meta", "select_ops"]


def select_ops(device: str) -> Ops:
    """The implementation for a device; there is one, in plain PyTorch, for all of them."""
    del device
    return PortableOps()
