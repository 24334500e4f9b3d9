"""Fetching from HTTP services for sisnet clients: only what is allowed, from addresses that were looked at."""
