"""One gateway for private wire protocols, a durable log of every frame, and tables you can query."""
