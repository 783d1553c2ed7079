"""Unit tests of `kernels`."""
