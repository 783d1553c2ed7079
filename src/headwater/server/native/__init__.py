"""The runtime's own API over HTTP."""
