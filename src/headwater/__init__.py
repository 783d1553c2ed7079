"""headwater: a serving system for language models.

The public names are loaded when they are first used, so that importing a part costs that part only.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from headwater.version import __version__

if TYPE_CHECKING:
    from headwater.engine import Engine
    from headwater.errors import HeadwaterError
    from headwater.messages.params import SamplingParams

__all__ = ["Engine", "HeadwaterError", "SamplingParams", "__version__"]

_HOMES = {
    "Engine": "headwater.engine",
    "HeadwaterError": "headwater.errors",
    "SamplingParams": "headwater.messages.params",
}


def __getattr__(name: str) -> Any:
    """Load a public name.

    Raises:
        AttributeError: There is no such name.
    """
    if name not in _HOMES:
        raise AttributeError(f"module 'headwater' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
