"""What a protocol cannot carry, stated as examples that the tests hold it to and the docs print."""

from msgspec import Struct

from wirelake.message import Message
from wirelake.protocols.frame import Sender


class Loss(Struct, frozen=True):
    """`example`, said in this protocol by `sender`, comes back as `becomes`, or is refused where that is None."""

    what: str
    then: str
    example: Message
    becomes: Message | None
    sender: Sender = Sender.SERVER
