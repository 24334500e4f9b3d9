"""Store everything that the gateway keeps beyond the event log."""
