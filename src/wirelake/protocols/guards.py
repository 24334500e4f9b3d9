"""What an added protocol raises ends its own work and nobody else's.

A codec that raises anything but our own errors raises a ProtocolError instead: the frame is quarantined. A session that
raises closes its own connection, with the code `session_fault`.
"""

import logging
from collections.abc import Callable, Hashable, Iterable
from enum import Enum
from functools import wraps
from typing import Any, Final, ParamSpec, TypeVar

from msgspec.structs import replace

from wirelake.errors import EncodeError, ProtocolError, StateError, TranslationError, WirelakeError
from wirelake.message import Message
from wirelake.protocols.context import SessionContext
from wirelake.protocols.frame import Frame, Sender
from wirelake.protocols.protocol import Carrier, Clue, Protocol
from wirelake.protocols.session import Closing, Resumption, Session, Step
from wirelake.protocols.splitter import CODEC_FAULT, Splitter

SESSION_FAULT: Final = "session_fault"

_log = logging.getLogger(__name__)
_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def guard(protocol: Protocol) -> Protocol:
    """Return the protocol with everything that it runs guarded."""

    def clues(frame: bytes, sender: Sender) -> Iterable[Clue]:
        return list(protocol.clues(frame, sender))  # a generator would raise outside of the guard

    made, served = protocol.server_session, protocol.server_splitter
    return replace(
        protocol,
        decode=_guarded(protocol, protocol.decode),
        dissect=_guarded(protocol, protocol.dissect),
        clues=_guarded(protocol, clues),
        to_message=_guarded(protocol, protocol.to_message),
        splitter=_guarded_splitter(protocol, protocol.splitter),
        server_splitter=None if served is None else _guarded_splitter(protocol, served),
        server_session=None if made is None else lambda context: GuardedSession(protocol.name, made, context),
    )


