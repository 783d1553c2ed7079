"""The process that schedules and runs the model; it knows token ids, never text."""
