"""Unit tests of `text`."""
