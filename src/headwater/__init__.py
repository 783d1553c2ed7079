"""headwater: a serving system for language models."""

from headwater.version import __version__

__all__ = ["__version__"]
