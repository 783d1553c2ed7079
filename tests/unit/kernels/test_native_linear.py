"""Native products: against float64, on hostile numbers, and bit for bit in any company."""

from collections.abc import Sequence
from ctypes import byref

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray

from headwater.kernels.native import Library, PackedLinear, PackedMatrix, Precision, SourceKind
from headwater.kernels.native.structs import address
from tests.kit.native import ISAS, native_library

Floats = NDArray[np.float32]
PRECISIONS = (Precision.F32, Precision.F16, Precision.BF16, Precision.Q8, Precision.Q4)
SHAPES = ((1, 32), (16, 64), (17, 96), (50, 160), (192, 576))
GGUF_KINDS = {
    "Q4_0": (SourceKind.GGUF_Q4_0, Precision.Q4),
    "Q4_1": (SourceKind.GGUF_Q4_1, Precision.Q4),
    "Q4_K": (SourceKind.GGUF_Q4_K, Precision.Q4_WIDE),
    "Q8_0": (SourceKind.GGUF_Q8_0, Precision.Q8),
}


def pack(library: Library, weights: Floats, precision: Precision) -> PackedMatrix:
    """Floats to a packed matrix."""
    rows, cols = weights.shape
    return PackedMatrix(library, weights, SourceKind.F32, precision, (rows, cols))


def product(
    library: Library,
    x: Floats,
    matrices: Sequence[PackedMatrix],
    *,
    bias: Floats | None = None,
    threads: int = 2,
) -> Floats:
    """The library's own product."""
    linear = PackedLinear(list(matrices))
    out = np.full((len(x), sum(m.rows for m in matrices)), np.nan, dtype=np.float32)
    x = np.ascontiguousarray(x)
    struct = linear.struct(bias)
    assert library.call("hw_linear", address(x), len(x), byref(struct), address(out), threads) == 0
    return out


def as_seen(x: Floats, precision: Precision) -> NDArray[np.float64]:
    """The activations that a matrix of this precision meets."""
    if not precision.is_quantized:
        return x.astype(np.float64)
    groups = x.reshape(len(x), -1, 32)
    most = np.abs(groups).max(axis=2, keepdims=True)
    inverse = np.where(most > 1e-30, np.float32(127) / np.maximum(most, np.float32(1e-30)), 0)
    q = np.rint(groups * inverse.astype(np.float32))
    scale = np.where(most > 1e-30, most / np.float32(127), 0).astype(np.float32)
    seen: NDArray[np.float64] = (q.astype(np.float64) * scale).reshape(x.shape)
    return seen


def random(*shape: int, seed: int = 0) -> Floats:
    """Normal numbers."""
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("shape", SHAPES)
def test_products_equal_float64(isa: str, precision: Precision, shape: tuple[int, int]) -> None:
    """Given the weights and activations as they are kept, only the additions round."""
    library = native_library(isa)
    matrix = pack(library, random(*shape), precision)
    x, bias = random(9, shape[1], seed=1), random(shape[0], seed=2)
    weights = matrix.unpack(library).astype(np.float64)
    expected = as_seen(x, precision) @ weights.T + bias
    got = product(library, x, [matrix], bias=bias)
    bound = 1e-5 * (np.abs(as_seen(x, precision)) @ np.abs(weights.T) + 1)
    assert (np.abs(got - expected) <= bound).all()


@pytest.mark.parametrize(
    ("precision", "bound"),
    [
        (Precision.F32, 0.0),
        (Precision.F16, 1e-3),
        (Precision.BF16, 8e-3),
        (Precision.Q8, 0.03),
        (Precision.Q4, 0.25),
    ],
)
def test_weights_are_kept_as_well_as_their_form_allows(precision: Precision, bound: float) -> None:
    """Half a step of the quantization, or of the number format."""
    weights = random(40, 128)
    library = native_library()
    kept = pack(library, weights, precision).unpack(library)
    assert np.abs(kept - weights).max() <= bound * np.abs(weights).max()


