"""The event log: durable, ordered, replayable; columns on disk."""
