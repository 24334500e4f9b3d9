"""apostol: meters, phones and other devices that report over UDP or TCP; packets are assembled to commands."""
