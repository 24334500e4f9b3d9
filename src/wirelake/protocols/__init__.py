"""Pure codecs: bytes ⇄ frames ⇄ messages. No sockets, no clock, no randomness: they are passed in."""
