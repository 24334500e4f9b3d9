"""Trace a message: its bytes, session, route, deliveries, acks and rows, on one timeline."""
