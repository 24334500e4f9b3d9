"""A user's end of a magline connection.

To begin, send one of: a login (SYN, then LOGIN), or a control message called `connect` (SYN alone, for a server
that wants no login) or `resume` with the old session's `sid` and `secret` in hex, which a session has as `sid` and
`resume_secret`. A control message called `rekey` asks for new keys later.
"""

from collections.abc import Callable
from hmac import compare_digest

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from msgspec import Struct
from msgspec.structs import replace

from wirelake.errors import ProtocolError, SealError, StateError
from wirelake.message import Failure, Kind, Op, control_op
from wirelake.message import Message as Common
from wirelake.protocols.frame import Sender
from wirelake.protocols.magline import crypto, frames
from wirelake.protocols.magline.limits import MAGLINE_HELD_FRAMES_MAX, MAGLINE_REQUESTS_OPEN_MAX
from wirelake.protocols.magline.opcodes import RESUME_PROOF, ErrorNumber, Reason
from wirelake.protocols.magline.sealed import SealedSession
from wirelake.protocols.magline.session import CLIENT_MACHINE, ClientState, SessionSettings
from wirelake.protocols.magline.translation import from_message, read_push, to_message
from wirelake.protocols.session import RESUME, Closing, Step

_OWN_PING = None  # as a correlation: nobody above waits for its answer


