"""redis: RESP 2 and 3, so that any redis client can connect to the gateway."""
