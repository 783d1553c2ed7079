"""Unit tests of `server`."""
