"""Two sessions of one protocol talking to each other, through real bytes, without sockets."""

from wirelake.message import Message
from wirelake.protocols.frame import Sender
from wirelake.protocols.protocol import Carrier, Protocol
from wirelake.protocols.session import Closing, Session, Step


class Conversation:
    """What each side hands up is in `client_messages` and `server_messages`."""

    def __init__(
        self, protocol: Protocol, client: Session, server: Session, carrier: Carrier = Carrier.TCP, now_s: float = 0.0
    ) -> None:
        self.protocol = protocol
        self.sessions = {Sender.CLIENT: client, Sender.SERVER: server}
        self.splitters = {sender: protocol.splitter(sender, carrier) for sender in Sender}
        self.now_s = now_s
        self.client_messages: list[Message] = []
        self.server_messages: list[Message] = []
        self.closings: dict[Sender, Closing] = {}
        self.wire: list[tuple[Sender, bytes]] = []  # everything said, in order

    def client_says(self, message: Message) -> list[Message]:
        """Our client's own side wants this sent; answers what the server hands up."""
        return self._hear(Sender.CLIENT, self.sessions[Sender.CLIENT].send(message, self.now_s))

    def server_says(self, message: Message) -> list[Message]:
        return self._hear(Sender.SERVER, self.sessions[Sender.SERVER].send(message, self.now_s))

    def pass_time(self, seconds: float) -> None:
        self.now_s += seconds
        for sender in Sender:
            self._hear(sender, self.sessions[sender].tick(self.now_s))

    def inject(self, sender: Sender, data: bytes) -> Step:
        """Bytes that `sender`'s session did not make, straight to the other side; answers its last step."""
        self.wire.append((sender, data))
        splitter = self.splitters[sender]
        listener = self.sessions[sender.other]
        step = Step()
        for raw in splitter.receive(data):
            step = listener.receive(self.protocol.decode(splitter.bare(raw), sender), self.now_s)
            self._hear(sender.other, step)
        if splitter.failure is not None:
            step = listener.fail(splitter.failure, self.now_s)
            self._hear(sender.other, step)
        return step

    def _hear(self, sender: Sender, step: Step) -> list[Message]:
        """`sender`'s session made this step: its messages go up, its frames over to the other side."""
        up = self.client_messages if sender is Sender.CLIENT else self.server_messages
        up.extend(step.messages)
        other = self.server_messages if sender is Sender.CLIENT else self.client_messages
        before = len(other)
        for frame in step.frames:
            self.inject(sender, self.splitters[sender].wrap(frame.encode()))
        if step.closing is not None:
            self.closings[sender] = step.closing
        return other[before:]
