"""Contain all socket code: listeners, connections, datagrams, the HTTP API, limits and keepalive."""
