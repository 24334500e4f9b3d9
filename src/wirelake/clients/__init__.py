"""Connect to a gateway with asyncio: thin clients around the pure client sessions, one for each protocol."""
