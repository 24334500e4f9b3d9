"""Append every frame and event to a durable log, and read it back as Arrow record batches."""
