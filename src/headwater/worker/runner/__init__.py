"""Runs a step plan on a model."""
