"""Finds and loads the shared library."""

import ctypes
from pathlib import Path
from typing import Any

from headwater.kernels.native.structs import ABI_VERSION, FUNCTIONS

__all__ = ["Library", "find_library", "load_library"]

FILE_NAME = "_native.so"


class Library:
    """The library's functions, typed. Calls release the interpreter lock.

    Args:
        path: The shared library.

    Raises:
        OSError: It cannot be loaded, or speaks another version of the interface.
    """

    def __init__(self, path: Path) -> None:
        self._functions = ctypes.CDLL(str(path))
        for name, (result, arguments) in FUNCTIONS.items():
            function = getattr(self._functions, name, None)
            if function is None:
                raise OSError(f"{path} lacks {name}; install headwater again")
            function.restype, function.argtypes = result, arguments
        version = self.call("hw_abi_version")
        if version != ABI_VERSION:
            raise OSError(f"{path} has interface {version}, not {ABI_VERSION}; install again")

    def call(self, name: str, *arguments: Any) -> Any:
        """Call a function of `structs.FUNCTIONS`."""
        return getattr(self._functions, name)(*arguments)

    @property
    def isa(self) -> str:
        """The instruction set in use: `avx512`, `avx2` or `generic`."""
        name: bytes = self.call("hw_isa")
        return name.decode()

    def set_isa(self, name: str) -> bool:
        """Use another instruction set, for tests; False when this processor lacks it."""
        return bool(self.call("hw_set_isa", name.encode()) == 0)


def find_library() -> Path | None:
    """The library that was built with the package; None when there was no compiler."""
    path = Path(__file__).parent / FILE_NAME
    return path if path.is_file() else None


def load_library() -> Library | None:
    """Load it, if there is one.

    Raises:
        OSError: There is one, which cannot be used.
    """
    path = find_library()
    return None if path is None else Library(path)
