"""Serve the web console: pages rendered on the server, with a little JavaScript and no external resources."""
