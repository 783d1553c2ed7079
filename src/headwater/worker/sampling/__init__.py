"""Logits to token ids and log-probabilities."""
