"""Unit tests of `sources`."""
