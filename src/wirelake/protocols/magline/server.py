"""The server session of magline: the gateway's end of a connection."""

from collections.abc import Callable
from enum import Enum
from hmac import compare_digest

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from msgspec.structs import replace

from wirelake.errors import ProtocolError, SealError, TranslationError
from wirelake.message import Kind, Op, anonymous_login, control
from wirelake.message import Message as Common
from wirelake.protocols.frame import Sender
from wirelake.protocols.magline import crypto, frames
from wirelake.protocols.magline.constants import (
    ERROR_NAMES,
    MAGLINE_HELD_BYTES_MAX,
    MAGLINE_HELD_FRAMES_MAX,
    MAGLINE_REQUESTS_OPEN_MAX,
    MAGLINE_SEQ_MAX,
    Business,
    ErrorNumber,
    Reason,
)
from wirelake.protocols.magline.session import SERVER_MACHINE, SealedSession, ServerState, SessionSettings
from wirelake.protocols.magline.translation import (
    answer_frame,
    error_number,
    from_message,
    read_request,
)
from wirelake.protocols.session import REKEY, RESUME, Closing, Resumption, Step

_ANONYMOUS = "anonymous"  # correlation of a login that the client did not send: no REQ has it


class ServerSession(SealedSession):
    """Serve one client. Clients may have pinned the key `private`; `random` returns that many new random bytes."""

    state_machine = SERVER_MACHINE
    sends_acks = True
    logs_wire_bytes = False  # the keys end with the connection, so data is logged decrypted
    sender = Sender.SERVER
    closed = ServerState.CLOSED
    __slots__ = ("_held", "_logged_in", "_open", "_pending_syn", "_private", "_random")

    def __init__(
        self,
        now_s: float,
        private: X25519PrivateKey,
        random: Callable[[int], bytes],
        settings: SessionSettings = SessionSettings(),
    ) -> None:
        super().__init__(now_s, settings, little=False)
        self.deadlines["login"] = now_s + settings.login_s
        self._private = private
        self._random = random
        self._logged_in = False
        self._pending_syn: tuple[frames.Syn, bytes] | None = None  # with its shared secret, until the resume is decided
        self._held: list[frames.Req] = []  # decrypted
        self._open: dict[str, frames.Req] = {}  # by correlation, without their data

    @property
    def frame_bytes_max(self) -> int:
        settings = self.settings
        logged_in = self._logged_in or settings.open or self.state is ServerState.READY
        return settings.frame_bytes_max if logged_in else settings.login_frame_bytes_max

    @property
    def resumption(self) -> Resumption | None:
        return Resumption(self.sid, self.resume_secret, self.settings.resume_s)

    @property
    def is_deciding_login(self) -> bool:
        return self.state is ServerState.CHECKING

    # Connecting

    def _syn(self, frame: frames.Syn, _now_s: float, step: Step) -> None:
        self._little = frame.little
        shared = self._shared_secret(frame, step)
        if shared is None:
            return
        if not frame.sid:
            self._accept(frame, shared, self._random(frames.SID_BYTES), self._before_login(), step)
            return
        self.state = ServerState.RESUMING
        self._pending_syn = (frame, shared)
        fields = {"sid": frame.sid.hex()}
        request = Common(kind=Kind.CONTROL, name=RESUME, protocol="magline", correlation=RESUME, fields=fields)
        step.messages.append(request)

    def _resumed(self, message: Common, _now_s: float, step: Step) -> None:
        if self._pending_syn is None:
            raise AssertionError("RESUMING without a SYN")
        syn, shared = self._pending_syn
        self._pending_syn = None
        if message.failure is not None:
            self._refuse(syn, ErrorNumber.UNKNOWN_SESSION, Closing("unknown_session", message.failure.text), step)
            return
        self._logged_in = True
        self._accept(syn, shared, self._random(frames.SID_BYTES), ServerState.READY, step)

    def may_resume(self, secret: bytes) -> bool:
        """Return whether the pending SYN may resume the session with this resume secret.

        A proof must be valid if there is one. It may be missing if the settings require none.
        """
        if self._pending_syn is None:
            raise AssertionError("no SYN waits for a resume")
        return self._has_proof(self._pending_syn[0], secret)

    def _has_proof(self, syn: frames.Syn, secret: bytes) -> bool:
        if syn.proof is None and not self.settings.needs_proof:
            return True
        return crypto.proves(secret, syn) and bool(secret)

    def _syn_again(self, frame: frames.Syn, now_s: float, step: Step) -> None:
        if frame.seq <= self.received_seq:
            self._replayed(frame, step)
        elif not frame.sid:
            self._start_new_session(frame, now_s, step)
        elif not (compare_digest(frame.sid, self.sid) & self._has_proof(frame, self.resume_secret)):
            closing = Closing("unknown_session", "a second SYN does not prove that it is of this session")
            self._refuse(frame, ErrorNumber.UNKNOWN_SESSION, closing, step)
        elif (shared := self._shared_secret(frame, step)) is not None:
            self._accept(frame, shared, self._random(frames.SID_BYTES), self.state, step)
            step.messages.append(Common(kind=Kind.CONTROL, name=REKEY, protocol="magline"))

    def _start_new_session(self, frame: frames.Syn, now_s: float, step: Step) -> None:
        """Begin a new session, without login and open requests: a SYN without a sid may be from another user."""
        if any(req.business_cmd == Business.LOGIN.value for req in self._open.values()):
            self._unexpected(frame, now_s, step)  # the login would be decided for the wrong session
            return
        shared = self._shared_secret(frame, step)
        if shared is None:
            return
        if self.state is ServerState.READY:
            step.messages.append(control(Op.LOGOUT, name=frame.name, protocol="magline"))
        self._open.clear()
        self._logged_in = False
        self._accept(frame, shared, self._random(frames.SID_BYTES), self._before_login(), step)
        if self.state is ServerState.CONNECTED:
            self.deadlines["login"] = now_s + self.settings.login_s

    def _shared_secret(self, syn: frames.Syn, step: Step) -> bytes | None:
        """Return the secret shared with this client; None if its key is invalid and ends the connection."""
        try:
            return crypto.shared_secret(self._private, syn.client_public)
        except ProtocolError as error:
            self._refuse_error(syn, error, step)
            return None

    def _accept(self, syn: frames.Syn, shared: bytes, sid: bytes, then: Enum, step: Step) -> None:
        """Send an ACK, and use its keys from now on."""
        server_random = self._random(frames.RANDOM_BYTES)
        self.sid = sid
        self.state = then
        self.received_seq = syn.seq
        self._keys = crypto.derive(shared, syn.client_random, server_random)
        if then is ServerState.READY:
            self.deadlines.pop("login", None)
        sealed_sid = crypto.seal_sid(sid, shared, syn.client_random, server_random)
        public = crypto.public_bytes(self._private)
        step.frames.append(frames.Ack(server_random, public, sealed_sid, seq=syn.seq, little=self._little))

    def _before_login(self) -> ServerState:
        return ServerState.CONNECTED if self.settings.require_login else ServerState.READY

    # Logging in

    def _login(self, frame: frames.Req, now_s: float, step: Step) -> None:
        req = self._open_request(frame, step)
        if req is None:
            return
        if req.business_cmd != Business.LOGIN.value:
            if not self.settings.open:
                step.frames.append(self._error_to(req, ErrorNumber.NOT_LOGGED_IN))
                return
            self.state = ServerState.CHECKING
            self._held.append(req)
            step.messages.append(anonymous_login("magline", _ANONYMOUS))
            return
        self._serve(req, now_s, step)
        if step.messages:
            self.state = ServerState.CHECKING

    def _hold(self, frame: frames.Req, _now_s: float, step: Step) -> None:
        req = self._open_request(frame, step)
        if req is None:
            return
        held_bytes = sum(len(each.data) for each in self._held) + len(req.data)
        if len(self._held) >= MAGLINE_HELD_FRAMES_MAX or held_bytes > MAGLINE_HELD_BYTES_MAX:
            step.frames.append(self._error_to(req, ErrorNumber.BUSY))
            return
        self._held.append(req)

    def _decide(self, message: Common, now_s: float, step: Step) -> None:
        if message.correlation == _ANONYMOUS:
            self._logged_in = message.failure is None
        else:
            self._answer(message, now_s, step)
        if not self._logged_in:
            return  # the answer to another request, or a failure
        self.deadlines.pop("login", None)
        self.state = ServerState.READY
        held, self._held = self._held, []
        for req in held:
            self._serve(req, now_s, step)

    def _too_late(self, _event: str, _now_s: float, step: Step) -> None:
        step.frames.append(frames.Err(0, ErrorNumber.TIMEOUT.value, little=self._little))
        self._end(Reason.ERROR, Closing("login_timeout"), step)

    # Requests

    def _request(self, frame: frames.Req, now_s: float, step: Step) -> None:
        req = self._open_request(frame, step)
        if req is not None:
            self._serve(req, now_s, step)

    def _open_request(self, frame: frames.Req, step: Step) -> frames.Req | None:
        """Return the decrypted request; None if it ends the connection: an invalid seal, a replay, the last seq."""
        try:
            req = self._decrypt(frame)
        except SealError as error:
            self._refuse_error(frame, error, step)
            return None
        if req.seq <= self.received_seq:
            self._replayed(req, step)
            return None
        if req.seq >= MAGLINE_SEQ_MAX:
            self._end(Reason.REKEY, Closing("rekey", f"the client's seq is {req.seq}"), step)
            return None
        self.received_seq = req.seq
        return req

    def _serve(self, req: frames.Req, _now_s: float, step: Step) -> None:
        if len(self._open) >= MAGLINE_REQUESTS_OPEN_MAX:
            step.frames.append(self._error_to(req, ErrorNumber.BUSY))
            return
        if req.business_cmd == Business.LOGIN.value and self._logged_in:
            step.frames.append(self._error_to(req, ErrorNumber.MALFORMED))
            return
        try:
            request = read_request(req)
        except ProtocolError as error:
            unknown = error.code == "unknown_business_cmd"
            number = ErrorNumber.NO_SUCH_SERVICE if unknown else ErrorNumber.MALFORMED
            step.frames.append(self._error_to(req, number))
            return
        self._open[request.correlation] = replace(req, data=b"")
        step.messages.append(request)

    def _answer(self, message: Common, _now_s: float, step: Step) -> None:
        req = self._open.get(message.correlation)
        if req is None:
            return  # already answered, no such request, or one of the session before a new SYN
        login = req.business_cmd == Business.LOGIN.value
        if login and message.failure is not None:
            number = error_number(message.failure)
            closing = Closing("login_refused", message.failure.text)
            known = ErrorNumber(number) if number in ERROR_NAMES and number else ErrorNumber.NOT_LOGGED_IN
            self._refuse(req, known, closing, step)
            return
        answer = answer_frame(message, req.business_cmd)
        del self._open[message.correlation]
        self._logged_in = self._logged_in or login
        if isinstance(answer, frames.Err):
            step.frames.append(replace(answer, seq=req.seq, little=self._little))
            return
        try:
            self._check_size(answer)
        except TranslationError:
            step.frames.append(self._error_to(req, ErrorNumber.TOO_LARGE))
            return
        step.frames.append(self._seal(answer, req.seq))

    def _push(self, message: Common, _now_s: float, step: Step) -> None:
        if self._is_seq_used_up:
            self._end(Reason.REKEY, Closing("rekey", f"our seq is {self.sent_seq}"), step)
            return
        push = from_message(message, Sender.SERVER)
        if not isinstance(push, frames.Psh):
            raise AssertionError("a notification is a PSH")
        self._check_size(push)
        step.frames.append(self._seal(push, self._next_seq()))

    def _pong(self, frame: frames.Pin, _now_s: float, step: Step) -> None:
        step.frames.append(frames.Pon(frame.ping_number, seq=frame.seq, little=frame.little))

    def _no_session(self, frame: frames.Req, _now_s: float, step: Step) -> None:
        self._little = frame.little
        closing = Closing("unknown_session", "a request before any SYN")
        self._refuse(frame, ErrorNumber.UNKNOWN_SESSION, closing, step)
