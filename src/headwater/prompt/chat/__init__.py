"""Chat messages to prompt text."""
