"""Several processes: starts, ends, kills."""
