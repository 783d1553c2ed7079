"""The promises of the README, on the whole server."""
