"""Provide what the commands share: options, output, processes and the HTTP API of a running gateway."""