@pytest.mark.parametrize("name", list(GGUF_KINDS))
def test_gguf_blocks_lose_nothing(name: str) -> None:
    """Every block that the format can hold is used as the format says."""
    kind, precision = GGUF_KINDS[name]
    quant_type = gguf.GGMLQuantizationType[name]
    block_size, block_bytes = gguf.GGML_QUANT_SIZES[quant_type]
    rng = np.random.default_rng(3)
    rows, cols = 24, 512
    blocks = rng.integers(0, 256, (rows, cols // block_size, block_bytes), dtype=np.uint8)
    # Scales are numbers, not any bits: two halves at the beginning of a block, or one.
    num_scales = 1 if name in ("Q4_0", "Q8_0") else 2
    scales = rng.standard_normal((*blocks.shape[:2], num_scales)).astype(np.float16)
    blocks[..., : 2 * num_scales] = scales.view(np.uint8).reshape(*blocks.shape[:2], -1)
    source = blocks.reshape(rows, -1)
    library = native_library()
    matrix = PackedMatrix(library, source, kind, precision, (rows, cols))
    expected = gguf.quants.dequantize(source, quant_type).reshape(rows, cols)
    np.testing.assert_array_equal(matrix.unpack(library), expected)


HOSTILE = {
    "zeros": np.zeros((3, 96), np.float32),
    "denormals": np.full((3, 96), 1e-41, np.float32),
    "an outlier in every group": np.where(np.arange(96) % 32 == 5, 1e4, random(3, 96)).astype("f4"),
    "one huge value": np.where(np.arange(96) == 40, 3e37, random(3, 96)).astype("f4"),
    "alternating signs": np.where(np.arange(96) % 2, 1, -1).astype("f4") * np.ones((3, 1), "f4"),
}


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", list(HOSTILE))
def test_hostile_numbers(isa: str, precision: Precision, name: str) -> None:
    """They stay what they are, or round as quantization does; nothing overflows on the way."""
    library = native_library(isa)
    x = HOSTILE[name]
    weights = random(20, 96)
    weights[0] = 0
    weights[1, ::2] = 0
    weights[2, 7] = 900.0
    matrix = pack(library, weights, precision)
    kept = matrix.unpack(library).astype(np.float64)
    got = product(library, x, [matrix])
    assert np.isfinite(got).all()
    seen = as_seen(x, precision)
    bound = 1e-5 * (np.abs(seen) @ np.abs(kept.T)) + 1e-30
    assert (np.abs(got - seen @ kept.T) <= bound).all()


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_shows_in_its_own_row_only(
    isa: str, precision: Precision, bad: float
) -> None:
    """A row that has gone wrong must not look right, nor touch its neighbours."""
    library = native_library(isa)
    matrix = pack(library, random(20, 64), precision)
    x = random(11, 64, seed=4)
    clean = product(library, x, [matrix])
    x[6, 33] = bad
    got = product(library, x, [matrix])
    assert not np.isfinite(got[6]).any()
    np.testing.assert_array_equal(np.delete(got, 6, axis=0), np.delete(clean, 6, axis=0))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_row_has_the_same_bits_in_any_batch(isa: str, precision: Precision) -> None:
    """1 to 64 rows, one thread or two, at any place of the batch."""
    library = native_library(isa)
    matrices = [pack(library, random(n, 96, seed=n), precision) for n in (33, 16, 7)]
    x = random(64, 96, seed=5)
    alone = np.concatenate([product(library, x[i : i + 1], matrices, threads=1) for i in range(64)])
    for count in range(1, 65):
        for threads in (1, 2):
            got = product(library, x[64 - count :], matrices, threads=threads)
            assert got.tobytes() == alone[64 - count :].tobytes(), (count, threads)


def test_parts_of_different_precision_stand_side_by_side() -> None:
    """One input, three matrices, one bias."""
    library = native_library()
    matrices = [
        pack(library, random(n, 64, seed=n), precision)
        for n, precision in ((20, Precision.Q4), (5, Precision.F16), (18, Precision.Q8))
    ]
    x, bias = random(3, 64, seed=9), random(43, seed=8)
    whole = product(library, x, matrices, bias=bias)
    single = [product(library, x, [matrix]) for matrix in matrices]
    np.testing.assert_array_equal(whole, np.concatenate(single, axis=1) + bias)


@pytest.mark.parametrize("precision", [Precision.Q8, Precision.Q4])
def test_columns_that_are_no_whole_groups_are_refused(precision: Precision) -> None:
    """The error says how long a group is."""
    with pytest.raises(ValueError, match="48 columns are not a multiple of 32"):
        pack(native_library(), random(16, 48), precision)


def test_a_form_that_cannot_hold_the_blocks_is_refused() -> None:
    """Instead of reading past their end."""
    blocks = np.zeros((16, 34), np.uint8)
    with pytest.raises(ValueError, match="GGUF_Q8_0 cannot be kept as Q4"):
        PackedMatrix(native_library(), blocks, SourceKind.GGUF_Q8_0, Precision.Q4, (16, 32))
