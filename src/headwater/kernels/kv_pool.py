"""Keys and values of all requests, in pages; it knows tensors, not who owns a page."""

import math

import numpy as np
import torch

__all__ = ["KVPool"]


class KVPool:
    """Two tensors, `k` and `v`: [num_layers, num_pages * page_size, num_kv_heads, head_dim].

    The token at position p of a request lies in slot `pages[p // page_size] * page_size +
    p % page_size` of every layer.

    Args:
        num_layers: Layers of the model.
        num_pages: Pages.
        page_size: Tokens in a page.
        num_kv_heads: Heads of keys and values.
        head_dim: Width of a head.
        dtype: Type of the numbers.
        device: Where they lie.
    """

    def __init__(
        self,
        *,
        num_layers: int,
        num_pages: int,
        page_size: int,
        num_kv_heads: int,
        head_dim: int,
        dtype: torch.dtype,
        device: str,
    ) -> None:
        shape = (num_layers, num_pages * page_size, num_kv_heads, head_dim)
        self.k = _zeros(shape, dtype, device)
        self.v = _zeros(shape, dtype, device)
        self.num_pages = num_pages
        self.page_size = page_size


def _zeros(shape: tuple[int, ...], dtype: torch.dtype, device: str) -> torch.Tensor:
    """Zeros: padding reads slots that nobody has written, and NaN times a weight of 0 is NaN.

    On a CPU numpy leaves the zeroing to the system, page by page at first use, so a large pool
    costs neither time at the start nor memory before it is needed.
    """
    if device != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    num_bytes = math.prod(shape) * dtype.itemsize
    return torch.from_numpy(np.zeros(num_bytes, dtype=np.uint8)).view(dtype).view(shape)
