"""Models against transformers."""
