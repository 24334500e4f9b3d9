"""The only socket code: doors, connections, datagrams, the HTTP API, limits and keepalive."""
