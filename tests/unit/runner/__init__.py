"""Unit tests of `worker.runner`."""
