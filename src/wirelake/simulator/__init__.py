"""A fleet of real clients over real sockets, with habits that a seed repeats."""
