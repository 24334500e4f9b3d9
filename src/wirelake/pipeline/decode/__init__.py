"""Frames to rows, a whole record batch at a time."""
