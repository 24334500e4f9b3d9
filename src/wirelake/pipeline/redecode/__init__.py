"""Decode frames that are in the tables already once more, with today's decoders."""
