"""What clients speak: translation only, no capability of its own."""
