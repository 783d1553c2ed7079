"""The CPU operations of csrc/: a shared library behind a C interface."""

from headwater.kernels.native.library import Library, find_library, load_library
from headwater.kernels.native.matrix import PackedLinear, PackedMatrix, Precision, SourceKind
from headwater.kernels.native.pick import pick_tokens_natively
from headwater.kernels.native.pool import NativePool
from headwater.kernels.native.stack import DecoderStack, StackLayer, StackShape, StepRows

__all__ = [
    "DecoderStack",
    "Library",
    "NativePool",
    "PackedLinear",
    "PackedMatrix",
    "Precision",
    "SourceKind",
    "StackLayer",
    "StackShape",
    "StepRows",
    "find_library",
    "load_library",
    "pick_tokens_natively",
]
