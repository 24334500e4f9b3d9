"""Connections: listeners, what is read when, what is written when."""
