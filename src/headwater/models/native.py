"""The decoder on the native CPU operations: packed weights, one call a step."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from headwater.errors import ModelLoadError
from headwater.kernels import AttentionRow, Pick
from headwater.kernels.native import (
    DecoderStack,
    Library,
    NativePool,
    PackedLinear,
    PackedMatrix,
    Precision,
    SourceKind,
    StackLayer,
    StackShape,
    pick_tokens_natively,
)
from headwater.models.config import DecoderConfig
from headwater.models.loader import load_parts, read_weights
from headwater.models.parts import Layer, Parts
from headwater.models.rope import rotary_tables
from headwater.models.storage import Slot, tensor_slots
from headwater.models.table import family_config
from headwater.sources.info import ModelInfo
from headwater.sources.resolve import ModelFiles
from headwater.sources.weights import WeightTensor

__all__ = ["NativeDecoder", "WeightPrecision", "load_native_model"]

# Blocks that are kept without loss, and how.
_BLOCKS = {
    "Q4_0": (SourceKind.GGUF_Q4_0, Precision.Q4),
    "Q4_1": (SourceKind.GGUF_Q4_1, Precision.Q4),
    "Q4_K": (SourceKind.GGUF_Q4_K, Precision.Q4_WIDE),
    "Q8_0": (SourceKind.GGUF_Q8_0, Precision.Q8),
}
_FLOATS = {
    "float32": (SourceKind.F32, Precision.F32),
    "float16": (SourceKind.F16, Precision.F16),
    "bfloat16": (SourceKind.BF16, Precision.BF16),
}


@dataclass(slots=True, frozen=True)
class WeightPrecision:
    """How matrices are kept.

    Attributes:
        layers: Precision of the layers; None: as the checkpoint has it.
        vocab: The same for embedding and output layer.
    """

    layers: Precision | None = None
    vocab: Precision | None = None


def load_native_model(
    files: ModelFiles,
    info: ModelInfo,
    *,
    library: Library,
    precision: WeightPrecision,
    num_threads: int,
    context_length: int,
) -> "NativeDecoder":
    """Load a model into packed matrices.

    Args:
        files: Where it lies.
        info: Its config.
        library: The native operations.
        precision: How to keep it.
        num_threads: Threads of a step.
        context_length: Positions that will be served.

    Raises:
        ModelLoadError: The architecture is unknown, or a tensor is missing, unexpected, of the
            wrong shape or cannot be kept in that precision; the text names it.
    """
    config = family_config(info.architecture, info.config)
    storage = _PackedStorage(library, precision, config.vocab_size)
    parts = load_parts(config, read_weights(files), storage)
    return NativeDecoder(
        config, parts, library, num_threads=num_threads, context_length=context_length
    )


class _PackedStorage:
    """Implements `Storage`: matrices are packed when their weights come."""

    def __init__(self, library: Library, precision: WeightPrecision, vocab_size: int) -> None:
        self._library = library
        self._precision = precision
        self._vocab_size = vocab_size

    def matrix(self, rows: Sequence[int], columns: int) -> tuple[PackedLinear, list[Slot]]:
        """See `Storage.matrix`."""
        linear = PackedLinear([None] * len(rows))
        is_vocab = list(rows) == [self._vocab_size]
        wanted = self._precision.vocab if is_vocab else self._precision.layers
        slots = []
        for i, count in enumerate(rows):

            def fill(weight: WeightTensor, i: int = i) -> None:
                linear.parts[i] = self._pack(weight, wanted)

            slots.append(Slot((count, columns), fill))
        return linear, slots

    def vector(self, sizes: Sequence[int]) -> tuple[torch.Tensor, list[Slot]]:
        """See `Storage.vector`."""
        whole = torch.empty((sum(sizes),), dtype=torch.float32)
        return whole, tensor_slots(whole, sizes)

    def _pack(self, weight: WeightTensor, wanted: Precision | None) -> PackedMatrix:
        rows, columns = weight.shape
        kind, precision, blocks = _form(weight, wanted)
        try:
            source = weight.load() if blocks is None else blocks
            if source.dtype == np.float64:
                source = source.astype(np.float32)
            return PackedMatrix(self._library, source, kind, precision, (rows, columns))
        except ValueError as err:
            raise ModelLoadError(
                f"tensor {weight.name} cannot be kept as {precision.name}: {err}; "
                "choose another --quantization"
            ) from None


def _form(
    weight: WeightTensor, wanted: Precision | None
) -> tuple[SourceKind, Precision, NDArray[np.uint8] | None]:
    """What a tensor is packed from and to, and its blocks when they are taken as they are."""
    if weight.block_type in _BLOCKS and weight.load_blocks is not None:
        kind, own = _BLOCKS[weight.block_type]
        is_four_bit = wanted is Precision.Q4 and own is Precision.Q4_WIDE
        if wanted in (None, own) or is_four_bit:
            return kind, own, weight.load_blocks()
    if weight.block_type is not None and wanted is None and weight.block_type not in ("F16", "F32"):
        return SourceKind.F32, Precision.Q8, None  # five bits and the like: the next wider form
    kind, own = _FLOATS.get(weight.dtype, _FLOATS["float32"])
    return kind, own if wanted is None else wanted, None


class NativeDecoder:
    """Implements `StepModel`.

    Args:
        config: Its shape.
        parts: Its weights.
        library: The native operations.
        num_threads: Threads of a step.
        context_length: Positions that can occur.
    """

    def __init__(
        self,
        config: DecoderConfig,
        parts: Parts[PackedLinear],
        library: Library,
        *,
        num_threads: int,
        context_length: int,
    ) -> None:
        self.config = config
        self.device = "cpu"
        self._parts = parts
        self._library = library
        self._num_threads = num_threads
        kinds = Counter[str]()
        for matrix in self._matrices():
            kinds[matrix.precision.label] += matrix.data.nbytes
        is_exact = set(kinds) == {Precision.F32.label}
        self.cache_dtype = torch.float32 if is_exact else torch.float16
        self.precision = "+".join(name for name, _ in kinds.most_common())
        cos, sin = rotary_tables(
            config, context_length=context_length, dtype=torch.float32, device="cpu"
        )
        self._stack = DecoderStack(
            library,
            _shape(config, rotary_dim=2 * cos.shape[-1]),
            embedding=parts.embedding.matrices[0],
            layers=[_layer(config, i, layer) for i, layer in enumerate(parts.layers)],
            norm=parts.norm.numpy(),
            lm_head=parts.lm_head.matrices[0],
            cos=np.ascontiguousarray(cos.numpy()),
            sin=np.ascontiguousarray(sin.numpy()),
            num_threads=num_threads,
        )

    @property
    def num_parameters(self) -> int:
        """Weights, tied ones counted once."""
        matrices = sum(matrix.rows * matrix.cols for matrix in self._matrices())
        return matrices + sum(vector.numel() for vector in self._vectors())

    @property
    def weight_bytes(self) -> int:
        """Memory of the weights."""
        matrices = sum(matrix.data.nbytes for matrix in self._matrices())
        return matrices + sum(vector.nbytes for vector in self._vectors())

    def make_pool(self, num_pages: int, page_size: int) -> NativePool:
        """See `StepModel`."""
        return NativePool(
            num_layers=self.config.num_layers,
            num_pages=num_pages,
            page_size=page_size,
            num_kv_heads=self.config.num_kv_heads,
            head_dim=self.config.head_dim,
            is_half=self.cache_dtype == torch.float16,
        )

    def step(
        self,
        token_ids: NDArray[np.int64],
        rows: Sequence[AttentionRow],
        pool: NativePool,
        logit_rows: Sequence[int],
    ) -> torch.Tensor:
        """See `StepModel`."""
        return torch.from_numpy(self._stack.step(token_ids, rows, pool, logit_rows))

    def pick(self, logits: torch.Tensor, picks: Sequence[Pick]) -> list[int | None]:
        """See `StepModel`."""
        rows = np.ascontiguousarray(logits.numpy())
        return pick_tokens_natively(self._library, rows, picks, self._num_threads)

    def _matrices(self) -> Iterable[PackedMatrix]:
        parts = self._parts
        yield from parts.embedding.matrices
        for layer in parts.layers:
            for linear in (layer.qkv, layer.output, layer.gate_up, layer.down):
                yield from linear.matrices
        if parts.lm_head is not parts.embedding:
            yield from parts.lm_head.matrices

    def _vectors(self) -> Iterable[torch.Tensor]:
        yield self._parts.norm
        for layer in self._parts.layers:
            values = (getattr(layer, name) for name in Layer.__dataclass_fields__)
            yield from (value for value in values if isinstance(value, torch.Tensor))


def _shape(config: DecoderConfig, *, rotary_dim: int) -> StackShape:
    return StackShape(
        hidden_size=config.hidden_size,
        intermediate_size=config.intermediate_size,
        num_heads=config.num_heads,
        num_kv_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        rotary_dim=rotary_dim,
        vocab_size=config.vocab_size,
        rms_norm_eps=config.rms_norm_eps,
        scale=config.head_dim**-0.5,
    )


def _layer(config: DecoderConfig, index: int, layer: Layer[PackedLinear]) -> StackLayer:
    def array(vector: torch.Tensor | None) -> NDArray[np.float32] | None:
        return None if vector is None else vector.numpy()

    is_sliding = index in config.sliding_layers and config.sliding_window is not None
    return StackLayer(
        input_norm=layer.input_norm.numpy(),
        post_norm=layer.post_norm.numpy(),
        q_norm=array(layer.q_norm),
        k_norm=array(layer.k_norm),
        qkv=layer.qkv,
        qkv_bias=array(layer.qkv_bias),
        output=layer.output,
        output_bias=array(layer.output_bias),
        gate_up=layer.gate_up,
        gate_up_bias=array(layer.gate_up_bias),
        down=layer.down,
        down_bias=array(layer.down_bias),
        window=(config.sliding_window or 0) if is_sliding else 0,
    )
