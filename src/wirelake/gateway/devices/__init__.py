"""Serve devices: one session for each serial, whatever address its packets come from."""
