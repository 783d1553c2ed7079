"""Keys and values of all requests, laid out as the native attention reads them."""

import math

import numpy as np
from numpy.typing import NDArray

from headwater.kernels.native.structs import CPool

__all__ = ["NativePool"]


class NativePool:
    """Arrays `k` [num_layers, num_pages, num_kv_heads, head_dim, page_size] and
    `v` [num_layers, num_pages, num_kv_heads, page_size, head_dim].

    The system zeroes them page by page at first use, so a large pool costs neither time nor memory
    before it is needed.

    Args:
        num_layers: Layers of the model.
        num_pages: Pages.
        page_size: Tokens in a page; the attention is fastest with multiples of 16.
        num_kv_heads: Heads of keys and values.
        head_dim: Width of a head.
        is_half: float16 instead of float32.

    Raises:
        MemoryError: There is none for it.
    """

    def __init__(
        self,
        *,
        num_layers: int,
        num_pages: int,
        page_size: int,
        num_kv_heads: int,
        head_dim: int,
        is_half: bool,
    ) -> None:
        self.num_pages = num_pages
        self.page_size = page_size
        outer = (num_layers, num_pages, num_kv_heads)
        dtype = np.float16 if is_half else np.float32
        self.k = _zeros((*outer, head_dim, page_size), dtype)
        self.v = _zeros((*outer, page_size, head_dim), dtype)
        self.struct = CPool(
            self.k.ctypes.data, self.v.ctypes.data, num_pages, int(is_half), page_size
        )


# Reads of whole vectors may pass the last number's end; what lies there does not matter.
_SLACK = 64


def _zeros(shape: tuple[int, ...], dtype: type[np.floating]) -> NDArray[np.floating]:
    count = math.prod(shape)
    return np.zeros(count + _SLACK, dtype=dtype)[:count].reshape(shape)
