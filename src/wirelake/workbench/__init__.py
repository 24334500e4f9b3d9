"""Propose how the frames of an unknown protocol are laid out, each proposal with its evidence."""
