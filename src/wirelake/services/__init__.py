"""The gateway's own services: redis values, and sisdb's records. Pure of sockets; the time is passed in."""
