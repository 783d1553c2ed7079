"""Process 3: token ids to text deltas."""
