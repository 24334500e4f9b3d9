"""Implement the service `redis`: values under keys, and durable topics as streams, with the commands of redis."""
