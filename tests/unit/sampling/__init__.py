"""Unit tests of `sampling`."""