class ClientSession(SealedSession):
    """`random` gives that many fresh random bytes: each SYN takes a new private key and a random of them.

    With `pinned`, the server's public key must be that one. Without, `server_public` says what to pin next time.
    """

    state_machine = CLIENT_MACHINE
    sender = Sender.CLIENT
    closed = ClientState.CLOSED
    __slots__ = ("_begun", "_held", "_open", "_pings", "_pinned", "_random", "_syn", "server_public")

    def __init__(
        self,
        now_s: float,
        random: Callable[[int], bytes],
        pinned: bytes | None = None,
        settings: SessionSettings = SessionSettings(),
        *,
        little: bool = False,
    ) -> None:
        super().__init__(now_s, settings, little)
        self.server_public = b""
        self._random = random
        self._pinned = pinned
        self._pings = 0
        self._begun: Common | None = None  # what our side wanted when the SYN was sent
        self._syn: tuple[frames.Syn, X25519PrivateKey] | None = None  # not answered yet
        self._open: dict[int, _Question] = {}  # by seq
        self._held: list[Common] = []

    def _event(self, message: Common) -> str:
        nameless = message.kind is Kind.CONTROL and control_op(message) is None
        return f"app {message.name}" if nameless else super()._event(message)

    # Connecting

    def _connect(self, message: Common, now_s: float, step: Step) -> None:
        self.state = ClientState.NEW  # until it is sure that the message can be said
        sid, secret = _resumed_session(message) if message.name == RESUME else (b"", b"")
        if control_op(message) is Op.LOGIN:
            self._frame_for(message)
        self.state = ClientState.CONNECTING
        self._send_syn(message, sid, secret, now_s, step)

    def _send_syn(self, message: Common, sid: bytes, secret: bytes, now_s: float, step: Step) -> None:
        private = X25519PrivateKey.from_private_bytes(self._random(frames.KEY_BYTES))
        client_random, public = self._random(frames.RANDOM_BYTES), crypto.public_bytes(private)
        syn = frames.Syn(client_random, public, sid, seq=self._next_seq(), little=self._little)
        if secret:
            syn = replace(syn, head_optional=RESUME_PROOF, header=crypto.resume_proof(secret, syn))
        self._begun = message
        self._syn = (syn, private)
        self.deadlines["login"] = now_s + self.settings.login_s
        step.frames.append(syn)

    def _connected(self, frame: frames.Ack, now_s: float, step: Step) -> None:
        begun = self._agree(frame, now_s, step)
        if begun is None:
            return
        if control_op(begun) is Op.LOGIN:
            self.state = ClientState.LOGGING_IN
            self._ask(begun, now_s, step)
            return
        self._ready(now_s)
        step.messages.append(self._begun_answer(frame, begun))

    def _agree(self, ack: frames.Ack, now_s: float, step: Step) -> Common | None:
        """Take the keys and the sid of this ACK, and answer what our side began with; None where it ends here."""
        begun = self._begun
        if begun is None or self._syn is None or ack.seq != self._syn[0].seq:
            self._unexpected(ack, now_s, step)
            return None
        syn, private = self._syn
        try:
            if self._pinned is not None and not compare_digest(ack.server_public, self._pinned):
                raise ProtocolError("wrong_server", "the server's key is not the pinned one", 48)
            shared = crypto.shared_secret(private, ack.server_public)
            sid = crypto.open_sid(ack.sealed_sid, shared, syn.client_random, ack.server_random)
        except ProtocolError as error:
            self._refuse_error(ack, error, step)
            return None
        self._syn = self._begun = None
        self._keys = crypto.derive(shared, syn.client_random, ack.server_random)
        self.sid, self.server_public = sid, ack.server_public
        return begun

    def _begun_answer(self, ack: frames.Ack, begun: Common) -> Common:
        answer = to_message(ack, Sender.SERVER)
        return replace(answer, correlation=begun.correlation, fields={"sid": self.sid.hex()})

    def _refused(self, frame: frames.Err, _now_s: float, step: Step) -> None:
        if self._begun is not None:
            correlation, self._begun = self._begun.correlation, None
            step.messages.append(replace(to_message(frame, Sender.SERVER), correlation=correlation))

    def _logged_in(self, frame: frames.Rep, now_s: float, step: Step) -> None:
        self._answered(frame, now_s, step)
        if self.state is not self.closed:
            self._ready(now_s)

    def _ready(self, now_s: float) -> None:
        self.state = ClientState.READY
        self.deadlines.pop("login", None)
        self.deadlines["ping"] = now_s + self.settings.ping_s

    def _rekey(self, message: Common, now_s: float, step: Step) -> None:
        if self._worn_out:
            self._wear_out(message, step)
            return
        self.state = ClientState.REKEYING
        self.deadlines.pop("ping", None)
        self._send_syn(message, self.sid, self.resume_secret, now_s, step)

    def _hold(self, message: Common, _now_s: float, _step: Step) -> None:
        if len(self._held) >= MAGLINE_HELD_FRAMES_MAX:
            raise StateError(f"{MAGLINE_HELD_FRAMES_MAX} requests wait for new keys already")
        self._frame_for(message)  # what cannot be said is refused now
        self._held.append(message)

    def _rekeyed(self, frame: frames.Ack, now_s: float, step: Step) -> None:
        begun = self._agree(frame, now_s, step)
        if begun is None:
            return
        self._ready(now_s)
        step.messages.append(self._begun_answer(frame, begun))
        held, self._held = self._held, []
        for message in held:
            if self.state is not self.closed:
                self._ask(message, now_s, step)

    def _too_late(self, _event: str, _now_s: float, step: Step) -> None:
        self._end(Reason.ERROR, Closing("login_timeout"), step)

    # Questions and their answers

    def _ask(self, message: Common, _now_s: float, step: Step) -> None:
        frame = self._frame_for(message)
        if self._worn_out:
            self._wear_out(message, step)
            return
        seq = self._next_seq()
        if isinstance(frame, frames.SealedFrame):
            self._open[seq] = _Question(message.correlation, frame.business_cmd)
            step.frames.append(self._sealed(frame, seq))
        else:
            self._open[seq] = _Question(message.correlation)
            step.frames.append(replace(frame, seq=seq, little=self._little))

    def _frame_for(self, message: Common) -> frames.MaglineFrame:
        """The frame that asks this. Raises where it cannot be said, or not now."""
        if len(self._open) + len(self._held) >= MAGLINE_REQUESTS_OPEN_MAX:
            raise StateError(f"{MAGLINE_REQUESTS_OPEN_MAX} requests are open already")
        frame = from_message(message, Sender.CLIENT)
        if isinstance(frame, frames.SealedFrame):
            self._check_size(frame)
        return frame

    def _wear_out(self, message: Common, step: Step) -> None:
        """Our seq comes to its end: only a new connection counts from 1 again."""
        failure = Failure("the connection has used up its seqs", ErrorNumber.FAILED.value)
        answer = Common(kind=Kind.RESPONSE, protocol="magline", correlation=message.correlation, failure=failure)
        step.messages.append(answer)
        self._end(Reason.REKEY, Closing("rekey", f"our seq is {self._seq}"), step)

    def _answered(self, frame: frames.Rep, now_s: float, step: Step) -> None:
        try:
            rep = self._opened(frame)
        except SealError as error:
            self._refuse_error(frame, error, step)
            return
        question = self._open.get(rep.seq)
        if question is None or question.business is None:
            closing = Closing("replay", f"REP of seq {rep.seq} answers nothing that is open")
            self._refuse(rep, ErrorNumber.REPLAY, closing, step)
            return
        if rep.business_cmd != question.business:
            self._unexpected(rep, now_s, step)
            return
        del self._open[rep.seq]
        answer = to_message(rep, Sender.SERVER)
        step.messages.append(replace(answer, correlation=question.correlation))

    def _error(self, frame: frames.Err, now_s: float, step: Step) -> None:
        if self._syn is not None and frame.seq == self._syn[0].seq:
            self._refused(frame, now_s, step)
            return
        question = self._open.pop(frame.seq, None)
        correlation = (question.correlation if question is not None else None) or ""
        step.messages.append(replace(to_message(frame, Sender.SERVER), correlation=correlation))

    def _ponged(self, frame: frames.Pon, now_s: float, step: Step) -> None:
        question = self._open.get(frame.seq)
        if question is None or question.business is not None:
            self._unexpected(frame, now_s, step)
            return
        del self._open[frame.seq]
        if question.correlation is not _OWN_PING:
            step.messages.append(replace(to_message(frame, Sender.SERVER), correlation=question.correlation))

    def _notified(self, frame: frames.Psh, _now_s: float, step: Step) -> None:
        try:
            push = self._opened(frame)
            if push.seq <= self._heard_seq:
                self._replayed(push, step)
                return
            step.messages.append(read_push(push))
        except ProtocolError as error:
            self._refuse_error(frame, error, step)
            return
        self._heard_seq = push.seq

    def _ping(self, _event: str, now_s: float, step: Step) -> None:
        self.deadlines["ping"] = now_s + self.settings.ping_s
        if self._worn_out:
            self._end(Reason.REKEY, Closing("rekey", f"our seq is {self._seq}"), step)
        elif len(self._open) < MAGLINE_REQUESTS_OPEN_MAX:
            self._pings += 1
            seq = self._next_seq()
            self._open[seq] = _Question(_OWN_PING)
            step.frames.append(frames.Pin(self._pings, seq=seq, little=self._little))

    def _logout(self, message: Common, _now_s: float, step: Step) -> None:
        answer = Common(kind=Kind.RESPONSE, protocol="magline", correlation=message.correlation)
        step.messages.append(answer)
        self._end(Reason.NORMAL, Closing("normal", "we logged out"), step)


class _Question(Struct, frozen=True):
    correlation: str | None
    business: int | None = None  # None for a PIN


def _resumed_session(message: Common) -> tuple[bytes, bytes]:
    """The sid and the resume secret of the session to resume, from the fields of a `resume`."""
    try:
        sid, secret = bytes.fromhex(message.fields["sid"]), bytes.fromhex(message.fields["secret"])
    except (KeyError, TypeError, ValueError) as error:
        raise StateError("to resume takes the old session's sid and secret in hex") from error
    if len(sid) != frames.SID_BYTES or len(secret) != frames.PROOF_BYTES:
        sizes = f"a sid of {frames.SID_BYTES} bytes and a secret of {frames.PROOF_BYTES}"
        raise StateError(f"to resume takes {sizes}, not {len(sid)} and {len(secret)}")
    return sid, secret