def _guarded(protocol: Protocol, call: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    @wraps(call)
    def guarded(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
        try:
            return call(*args, **kwargs)
        except (ProtocolError, TranslationError):
            raise
        except Exception as error:
            what = getattr(call, "__name__", "codec")
            raise ProtocolError(CODEC_FAULT, f"{protocol.name}: {what} raised {_in_words(error)}", 0) from error

    return guarded


def _guarded_splitter(
    protocol: Protocol, make: Callable[[Any, Carrier], Splitter]
) -> Callable[[Any, Carrier], Splitter]:
    def guarded(of: Any, carrier: Carrier) -> Splitter:
        try:
            splitter: object = make(of, carrier)
        except Exception as error:  # noqa: BLE001 (whatever it is, it is this protocol's own)
            return BrokenSplitter(f"{protocol.name}: splitter raised {_in_words(error)}")
        if not isinstance(splitter, Splitter):
            return BrokenSplitter(f"{protocol.name}: splitter returned a {type(splitter).__name__}, not a Splitter")
        return splitter

    return guarded


class BrokenSplitter(Splitter):
    """In place of one that could not be made: reads nothing, and says why."""

    __slots__ = ("_why",)

    def __init__(self, why: str) -> None:
        super().__init__(frame_bytes_max=0)
        self._why = why

    def _ends(self, buffer: bytes | bytearray, ends: list[int]) -> int:
        raise ProtocolError(CODEC_FAULT, self._why, 0)


class FaultState(Enum):
    FAILED = "failed"


class Encoded(Frame, frozen=True):
    """A frame of which the bytes are known."""

    data: bytes

    def encode(self) -> bytes:
        return self.data


class GuardedSession(Session):
    """Stands before the session of an added protocol. Once that raised, it only closes."""

    __slots__ = ("_protocol", "_session", "fault")

    def __init__(self, protocol: str, make: Callable[[SessionContext], Session], context: SessionContext) -> None:
        self.fault = ""  # what the session raised
        self._protocol = protocol
        self._session: Session | None = None
        try:
            session: object = make(context)
        except Exception as error:  # noqa: BLE001 (whatever it is, it is this protocol's own)
            self._failed("server_session", error)
            return
        if isinstance(session, Session):
            self._session = session
        else:
            self._failed("server_session", TypeError(f"a {type(session).__name__} is not a Session"))

    # What a session is asked to do

    def receive(self, frame: Frame, now_s: float) -> Step:
        return self._step("receive", lambda session: session.receive(frame, now_s))

    def send(self, message: Message, now_s: float) -> Step:
        return self._step("send", lambda session: session.send(message, now_s), may_refuse=True)

    def fail(self, error: ProtocolError, now_s: float) -> Step:
        return self._step("fail", lambda session: session.fail(error, now_s))

    def close(self, closing: Closing, now_s: float) -> Step:
        return self._step("goodbye", lambda session: session.close(closing, now_s))

    def tick(self, now_s: float) -> Step:
        return self._step("tick", lambda session: session.tick(now_s))

    def encode_notification(self, message: Message) -> bytes:
        try:
            return self._whole.encode_notification(message)
        except WirelakeError:
            raise
        except Exception as error:
            self._failed("encoded", error)
            raise EncodeError(self.fault) from error

    def may_resume(self, secret: bytes) -> bool:
        return self._ask("may_resume", lambda session: session.may_resume(secret), False)

    def logged_frame(self, raw: bytes, sender: Sender) -> bytes:
        return self._ask("kept", lambda session: session.logged_frame(raw, sender), b"")

    def redact_unreadable(self, raw: bytes) -> bytes:
        return self._ask("kept_unread", lambda session: session.redact_unreadable(raw), bytes(len(raw)))

    # What it is

    @property
    def sends_acks(self) -> bool:  # type: ignore[override]
        return self._ask("acknowledges", lambda session: session.sends_acks, False)

    @property
    def pulls_backlog(self) -> bool:  # type: ignore[override]
        return self._ask("fetches", lambda session: session.pulls_backlog, False)

    @property
    def logs_wire_bytes(self) -> bool:  # type: ignore[override]
        return self._ask("keeps_wire", lambda session: session.logs_wire_bytes, True)

    @property
    def state(self) -> Enum:  # type: ignore[override]
        failed: Enum = FaultState.FAILED
        return self._ask("state", lambda session: session.state, failed)

    @property
    def last_received_s(self) -> float:
        return self._ask("heard_s", lambda session: session.last_received_s, 0.0)

    @last_received_s.setter
    def last_received_s(self, now_s: float) -> None:
        if self._session is not None:
            self._session.last_received_s = now_s

    @property
    def deadlines(self) -> dict[str, float]:  # type: ignore[override]
        return self._ask("deadlines", lambda session: session.deadlines, {})

    @property
    def is_paused(self) -> bool:
        return self._ask("paused", lambda session: session.is_paused, False)

    @property
    def is_leaving(self) -> bool:
        return self._ask("leaving", lambda session: session.is_leaving, False)

    @property
    def frame_bytes_max(self) -> int | None:
        return self._ask("frame_bytes_max", lambda session: session.frame_bytes_max, None)

    @property
    def is_deciding_login(self) -> bool:
        return self._ask("deciding", lambda session: session.is_deciding_login, False)

    @property
    def encoding_key(self) -> Hashable | None:
        return self._ask("audience", lambda session: session.encoding_key, None)

    @property
    def begins_anonymous(self) -> bool:
        return self._ask("begins_anonymous", lambda session: session.begins_anonymous, False)

    @property
    def resumption(self) -> Resumption | None:
        return self._ask("resumption", lambda session: session.resumption, None)

    @property
    def deadline_s(self) -> float | None:
        """At once where it failed: then `tick` closes the connection."""
        at_once: float | None = 0.0
        return self._ask("deadline_s", lambda session: session.deadline_s, at_once)

    # Guards

    @property
    def _whole(self) -> Session:
        if self._session is None:
            raise StateError(self.fault)
        return self._session

    def _step(self, what: str, call: Callable[[Session], Step], *, may_refuse: bool = False) -> Step:
        if self._session is None:
            return Step(closing=Closing(SESSION_FAULT, self.fault))
        try:
            step = call(self._session)
            step.frames = [_encoded(frame) for frame in step.frames]
            return step
        except (StateError, TranslationError, EncodeError) as error:
            if may_refuse:
                raise
            return self._failed(what, error)
        except Exception as error:  # noqa: BLE001 (whatever it is, it is this session's own)
            return self._failed(what, error)

    def _ask(self, what: str, call: Callable[[Session], _Result], otherwise: _Result) -> _Result:
        if self._session is None:
            return otherwise
        try:
            return call(self._session)
        except Exception as error:  # noqa: BLE001 (the same)
            self._failed(what, error)
            return otherwise

    def _failed(self, what: str, error: Exception) -> Step:
        self.fault = f"{self._protocol}: {what} of the session raised {_in_words(error)}"
        self._session = None
        _log.error("%s; its connection is closed", self.fault, exc_info=error)
        return Step(closing=Closing(SESSION_FAULT, self.fault))


def _encoded(frame: Frame) -> Frame:
    """Encode it here, where what that raises is the session's own fault."""
    try:
        return Encoded(frame.encode())
    except EncodeError:
        return frame  # whoever sends it knows what to do


def _in_words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
