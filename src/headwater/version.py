"""The version of the package; it knows nothing else."""

__all__ = ["__version__"]

__version__ = "0.1.0"
