"""Health, information and control of the running server."""
