"""Keep the event log in checksummed segment files."""
