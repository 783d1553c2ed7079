"""Unit tests of `detokenizer`."""
