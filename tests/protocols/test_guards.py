"""Guarded sessions of installed device protocols: they delegate, and a fault ends only the session itself."""

import os
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from wirelake.message import Kind, Message
from wirelake.protocols import registry
from wirelake.protocols.comet.frames import Auth, Heartbeat
from wirelake.protocols.context import SessionContext
from wirelake.protocols.device_session import Assembling, DeviceSession
from wirelake.protocols.frame import Frame, Sender
from wirelake.protocols.guards import SESSION_FAULT, GuardedDeviceSession, guard
from wirelake.protocols.protocol import unredacted
from wirelake.protocols.session import Closing, Session, Step

UNUSED: Any = None
CONTEXT = SessionContext(settings=UNUSED, now_s=0.0, number=1, random=os.urandom, keys=UNUSED, address=UNUSED)
REPORT = Message(kind=Kind.TELEMETRY)
COMMAND = Assembling(6, "m1", 1, answer=False, packets=1, last=None, missing=(), bytes=3, first_at_s=0.0)


class Reading(Frame, frozen=True):
    name = "reading"


class Healthy(DeviceSession):
    """A session without a state machine that answers with values of its own."""

    forgery_reasons = frozenset({"bad_seal"})
    device_type = 7
    serial = "m1"
    is_located = False
    assembling = 2
    assembling_bytes = 30
    assembling_bytes_max = 400
    assembly_s = 5.0
    has_unsaved = True

    def __init__(self, _context: SessionContext) -> None:
        self.calls: list[Any] = []

    def under_way(self) -> tuple[Any, ...]:
        return (COMMAND,)

    def relieve(self, now_s: float) -> Step:
        return Step(closing=Closing("relieved", f"{now_s:g}"))

    def is_report(self, frame: Frame) -> bool:
        return isinstance(frame, Reading)

    def withdraw(self, frame: Frame, report: Message) -> None:
        self.calls.append((frame, report))

    def take_unsaved(self) -> dict[int, bytes]:
        return {1: b"x"}

    def keep_unsaved(self, number: int) -> None:
        self.calls.append(number)


def guarded(made: Callable[[SessionContext], Session]) -> GuardedDeviceSession:
    return GuardedDeviceSession("tracker", made, CONTEXT)


def test_a_guarded_session_answers_as_the_session_does() -> None:
    session, frame = guarded(Healthy), Reading()
    assert (session.device_type, session.serial, session.forgery_reasons) == (7, "m1", frozenset({"bad_seal"}))
    assert (session.is_located, session.has_unsaved) == (False, True)
    assert (session.assembling, session.assembling_bytes, session.assembling_bytes_max) == (2, 30, 400)
    assert (session.assembly_s, session.under_way()) == (5.0, (COMMAND,))
    assert session.relieve(3.0).closing == Closing("relieved", "3")
    assert session.is_report(frame)
    session.withdraw(frame, REPORT)
    session.keep_unsaved(4)
    assert session.take_unsaved() == {1: b"x"}
    assert session.receive_many([b""], 0, 0.0) is None
    assert session.fault == ""


CALLS: dict[str, tuple[Callable[[GuardedDeviceSession], object], object]] = {
    "device_type": (lambda session: session.device_type, 0),
    "serial": (lambda session: session.serial, ""),
    "forgery_reasons": (lambda session: session.forgery_reasons, frozenset()),
    "is_located": (lambda session: session.is_located, False),
    "assembling": (lambda session: session.assembling, 0),
    "assembling_bytes": (lambda session: session.assembling_bytes, 0),
    "assembling_bytes_max": (lambda session: session.assembling_bytes_max, 0),
    "assembly_s": (lambda session: session.assembly_s, 0.0),
    "has_unsaved": (lambda session: session.has_unsaved, False),
    "under_way": (lambda session: session.under_way(), ()),
    "is_report": (lambda session: session.is_report(Reading()), False),
    "withdraw": (lambda session: session.withdraw(Reading(), REPORT), None),
    "take_unsaved": (lambda session: session.take_unsaved(), {}),
    "keep_unsaved": (lambda session: session.keep_unsaved(1), None),
    "receive_many": (lambda session: session.receive_many([b""], 0, 0.0), None),
}


