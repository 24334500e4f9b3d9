"""apostol: meters, phones and things that report over UDP or TCP, in packets put together to commands."""
