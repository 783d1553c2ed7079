"""Who runs in a step; pure Python, no torch."""
