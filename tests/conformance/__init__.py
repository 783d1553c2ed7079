"""Tests against what others define: clients, formats, public bug reports."""
