"""The protocol and the frame in the examples of the API's documentation: the first protocol that offers a frame."""

from typing import Final

from wirelake.protocols import registry
from wirelake.protocols.protocol import Protocol

PROTOCOL: Final[Protocol] = max(registry.all_protocols(), key=lambda protocol: bool(protocol.example))
NAME: Final = PROTOCOL.name
FRAME: Final = PROTOCOL.example
