"""magline conversations with fixed keys and randoms."""

from collections.abc import Callable
from typing import Any

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from msgspec.structs import replace

from protocols.conversation import Conversation
from wirelake.message import Credentials, Kind, Message, Op, control
from wirelake.protocols.frame import Frame, Sender
from wirelake.protocols.magline import crypto, frames
from wirelake.protocols.magline.client import ClientSession
from wirelake.protocols.magline.protocol import PROTOCOL
from wirelake.protocols.magline.server import ServerSession
from wirelake.protocols.magline.session import SessionSettings

PRIVATE = X25519PrivateKey.from_private_bytes(
    bytes.fromhex("b8023ae2fde9f544066bcf9704cd01cd03f717b8987fb41ad2818b37e8edd94f")
)
PUBLIC = crypto.public_bytes(PRIVATE)
LOGIN = control(Op.LOGIN, credentials=Credentials("ann", "t0ken"), correlation="in")
CONNECT = Message(kind=Kind.CONTROL, name="connect", correlation="on")
REKEY = Message(kind=Kind.CONTROL, name="rekey", correlation="key")


def counted(start: int) -> Callable[[int], bytes]:
    """Not random at all, but never the same twice: bytes that count on from `start`."""
    state = [start]

    def random(size: int) -> bytes:
        state[0] += 1
        return bytes((state[0] + place) % 256 for place in range(size))

    return random


def talk(*, little: bool = False, pinned: bytes | None = None, **settings: Any) -> Conversation:
    server = ServerSession(0.0, PRIVATE, counted(100), SessionSettings(**settings))
    client = ClientSession(0.0, counted(0), pinned, SessionSettings(), little=little)
    return Conversation(PROTOCOL, client, server)


def logged_in(**options: Any) -> Conversation:
    talking = talk(**options)
    (login,) = talking.client_says(LOGIN)
    talking.server_says(answer_to(login))
    return talking


def anonymous(**options: Any) -> Conversation:
    talking = talk(require_login=False, **options)
    talking.client_says(CONNECT)
    return talking


def answer_to(question: Message, **rest: Any) -> Message:
    return Message(kind=Kind.RESPONSE, correlation=question.correlation, **rest)


def resume(sid: bytes, secret: bytes = bytes(32)) -> Message:
    fields = {"sid": sid.hex(), "secret": secret.hex()}
    return Message(kind=Kind.CONTROL, name="resume", correlation="again", fields=fields)


def said_by(talking: Conversation, sender: Sender) -> list[frames.MaglineFrame]:
    return [frames.decode(raw, sender) for said, raw in talking.wire if said is sender]


def codes(talking: Conversation) -> dict[Sender, str]:
    return {sender: closing.code for sender, closing in talking.closings.items()}


def ends(sent: list[Frame]) -> tuple[int, int]:
    """The ERR and the FIN with which a step ends a connection: error number and reason."""
    err, fin = sent
    assert isinstance(err, frames.Err)
    assert isinstance(fin, frames.Fin)
    return err.error_number, fin.reason


class Peer:
    """A client by hand, for what our own client would never send."""

    def __init__(self, session: ServerSession, sid: bytes = b"", *, little: bool = False) -> None:
        self.session = session
        self.private = X25519PrivateKey.from_private_bytes(bytes(range(1, 33)))
        self.little = little
        self.seq = 0
        self.keys = crypto.Keys(crypto.DirectionKeys(b"", b""), crypto.DirectionKeys(b"", b""))
        self.sid = sid

    def syn(self, sid: bytes = b"", seq: int | None = None, *, proof: bool = True) -> frames.Syn:
        """With a sid, it proves that it knows the keys in use."""
        self.seq = self.seq + 1 if seq is None else seq
        public = crypto.public_bytes(self.private)
        syn = frames.Syn(bytes([self.seq % 256] * 32), public, sid, seq=self.seq, little=self.little)
        if not sid or not proof:
            return syn
        return replace(syn, head_optional=1, header=crypto.resume_proof(self.keys.resume, syn))

    def connect(self, sid: bytes = b"", now_s: float = 0.0) -> None:
        syn = self.syn(sid)
        (ack,) = self.session.receive(syn, now_s).frames
        self.take(syn, ack)

    def take(self, syn: frames.Syn, ack: Frame) -> None:
        assert isinstance(ack, frames.Ack)
        shared = crypto.shared_secret(self.private, ack.server_public)
        self.keys = crypto.derive(shared, syn.client_random, ack.server_random)
        self.sid = crypto.open_sid(ack.sealed_sid, shared, syn.client_random, ack.server_random)

    def req(self, business: int, data: bytes = b"", seq: int | None = None) -> frames.Req:
        self.seq = self.seq + 1 if seq is None else seq
        frame = frames.Req(business, frames.OPENED, data, seq=self.seq, little=self.little)
        return crypto.seal(frame, self.keys.c2s)

    def open(self, frame: Frame) -> frames.SealedFrame:
        assert isinstance(frame, frames.SealedFrame)
        return replace(frame, hmac=frames.OPENED, data=crypto.open_data(frame, self.keys.s2c))


def peer(**settings: Any) -> Peer:
    return Peer(ServerSession(0.0, PRIVATE, counted(100), SessionSettings(**settings)))


def ready(**settings: Any) -> Peer:
    """Connected, without a login unless asked for."""
    made = peer(**{"require_login": False, **settings})
    made.connect()
    return made
