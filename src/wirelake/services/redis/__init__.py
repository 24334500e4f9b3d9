"""The service `redis`: values under keys and durable topics as streams, as redis words and answers it."""
