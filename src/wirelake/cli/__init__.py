"""Implement the command line `wirelake`."""
