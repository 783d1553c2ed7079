"""The `headwater` command; the only place that prints."""
