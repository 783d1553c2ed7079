"""A decoder's layers in one call of the library."""

import itertools
from collections.abc import Sequence
from ctypes import byref
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headwater.kernels.attention import AttentionRow
from headwater.kernels.native.library import Library
from headwater.kernels.native.matrix import PackedLinear, PackedMatrix
from headwater.kernels.native.pool import NativePool
from headwater.kernels.native.structs import CLayer, CModel, CRows, address

__all__ = ["DecoderStack", "StackLayer", "StackShape", "StepRows"]

_Vector = NDArray[np.float32]


@dataclass(slots=True, frozen=True, kw_only=True)
class StackShape:
    """The numbers of HwModel; see csrc/headwater.h."""

    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rotary_dim: int
    vocab_size: int
    rms_norm_eps: float
    scale: float


@dataclass(slots=True, frozen=True, kw_only=True)
class StackLayer:
    """One layer's weights; vectors are float32, `window` 0 sees all positions."""

    input_norm: _Vector
    post_norm: _Vector
    q_norm: _Vector | None
    k_norm: _Vector | None
    qkv: PackedLinear
    qkv_bias: _Vector | None
    output: PackedLinear
    output_bias: _Vector | None
    gate_up: PackedLinear
    gate_up_bias: _Vector | None
    down: PackedLinear
    down_bias: _Vector | None
    window: int

    def struct(self) -> CLayer:
        """The C struct; this layer must outlive it."""
        return CLayer(
            input_norm=address(self.input_norm),
            post_norm=address(self.post_norm),
            q_norm=address(self.q_norm),
            k_norm=address(self.k_norm),
            qkv=self.qkv.struct(self.qkv_bias),
            output=self.output.struct(self.output_bias),
            gate_up=self.gate_up.struct(self.gate_up_bias),
            down=self.down.struct(self.down_bias),
            window=self.window,
        )


class StepRows:
    """A step's rows as arrays; the struct points into them.

    Args:
        rows: Start, end and pages of each.
    """

    def __init__(self, rows: Sequence[AttentionRow]) -> None:
        self._starts = np.array([row[0] for row in rows], dtype=np.int32)
        self._ends = np.array([row[1] for row in rows], dtype=np.int32)
        counts = [len(row[2]) for row in rows]
        self._offsets = np.cumsum([0, *counts], dtype=np.int64)
        pages = itertools.chain.from_iterable(row[2] for row in rows)
        self._pages = np.fromiter(pages, dtype=np.int32, count=int(self._offsets[-1]))
        self.num_tokens = int((self._ends - self._starts).sum())
        self.struct = CRows(
            len(rows),
            self.num_tokens,
            address(self._starts),
            address(self._ends),
            address(self._offsets),
            address(self._pages),
        )


class DecoderStack:
    """Runs steps.

    Args:
        library: The native library.
        shape: Sizes.
        embedding: [vocab, hidden].
        layers: One after the other.
        norm: [hidden], before the output layer.
        lm_head: [vocab, hidden].
        cos: [context, rotary_dim / 2].
        sin: The same.
        num_threads: Threads of a step.
    """

    def __init__(
        self,
        library: Library,
        shape: StackShape,
        *,
        embedding: PackedMatrix,
        layers: Sequence[StackLayer],
        norm: _Vector,
        lm_head: PackedMatrix,
        cos: _Vector,
        sin: _Vector,
        num_threads: int,
    ) -> None:
        self._library = library
        self._vocab_size = shape.vocab_size
        self._kept = (embedding, list(layers), norm, lm_head, cos, sin)  # C points into these
        self._layers = (CLayer * len(layers))(*(layer.struct() for layer in layers))
        model = CModel(
            hidden_size=shape.hidden_size,
            intermediate_size=shape.intermediate_size,
            num_layers=len(layers),
            num_heads=shape.num_heads,
            num_kv_heads=shape.num_kv_heads,
            head_dim=shape.head_dim,
            rotary_dim=shape.rotary_dim,
            vocab_size=shape.vocab_size,
            rms_norm_eps=shape.rms_norm_eps,
            scale=shape.scale,
            layers=self._layers,
            norm=address(norm),
            cos=address(cos),
            sin=address(sin),
            embedding=embedding.struct,
            lm_head=lm_head.struct,
        )
        self._handle = library.call("hw_decoder_new", byref(model), num_threads)

    def __del__(self) -> None:
        handle = getattr(self, "_handle", None)
        if handle is not None:
            self._library.call("hw_decoder_free", handle)

    def step(
        self,
        token_ids: NDArray[np.int64],
        rows: Sequence[AttentionRow],
        pool: NativePool,
        logit_rows: Sequence[int],
    ) -> NDArray[np.float32]:
        """Compute a step's tokens and write their keys and values.

        Args:
            token_ids: [num_tokens], one row's tokens after the other's.
            rows: Where they stand.
            pool: Keys and values, float32 or float16.
            logit_rows: Tokens whose logits are wanted.

        Returns:
            Logits [len(logit_rows), vocab].

        Raises:
            MemoryError: There is none left for the step.
        """
        laid = StepRows(rows)
        assert laid.num_tokens == len(token_ids), "rows and ids disagree"
        wanted = np.array(logit_rows, dtype=np.int64)
        logits = np.empty((len(wanted), self._vocab_size), dtype=np.float32)
        done = self._library.call(
            "hw_decoder_step",
            self._handle,
            address(token_ids),
            byref(laid.struct),
            byref(pool.struct),
            address(wanted),
            len(wanted),
            address(logits),
        )
        if done != 0:
            raise MemoryError("no memory for a step")
        return logits
