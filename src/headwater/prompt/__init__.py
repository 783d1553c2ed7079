"""Messages and media to prompts; no torch, no process."""
