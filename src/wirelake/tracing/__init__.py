"""Where is this message: its bytes, session, route, deliveries, acks and rows, on one time line."""
