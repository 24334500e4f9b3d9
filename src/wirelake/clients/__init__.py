"""asyncio clients: a thin shell around the pure client sessions, for users, the simulator and the tests."""
