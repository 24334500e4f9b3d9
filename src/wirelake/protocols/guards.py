"""Contain the exceptions of added protocols, so that they affect nobody else.

If a codec raises anything but our own errors, a ProtocolError is raised instead, and the frame is quarantined. If a
session raises, its own connection is closed with the code `session_fault`.
"""

import logging
from collections.abc import Callable, Hashable, Iterable, Sequence
from enum import Enum
from functools import wraps
from typing import Any, Final, ParamSpec, TypeVar

from msgspec.structs import replace

from wirelake.errors import EncodeError, ProtocolError, StateError, TranslationError, WirelakeError
from wirelake.message import Message
from wirelake.protocols.context import SessionContext
from wirelake.protocols.device_session import Assembling, DeviceSession
from wirelake.protocols.frame import Frame, Sender
from wirelake.protocols.protocol import Carrier, Clue, Protocol, unredacted
from wirelake.protocols.session import Closing, Resumption, Session, Step
from wirelake.protocols.splitter import CODEC_FAULT, Splitter

SESSION_FAULT: Final = "session_fault"

_log = logging.getLogger(__name__)
_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def guard(protocol: Protocol) -> Protocol:
    """Return the protocol with everything that it runs guarded."""

    def clues(frame: bytes, sender: Sender) -> Iterable[Clue]:
        return list(protocol.clues(frame, sender))  # consumed here: a generator would raise outside of the guard

    make_session, server_splitter, device_of = protocol.server_session, protocol.server_splitter, protocol.device_of
    session_type = GuardedSession if device_of is None else GuardedDeviceSession
    return replace(
        protocol,
        decode=_guarded(protocol, protocol.decode),
        dissect=_guarded(protocol, protocol.dissect),
        clues=_guarded(protocol, clues),
        to_message=_guarded(protocol, protocol.to_message),
        redact=_guarded_redact(protocol),
        redact_many=_guarded_redact_many(protocol),
        splitter=_guarded_splitter(protocol, protocol.splitter),
        server_splitter=None if server_splitter is None else _guarded_splitter(protocol, server_splitter),
        server_session=(
            None if make_session is None else lambda context: session_type(protocol.name, make_session, context)
        ),
        device_of=None if device_of is None else _guarded_device_of(protocol, device_of),
        telemetry_reader=None,  # an exception in a batch cannot be blamed on one frame
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
        except Exception as error:  # noqa: BLE001 (any fault is this protocol's own)
            return BrokenSplitter(f"{protocol.name}: splitter raised {_in_words(error)}")
        if not isinstance(splitter, Splitter):
            return BrokenSplitter(f"{protocol.name}: splitter returned a {type(splitter).__name__}, not a Splitter")
        return splitter

    return guarded


def _guarded_redact(protocol: Protocol) -> Callable[[bytes, Sender], bytes]:
    redact = protocol.redact
    if redact is unredacted:
        return redact

    def guarded(frame: bytes, sender: Sender) -> bytes:
        """Blank the whole frame if the protocol cannot say what in it is secret."""
        try:
            found: object = redact(frame, sender)
        except Exception as error:  # noqa: BLE001 (any fault is this protocol's own)
            _log.error("%s: redact raised %s; the frame is blanked", protocol.name, type(error).__name__)
            return bytes(len(frame))
        if isinstance(found, bytes) and len(found) == len(frame):
            return found
        _log.error("%s: redact returned other than as many bytes; the frame is blanked", protocol.name)
        return bytes(len(frame))

    return guarded


def _guarded_redact_many(protocol: Protocol) -> Callable[[Sequence[bytes], Sender], Sequence[bytes]] | None:
    """Return the function that is derived from a description, which can be trusted until it raises; else None."""
    layout, redact = protocol.layout, _guarded_redact(protocol)
    if layout is None or protocol.redact_many != layout.redact_many:
        return None

    def guarded(frames: Sequence[bytes], sender: Sender) -> Sequence[bytes]:
        try:
            return layout.redact_many(frames, sender)
        except Exception:  # noqa: BLE001 (raised again, and reported, for the frame that causes it)
            return [redact(frame, sender) for frame in frames]

    return guarded


def _guarded_device_of(protocol: Protocol, device_of: Callable[[Frame], str | None]) -> Callable[[Frame], str | None]:
    def guarded(frame: Frame) -> str | None:
        try:
            return device_of(frame)
        except Exception as error:  # noqa: BLE001 (any fault is this protocol's own)
            _log.exception("%s: device_of raised %s; the frame is refused", protocol.name, _in_words(error))
            return ""  # no device has this serial

    return guarded


class BrokenSplitter(Splitter):
    """Takes the place of a splitter that could not be made. It reads nothing, and fails with the reason."""

    __slots__ = ("_reason",)

    def __init__(self, reason: str) -> None:
        super().__init__(frame_bytes_max=0)
        self._reason = reason

    def _ends(self, buffer: bytes | bytearray, ends: list[int]) -> int:
        raise ProtocolError(CODEC_FAULT, self._reason, 0)


class FaultState(Enum):
    FAILED = "failed"


class Encoded(Frame, frozen=True):
    """A frame that is encoded already."""

    data: bytes
    is_reply: bool = False  # type: ignore[misc]

    def encode(self) -> bytes:
        return self.data


class GuardedSession(Session):
    """Wraps the session of an added protocol. Once that raised, it only closes the connection."""

    __slots__ = ("_protocol", "_session", "fault")

    def __init__(self, protocol: str, make: Callable[[SessionContext], Session], context: SessionContext) -> None:
        self.fault = ""  # what the session raised
        self._protocol = protocol
        self._session: Session | None = None
        try:
            session: object = make(context)
        except Exception as error:  # noqa: BLE001 (any fault is this protocol's own)
            self._fail_session("server_session", error)
            return
        if isinstance(session, Session):
            self._session = session
        else:
            self._fail_session("server_session", TypeError(f"a {type(session).__name__} is not a Session"))

    # Methods of the session

    def receive(self, frame: Frame, now_s: float) -> Step:
        return self._step("receive", lambda session: session.receive(frame, now_s))

    def receive_many(self, frames: list[bytes], start: int, now_s: float) -> Step | None:
        none: Step | None = None
        return self._call("receive_many", lambda session: session.receive_many(frames, start, now_s), none)

    def send(self, message: Message, now_s: float) -> Step:
        return self._step("send", lambda session: session.send(message, now_s), may_refuse=True)

    def fail(self, error: ProtocolError, now_s: float) -> Step:
        return self._step("fail", lambda session: session.fail(error, now_s))

    def close(self, closing: Closing, now_s: float) -> Step:
        return self._step("close", lambda session: session.close(closing, now_s))

    def tick(self, now_s: float) -> Step:
        return self._step("tick", lambda session: session.tick(now_s))

    def encode_notification(self, message: Message) -> bytes:
        try:
            return self._working_session.encode_notification(message)
        except WirelakeError:
            raise
        except Exception as error:
            self._fail_session("encode_notification", error)
            raise EncodeError(self.fault) from error

    def may_resume(self, secret: bytes) -> bool:
        return self._call("may_resume", lambda session: session.may_resume(secret), False)

    def logged_frame(self, raw: bytes, sender: Sender) -> bytes:
        return self._call("logged_frame", lambda session: session.logged_frame(raw, sender), b"")

    # Properties of the session

    @property
    def sends_acks(self) -> bool:  # type: ignore[override]
        return self._call("sends_acks", lambda session: session.sends_acks, False)

    @property
    def pulls_backlog(self) -> bool:  # type: ignore[override]
        return self._call("pulls_backlog", lambda session: session.pulls_backlog, False)

    @property
    def logs_wire_bytes(self) -> bool:  # type: ignore[override]
        return self._call("logs_wire_bytes", lambda session: session.logs_wire_bytes, True)

    @property
    def state(self) -> Enum:  # type: ignore[override]
        failed: Enum = FaultState.FAILED
        return self._call("state", lambda session: session.state, failed)

    @property
    def last_received_s(self) -> float:
        return self._call("last_received_s", lambda session: session.last_received_s, 0.0)

    @last_received_s.setter
    def last_received_s(self, now_s: float) -> None:
        if self._session is not None:
            self._session.last_received_s = now_s

    @property
    def deadlines(self) -> dict[str, float]:  # type: ignore[override]
        return self._call("deadlines", lambda session: session.deadlines, {})

    @property
    def is_paused(self) -> bool:
        return self._call("is_paused", lambda session: session.is_paused, False)

    @property
    def is_leaving(self) -> bool:
        return self._call("is_leaving", lambda session: session.is_leaving, False)

    @property
    def takes_commands(self) -> bool:
        return self._call("takes_commands", lambda session: session.takes_commands, False)

    @property
    def frame_bytes_max(self) -> int | None:
        return self._call("frame_bytes_max", lambda session: session.frame_bytes_max, None)

    @property
    def is_deciding_login(self) -> bool:
        return self._call("is_deciding_login", lambda session: session.is_deciding_login, False)

    @property
    def encoding_key(self) -> Hashable | None:
        return self._call("encoding_key", lambda session: session.encoding_key, None)

    @property
    def begins_anonymous(self) -> bool:
        return self._call("begins_anonymous", lambda session: session.begins_anonymous, False)

    @property
    def resumption(self) -> Resumption | None:
        return self._call("resumption", lambda session: session.resumption, None)

    @property
    def deadline_s(self) -> float | None:
        """Return when `tick` is due: at once if the session failed, so that `tick` closes the connection."""
        at_once: float | None = 0.0
        return self._call("deadline_s", lambda session: session.deadline_s, at_once)

    # Guards

    @property
    def _working_session(self) -> Session:
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
            return self._fail_session(what, error)
        except Exception as error:  # noqa: BLE001 (any fault is this session's own)
            return self._fail_session(what, error)

    def _call(self, what: str, call: Callable[[Session], _Result], default: _Result) -> _Result:
        if self._session is None:
            return default
        try:
            return call(self._session)
        except Exception as error:  # noqa: BLE001 (any fault is this session's own)
            self._fail_session(what, error)
            return default

    def _fail_session(self, what: str, error: Exception) -> Step:
        self.fault = f"{self._protocol}: {what} of the session raised {_in_words(error)}"
        self._session = None
        _log.error("%s; its connection is closed", self.fault, exc_info=error)
        return Step(closing=Closing(SESSION_FAULT, self.fault))


class GuardedDeviceSession(GuardedSession, DeviceSession):
    """Wraps a session that belongs to a device."""

    __slots__ = ()

    @property
    def _device(self) -> DeviceSession:
        if not isinstance(self._session, DeviceSession):
            raise StateError(self.fault or "the session of a device must be a DeviceSession")
        return self._session

    @property
    def device_type(self) -> int:  # type: ignore[override]
        return self._call("device_type", lambda _: self._device.device_type, 0)

    @property
    def serial(self) -> str:  # type: ignore[override]
        return self._call("serial", lambda _: self._device.serial, "")

    @property
    def forgery_reasons(self) -> frozenset[str]:  # type: ignore[override]
        return self._call("forgery_reasons", lambda _: self._device.forgery_reasons, frozenset[str]())

    @property
    def is_located(self) -> bool:
        return self._call("is_located", lambda _: self._device.is_located, False)

    @property
    def assembling(self) -> int:
        return self._call("assembling", lambda _: self._device.assembling, 0)

    @property
    def assembling_bytes(self) -> int:
        return self._call("assembling_bytes", lambda _: self._device.assembling_bytes, 0)

    @property
    def assembling_bytes_max(self) -> int:
        return self._call("assembling_bytes_max", lambda _: self._device.assembling_bytes_max, 0)

    @property
    def assembly_s(self) -> float:
        return self._call("assembly_s", lambda _: self._device.assembly_s, 0.0)

    @property
    def has_unsaved(self) -> bool:
        return self._call("has_unsaved", lambda _: self._device.has_unsaved, False)

    def under_way(self) -> Sequence[Assembling]:
        return self._call("under_way", lambda _: self._device.under_way(), ())

    def relieve(self, now_s: float) -> Step:
        return self._step("relieve", lambda _: self._device.relieve(now_s))

    def is_report(self, frame: Frame) -> bool:
        return self._call("is_report", lambda _: self._device.is_report(frame), False)

    def withdraw(self, frame: Frame, report: Message) -> None:
        self._call("withdraw", lambda _: self._device.withdraw(frame, report), None)

    def take_unsaved(self) -> dict[int, bytes]:
        return self._call("take_unsaved", lambda _: self._device.take_unsaved(), dict[int, bytes]())

    def keep_unsaved(self, number: int) -> None:
        self._call("keep_unsaved", lambda _: self._device.keep_unsaved(number), None)


def _encoded(frame: Frame) -> Frame:
    """Encode the frame here, where an exception is known to be the session's own fault."""
    try:
        return Encoded(frame.encode(), frame.is_reply)
    except EncodeError:
        return frame  # the sender handles it


def _in_words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
