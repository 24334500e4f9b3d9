"""Fetch from HTTP services for clients: only allowed URLs, only from checked addresses."""
