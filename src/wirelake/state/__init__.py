"""What the gateway knows beyond one connection: kept in SQLite, answered from memory."""
