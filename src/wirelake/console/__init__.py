"""The web pages: look, inspect, publish. Rendered here, with a little JavaScript and nothing from elsewhere."""
