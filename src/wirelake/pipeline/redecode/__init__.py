"""Decode the frames of the tables again, with today's decoders."""
