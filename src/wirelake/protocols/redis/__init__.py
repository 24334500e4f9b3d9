"""RESP 2 and 3: the protocol of redis, with which any redis client can talk to the gateway."""