@pytest.mark.parametrize("name", CALLS)
def test_what_raises_ends_the_session_with_a_harmless_answer(name: str) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("a fault of the session")

    is_method = callable(getattr(Healthy, name))
    broken: Any = type("Broken", (Healthy,), {name: fail if is_method else property(fail)})
    session = guarded(broken)
    call, answer = CALLS[name]
    assert call(session) == answer
    assert "ZeroDivisionError: a fault of the session" in session.fault
    assert session.tick(1.0).closing == Closing(SESSION_FAULT, session.fault)
    assert session.relieve(1.0).closing == Closing(SESSION_FAULT, session.fault)


class NoDeviceSession(Session):
    def __init__(self, _context: SessionContext) -> None:
        self.deadlines = {}


def test_a_session_that_is_no_device_session_is_a_fault() -> None:
    session = guarded(NoDeviceSession)
    assert session.serial == ""
    assert "StateError" in session.fault
    assert session.deadline_s == 0.0, "it is closed at once"


def test_the_defaults_of_a_device_session() -> None:
    class Plain(DeviceSession):
        def __init__(self) -> None:
            self.deadlines = {}

    session = Plain()
    assert (session.is_located, session.can_batch, session.has_unsaved) == (True, False, False)
    assert (session.assembling, session.assembling_bytes, session.assembling_bytes_max) == (0, 0, 0)
    assert (session.assembly_s, session.under_way(), session.take_unsaved()) == (0.0, (), {})
    assert session.relieve(0.0) == Step()
    assert session.is_report(Reading())
    session.withdraw(Reading(), REPORT)
    session.keep_unsaved(1)


# ── redaction


def _raise(_frame: bytes, _sender: Sender) -> bytes:
    raise ValueError("what is s3cret")


@pytest.mark.parametrize(
    "redact", [_raise, lambda frame, _sender: frame[:-1], lambda _frame, _sender: None], ids=["raises", "short", "none"]
)
def test_a_frame_that_cannot_be_redacted_is_blanked(redact: Any, caplog: pytest.LogCaptureFixture) -> None:
    guarded = guard(replace(registry.get("comet"), redact=redact, redact_many=lambda frames, _sender: frames))
    assert guarded.redact(b"s3cret", Sender.CLIENT) == bytes(6)
    assert guarded.redact_all([b"s3cret"], Sender.CLIENT) == [bytes(6)]
    assert "comet: redact" in caplog.text
    assert "s3cret" not in caplog.text


def test_a_protocol_without_secrets_stays_as_quick_as_it_was() -> None:
    frames = [b"x"]
    assert guard(registry.get("apostol")).redact_all(frames, Sender.CLIENT) is frames


def test_a_described_protocol_keeps_its_quick_test() -> None:
    guarded = guard(registry.get("comet"))
    beat, login = Heartbeat().encode(), Auth("ann", "s3cret").encode()
    shown = guarded.redact_all([beat, login], Sender.CLIENT)
    assert guarded.redact_many is not None
    assert shown[0] is beat
    assert b"ann" in shown[1]
    assert b"s3cret" not in shown[1]


def test_a_description_that_raises_blanks_the_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    layout = registry.get("comet").layout
    assert layout is not None
    monkeypatch.setattr(layout, "redact", _raise)
    guarded = guard(replace(registry.get("comet"), redact=unredacted, redact_many=None))
    beat, login = Heartbeat().encode(), Auth("ann", "s3cret").encode()
    assert guarded.redact_all([beat, login], Sender.CLIENT) == [bytes(len(beat)), bytes(len(login))]
