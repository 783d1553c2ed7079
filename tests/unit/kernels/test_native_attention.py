"""Native attention and the small operations: against float64, and bit for bit in any chunking."""

from collections.abc import Sequence
from ctypes import byref

import numpy as np
import pytest
from numpy.typing import NDArray

from headwater.kernels import AttentionRow
from headwater.kernels.native import Library, NativePool, StepRows
from headwater.kernels.native.structs import address
from tests.kit.native import ISAS, native_library

Floats = NDArray[np.float32]
# heads, key heads, width: groups of one and of many, widths that fill vectors and that do not
SHAPES = ((4, 4, 64), (9, 3, 64), (8, 1, 12), (40, 1, 16), (2, 2, 128))
LENGTHS = (1, 31, 32, 33, 100)


class Case:
    """Requests of several lengths on scattered pages, and their reference."""

    def __init__(
        self, shape: tuple[int, int, int], *, window: int, is_half: bool, page_size: int
    ) -> None:
        self.heads, self.kv_heads, self.width = shape
        self.window = window
        rng = np.random.default_rng(0)
        counts = [-(-n // page_size) for n in LENGTHS]
        order = rng.permutation(sum(counts) + 3).tolist()
        self.pages = [[order.pop() for _ in range(count)] for count in counts]
        self.pool = NativePool(
            num_layers=1,
            num_pages=sum(counts) + 3,
            page_size=page_size,
            num_kv_heads=self.kv_heads,
            head_dim=self.width,
            is_half=is_half,
        )
        # What no request has written is NaN: it must not be looked at.
        self.pool.k.fill(np.nan)
        self.pool.v.fill(np.nan)
        self.q = [self._random(rng, n, self.heads) for n in LENGTHS]
        self.k = [self._random(rng, n, self.kv_heads) for n in LENGTHS]
        self.v = [self._random(rng, n, self.kv_heads) for n in LENGTHS]
        for i, n in enumerate(LENGTHS):
            for p in range(n):
                page, off = self.pages[i][p // page_size], p % page_size
                self.pool.k[0, page, :, :, off] = self.k[i][p]
                self.pool.v[0, page, :, off, :] = self.v[i][p]

    def _random(self, rng: np.random.Generator, n: int, heads: int) -> Floats:
        return rng.standard_normal((n, heads, self.width), dtype=np.float32)

    def run(self, library: Library, rows: Sequence[AttentionRow], threads: int) -> Floats:
        """The library's attention for rows of (start, end, request)."""
        q = np.concatenate([self.q[i][start:end] for start, end, (i,) in rows])
        laid = StepRows([(start, end, self.pages[i]) for start, end, (i,) in rows])
        out = np.full_like(q, np.nan)
        done = library.call(
            "hw_attention",
            address(np.ascontiguousarray(q)),
            byref(laid.struct),
            byref(self.pool.struct),
            self.heads,
            self.kv_heads,
            self.width,
            self.width**-0.5,
            self.window,
            address(out),
            threads,
        )
        assert done == 0
        return out

    def reference(self, i: int) -> NDArray[np.float64]:
        """Request i in float64."""
        n = LENGTHS[i]
        repeats = self.heads // self.kv_heads
        k = np.repeat(self.k[i].astype(np.float64), repeats, axis=1)
        v = np.repeat(self.v[i].astype(np.float64), repeats, axis=1)
        scores = np.einsum("qhd,khd->hqk", self.q[i].astype(np.float64), k) * self.width**-0.5
        distance = np.arange(n)[:, None] - np.arange(n)[None, :]
        seen = distance >= 0
        if self.window:
            seen &= distance < self.window
        scores = np.where(seen, scores, -np.inf)
        weights = np.exp(scores - scores.max(axis=2, keepdims=True))
        weights /= weights.sum(axis=2, keepdims=True)
        out: NDArray[np.float64] = np.einsum("hqk,khd->qhd", weights, v)
        return out


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("window", [0, 1, 7, 40])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("is_half", [False, True])
@pytest.mark.parametrize("page_size", [4, 16, 32])
def test_attention(
    isa: str, window: int, shape: tuple[int, int, int], is_half: bool, page_size: int
) -> None:
    """Whole prompts, odd chunks and single tokens, in company: near float64, and equal bits."""
    library = native_library(isa)
    case = Case(shape, window=window, is_half=is_half, page_size=page_size)
    everything = [(0, n, (i,)) for i, n in enumerate(LENGTHS)]
    whole = case.run(library, everything, 2)
    expected = np.concatenate([case.reference(i) for i in range(len(LENGTHS))])
    assert np.abs(whole - expected).max() <= (4e-3 if is_half else 2e-6)
    offset = 0
    for i, n in enumerate(LENGTHS):
        alone = whole[offset : offset + n]
        for step in (1, 5, 32):
            parts = [(p, min(p + step, n), (i,)) for p in range(0, n, step)]
            chunked = np.concatenate([case.run(library, [row], 1) for row in parts])
            assert chunked.tobytes() == alone.tobytes(), (i, step)
        offset += n


@pytest.mark.parametrize("isa", ISAS)
def test_rms_norm(isa: str) -> None:
    """Any size, huge and tiny rows."""
    library = native_library(isa)
    rng = np.random.default_rng(1)
    for size in (1, 12, 64, 575, 576):
        x = rng.standard_normal((4, size), dtype=np.float32)
        x[1] *= 1e15
        x[2] *= 1e-15
        weight = rng.standard_normal(size, dtype=np.float32)
        out = np.empty_like(x)
        library.call("hw_rms_norm", address(x), address(weight), 1e-6, 4, size, address(out))
        wide = x.astype(np.float64)
        expected = wide / np.sqrt((wide**2).mean(axis=1, keepdims=True) + 1e-6) * weight
        np.testing.assert_allclose(out, expected, rtol=2e-6, atol=1e-30)


@pytest.mark.parametrize("isa", ISAS)
def test_silu_mul(isa: str) -> None:
    """Over the whole range of floats, and what is not a number stays so."""
    library = native_library(isa)
    for size in (5, 16, 100):
        gate = np.linspace(-200, 200, size, dtype=np.float32)
        gate[0] = np.nan
        x = np.concatenate([gate, np.full(size, 3.0, np.float32)])[None]
        out = np.empty((1, size), dtype=np.float32)
        library.call("hw_silu_mul", address(x), 1, size, address(out))
        wide = gate.astype(np.float64)
        expected = wide / (1 + np.exp(-wide)) * 3
        np.testing.assert_allclose(out[0], expected, rtol=1e-6, atol=1e-30)
