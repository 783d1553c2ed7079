"""Process 1 without HTTP: from a native request to a stream of results. No status code in it."""
