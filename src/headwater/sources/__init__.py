"""Where a model's files come from; it knows paths and archives, not what is in a model."""
