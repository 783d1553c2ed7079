"""Offline engine: the same front end without HTTP."""
