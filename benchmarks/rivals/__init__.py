"""The same frames, read and written by other means."""
