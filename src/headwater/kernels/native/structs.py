"""The structs and functions of csrc/headwater.h, field for field."""

import ctypes
from ctypes import (
    POINTER,
    Structure,
    c_char_p,
    c_double,
    c_float,
    c_int32,
    c_int64,
    c_void_p,
)

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "ABI_VERSION",
    "FUNCTIONS",
    "CLayer",
    "CLinear",
    "CMatrix",
    "CModel",
    "CPick",
    "CPool",
    "CRows",
    "address",
]

ABI_VERSION = 1


class CMatrix(Structure):
    """HwMatrix."""

    _fields_ = [  # ctypes' own declaration is like that
        ("data", c_void_p),
        ("format", c_int32),
        ("rows", c_int32),
        ("cols", c_int32),
        ("unused", c_int32),
    ]


class CLinear(Structure):
    """HwLinear."""

    _fields_ = [
        ("parts", CMatrix * 3),
        ("num_parts", c_int32),
        ("unused", c_int32),
        ("bias", c_void_p),
    ]


class CLayer(Structure):
    """HwLayer."""

    _fields_ = [
        ("input_norm", c_void_p),
        ("post_norm", c_void_p),
        ("q_norm", c_void_p),
        ("k_norm", c_void_p),
        ("qkv", CLinear),
        ("output", CLinear),
        ("gate_up", CLinear),
        ("down", CLinear),
        ("window", c_int32),
        ("unused", c_int32),
    ]


class CModel(Structure):
    """HwModel."""

    _fields_ = [
        ("hidden_size", c_int32),
        ("intermediate_size", c_int32),
        ("num_layers", c_int32),
        ("num_heads", c_int32),
        ("num_kv_heads", c_int32),
        ("head_dim", c_int32),
        ("rotary_dim", c_int32),
        ("vocab_size", c_int32),
        ("rms_norm_eps", c_float),
        ("scale", c_float),
        ("layers", POINTER(CLayer)),
        ("norm", c_void_p),
        ("cos", c_void_p),
        ("sin", c_void_p),
        ("embedding", CMatrix),
        ("lm_head", CMatrix),
    ]


class CPool(Structure):
    """HwPool."""

    _fields_ = [
        ("k", c_void_p),
        ("v", c_void_p),
        ("num_pages", c_int64),
        ("is_half", c_int32),
        ("page_size", c_int32),
    ]


class CPick(Structure):
    """HwPick."""

    _fields_ = [
        ("temperature", c_double),
        ("top_p", c_double),
        ("min_p", c_double),
        ("share", c_double),
        ("top_k", c_int32),
        ("is_greedy", c_int32),
        ("may_be_masked", c_int32),
        ("unused", c_int32),
    ]


class CRows(Structure):
    """HwRows."""

    _fields_ = [
        ("num_rows", c_int32),
        ("num_tokens", c_int32),
        ("starts", c_void_p),
        ("ends", c_void_p),
        ("page_offsets", c_void_p),
        ("pages", c_void_p),
    ]


_I, _P = c_int32, c_void_p

# Name to result and arguments.
FUNCTIONS: dict[str, tuple[type | None, list[type]]] = {
    "hw_abi_version": (_I, []),
    "hw_isa": (c_char_p, []),
    "hw_set_isa": (_I, [c_char_p]),
    "hw_has_threads": (_I, []),
    "hw_packed_bytes": (c_int64, [_I, _I, _I]),
    "hw_pack": (_I, [_P, _I, _I, _I, _I, _I, _P, _I]),
    "hw_unpack_row": (None, [POINTER(CMatrix), _I, _P]),
    "hw_linear": (_I, [_P, _I, POINTER(CLinear), _P, _I]),
    "hw_attention": (
        _I,
        [_P, POINTER(CRows), POINTER(CPool), _I, _I, _I, c_float, _I, _P, _I],
    ),
    "hw_rms_norm": (None, [_P, _P, c_float, _I, _I, _P]),
    "hw_silu_mul": (None, [_P, _I, _I, _P]),
    "hw_pick": (None, [_P, _I, _I, POINTER(CPick), _P, _I]),
    "hw_decoder_new": (_P, [POINTER(CModel), _I]),
    "hw_decoder_free": (None, [_P]),
    "hw_decoder_step": (_I, [_P, _P, POINTER(CRows), POINTER(CPool), _P, _I, _P]),
}


def address(values: NDArray[np.generic] | None) -> ctypes.c_void_p | None:
    """Where a C-contiguous array begins; the caller keeps it alive. None is null."""
    if values is None:
        return None
    assert values.flags.c_contiguous, "the library reads arrays as they lie in memory"
    return c_void_p(values.ctypes.data)
