"""Simulate a fleet of real clients over real sockets. A seed repeats a run."""
