"""The client session of magline: the user's end of a connection.

To begin, send a login (SYN, then LOGIN), a control message named `connect` (SYN alone, for a server that requires no
login), or one named `resume` with the `sid` and `secret` of the old session in hex; a session has them as `sid` and
`resume_secret`. Later, a control message named `rekey` requests new keys.
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
from wirelake.protocols.magline.constants import (
    MAGLINE_HELD_FRAMES_MAX,
    MAGLINE_REQUESTS_OPEN_MAX,
    RESUME_PROOF,
    ErrorNumber,
    Reason,
)
from wirelake.protocols.magline.session import CLIENT_MACHINE, ClientState, SealedSession, SessionSettings
from wirelake.protocols.magline.translation import from_message, read_push, to_message
from wirelake.protocols.session import RESUME, Closing, Step

_OWN_PING = None  # correlation of our own PINs: their answers are not passed up


class ClientSession(SealedSession):
    """Connect, log in, and send requests.

    `random` returns that many new random bytes; each SYN has a new private key and a new random.
    If `pinned` is given, the server must have that public key. After connecting, `server_public` is the server's key.
    """

    state_machine = CLIENT_MACHINE
    sender = Sender.CLIENT
    closed = ClientState.CLOSED
    __slots__ = ("_held", "_open", "_pending", "_pings", "_pinned", "_random", "_syn", "server_public")

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
        self._pending: Common | None = None  # the message for which the SYN was sent
        self._syn: tuple[frames.Syn, X25519PrivateKey] | None = None  # without an ACK so far
        self._open: dict[int, _OpenRequest] = {}  # by seq
        self._held: list[Common] = []

    def _event(self, message: Common) -> str:
        nameless = message.kind is Kind.CONTROL and control_op(message) is None
        return f"app {message.name}" if nameless else super()._event(message)

    # Connecting

    def _connect(self, message: Common, now_s: float, step: Step) -> None:
        self.state = ClientState.NEW  # until the message is known to be encodable
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
        self._pending = message
        self._syn = (syn, private)
        self.deadlines["login"] = now_s + self.settings.login_s
        step.frames.append(syn)

    def _connected(self, frame: frames.Ack, now_s: float, step: Step) -> None:
        pending = self._take_keys(frame, now_s, step)
        if pending is None:
            return
        if control_op(pending) is Op.LOGIN:
            self.state = ClientState.LOGGING_IN
            self._request(pending, now_s, step)
            return
        self._ready(now_s)
        step.messages.append(self._pending_answer(frame, pending))

    def _take_keys(self, ack: frames.Ack, now_s: float, step: Step) -> Common | None:
        """Take the keys and the sid of an ACK. Return the message for which the SYN was sent; None if it fails."""
        pending = self._pending
        if pending is None or self._syn is None or ack.seq != self._syn[0].seq:
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
        self._syn = self._pending = None
        self._keys = crypto.derive(shared, syn.client_random, ack.server_random)
        self.sid, self.server_public = sid, ack.server_public
        return pending

    def _pending_answer(self, ack: frames.Ack, pending: Common) -> Common:
        answer = to_message(ack, Sender.SERVER)
        return replace(answer, correlation=pending.correlation, fields={"sid": self.sid.hex()})

    def _refused(self, frame: frames.Err, _now_s: float, step: Step) -> None:
        if self._pending is not None:
            correlation, self._pending = self._pending.correlation, None
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
        if self._is_seq_used_up:
            self._end_of_seqs(message, step)
            return
        self.state = ClientState.REKEYING
        self.deadlines.pop("ping", None)
        self._send_syn(message, self.sid, self.resume_secret, now_s, step)

    def _hold(self, message: Common, _now_s: float, _step: Step) -> None:
        if len(self._held) >= MAGLINE_HELD_FRAMES_MAX:
            raise StateError(f"{MAGLINE_HELD_FRAMES_MAX} requests wait for new keys already")
        self._frame_for(message)  # refuse at once what cannot be encoded
        self._held.append(message)

    def _rekeyed(self, frame: frames.Ack, now_s: float, step: Step) -> None:
        pending = self._take_keys(frame, now_s, step)
        if pending is None:
            return
        self._ready(now_s)
        step.messages.append(self._pending_answer(frame, pending))
        held, self._held = self._held, []
        for message in held:
            if self.state is not self.closed:
                self._request(message, now_s, step)

    def _too_late(self, _event: str, _now_s: float, step: Step) -> None:
        self._end(Reason.ERROR, Closing("login_timeout"), step)

    # Requests and their answers

    def _request(self, message: Common, _now_s: float, step: Step) -> None:
        frame = self._frame_for(message)
        if self._is_seq_used_up:
            self._end_of_seqs(message, step)
            return
        seq = self._next_seq()
        if isinstance(frame, frames.SealedFrame):
            self._open[seq] = _OpenRequest(message.correlation, frame.business_cmd)
            step.frames.append(self._seal(frame, seq))
        else:
            self._open[seq] = _OpenRequest(message.correlation)
            step.frames.append(replace(frame, seq=seq, little=self._little))

    def _frame_for(self, message: Common) -> frames.MaglineFrame:
        """Return the frame of a request. Raise TranslationError if there is none, StateError if too many are open."""
        if len(self._open) + len(self._held) >= MAGLINE_REQUESTS_OPEN_MAX:
            raise StateError(f"{MAGLINE_REQUESTS_OPEN_MAX} requests are open already")
        frame = from_message(message, Sender.CLIENT)
        if isinstance(frame, frames.SealedFrame):
            self._check_size(frame)
        return frame

    def _end_of_seqs(self, message: Common, step: Step) -> None:
        """End the connection: its seqs are used up, and only a new connection begins at 1 again."""
        failure = Failure("the connection has used up its seqs", ErrorNumber.FAILED.value)
        answer = Common(kind=Kind.RESPONSE, protocol="magline", correlation=message.correlation, failure=failure)
        step.messages.append(answer)
        self._end(Reason.REKEY, Closing("rekey", f"our seq is {self.sent_seq}"), step)

    def _answered(self, frame: frames.Rep, now_s: float, step: Step) -> None:
        try:
            rep = self._decrypt(frame)
        except SealError as error:
            self._refuse_error(frame, error, step)
            return
        request = self._open.get(rep.seq)
        if request is None or request.business is None:
            closing = Closing("replay", f"REP of seq {rep.seq} answers no open request")
            self._refuse(rep, ErrorNumber.REPLAY, closing, step)
            return
        if rep.business_cmd != request.business:
            self._unexpected(rep, now_s, step)
            return
        del self._open[rep.seq]
        answer = to_message(rep, Sender.SERVER)
        step.messages.append(replace(answer, correlation=request.correlation))

    def _error(self, frame: frames.Err, now_s: float, step: Step) -> None:
        if self._syn is not None and frame.seq == self._syn[0].seq:
            self._refused(frame, now_s, step)
            return
        request = self._open.pop(frame.seq, None)
        correlation = (request.correlation if request is not None else None) or ""
        step.messages.append(replace(to_message(frame, Sender.SERVER), correlation=correlation))

    def _ponged(self, frame: frames.Pon, now_s: float, step: Step) -> None:
        request = self._open.get(frame.seq)
        if request is None or request.business is not None:
            self._unexpected(frame, now_s, step)
            return
        del self._open[frame.seq]
        if request.correlation is not _OWN_PING:
            step.messages.append(replace(to_message(frame, Sender.SERVER), correlation=request.correlation))

    def _notified(self, frame: frames.Psh, _now_s: float, step: Step) -> None:
        try:
            push = self._decrypt(frame)
            if push.seq <= self.received_seq:
                self._replayed(push, step)
                return
            step.messages.append(read_push(push))
        except ProtocolError as error:
            self._refuse_error(frame, error, step)
            return
        self.received_seq = push.seq

    def _ping(self, _event: str, now_s: float, step: Step) -> None:
        self.deadlines["ping"] = now_s + self.settings.ping_s
        if self._is_seq_used_up:
            self._end(Reason.REKEY, Closing("rekey", f"our seq is {self.sent_seq}"), step)
        elif len(self._open) < MAGLINE_REQUESTS_OPEN_MAX:
            self._pings += 1
            seq = self._next_seq()
            self._open[seq] = _OpenRequest(_OWN_PING)
            step.frames.append(frames.Pin(self._pings, seq=seq, little=self._little))

    def _logout(self, message: Common, _now_s: float, step: Step) -> None:
        answer = Common(kind=Kind.RESPONSE, protocol="magline", correlation=message.correlation)
        step.messages.append(answer)
        self._end(Reason.NORMAL, Closing("normal", "we logged out"), step)


class _OpenRequest(Struct, frozen=True):
    correlation: str | None
    business: int | None = None  # None for a PIN


def _resumed_session(message: Common) -> tuple[bytes, bytes]:
    """Return the sid and the resume secret that a `resume` names."""
    try:
        sid, secret = bytes.fromhex(message.fields["sid"]), bytes.fromhex(message.fields["secret"])
    except (KeyError, TypeError, ValueError) as error:
        raise StateError("to resume takes the old session's sid and secret in hex") from error
    if len(sid) != frames.SID_BYTES or len(secret) != frames.PROOF_BYTES:
        sizes = f"a sid of {frames.SID_BYTES} bytes and a secret of {frames.PROOF_BYTES}"
        raise StateError(f"to resume takes {sizes}, not {len(sid)} and {len(secret)}")
    return sid, secret
