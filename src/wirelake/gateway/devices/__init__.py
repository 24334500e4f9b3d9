"""Devices: one session for each serial, wherever its packets come from."""
