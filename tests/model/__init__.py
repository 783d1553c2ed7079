"""The default model, which is fetched once."""
