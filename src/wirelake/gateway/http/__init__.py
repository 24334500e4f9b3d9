"""The HTTP API: one module for each noun, one table of routes, errors in one form."""
