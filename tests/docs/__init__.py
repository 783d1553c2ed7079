"""The documentation is complete and true."""
