"""Unit tests of `prompt`."""
