"""The native operations, which tests need: whoever runs them has a compiler."""

from functools import cache

import pytest

from headwater.kernels.native import Library, load_library

__all__ = ["ISAS", "native_library"]

ISAS = ("generic", "avx2", "avx512")


@cache
def _loaded() -> Library:
    library = load_library()
    assert library is not None, "headwater was installed without a C++ compiler"
    return library


def native_library(isa: str | None = None) -> Library:
    """The library, with an instruction set chosen; the test is skipped where there is none such.

    Args:
        isa: Its name; None for the best there is.
    """
    library = _loaded()
    for name in (isa,) if isa is not None else reversed(ISAS):
        if library.set_isa(name):
            return library
    pytest.skip(f"this processor has no {isa}")
