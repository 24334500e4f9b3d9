"""Fetch from HTTP services for clients: only what is allowed, from addresses that were checked."""
