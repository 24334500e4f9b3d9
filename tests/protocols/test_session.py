"""The driver of the state tables, on a table of its own."""

from enum import Enum, auto

import pytest

from wirelake.errors import ProtocolError, StateError
from wirelake.message import Kind, Message
from wirelake.protocols.frame import Frame
from wirelake.protocols.session import Closing, Session, Step
from wirelake.protocols.state_machine import ANY_FRAME, StateMachine, Transition


class Lamp(Enum):
    DARK = auto()
    LIT = auto()
    BROKEN = auto()


class Switch(Frame, frozen=True):
    name = "switch"


class Kick(Frame, frozen=True):
    name = "kick"


class LampSession(Session):
    state_machine = StateMachine(
        [
            Transition(Lamp.DARK, "switch", "_switch", (Lamp.LIT,), "it lights"),
            Transition(Lamp.DARK, "app event", "_switch", (Lamp.LIT,), "it lights"),
            Transition(Lamp.LIT, "switch", "_switch", (Lamp.DARK, Lamp.BROKEN), "it goes out"),
            Transition(Lamp.LIT, ANY_FRAME, "_break", (Lamp.BROKEN,), "it breaks"),
            Transition(Lamp.LIT, "clock burn", "_break", (Lamp.BROKEN,), "it burns through"),
            Transition(Lamp.LIT, "clock silence", "_break", (Lamp.BROKEN,), "forgotten"),
            Transition(Lamp.LIT, "app close", "_break", (Lamp.BROKEN,), "unscrewed"),
        ]
    )

    def _switch(self, _what: object, now_s: float, step: Step) -> None:
        step.frames.append(Switch())
        self.deadlines["burn"] = now_s + 100

    def _break(self, _what: object, _now_s: float, step: Step) -> None:
        step.closing = Closing("broken")


def test_a_row_leads_to_its_state_and_does_what_it_says() -> None:
    lamp = LampSession(0.0)
    assert lamp.state.name == "DARK"
    assert lamp.receive(Switch(), 1.0).frames == [Switch()]
    assert lamp.state.name == "LIT"
    assert lamp.last_received_s == 1.0


def test_any_other_frame_has_a_row_of_its_own() -> None:
    lamp = LampSession(0.0)
    lamp.send(Message(kind=Kind.EVENT), 0.0)
    assert lamp.receive(Kick(), 0.0).closing == Closing("broken")


def test_what_has_no_row_is_an_error_of_ours() -> None:
    lamp = LampSession(0.0)
    with pytest.raises(StateError, match="DARK and reads no more"):
        lamp.receive(Kick(), 0.0)
    with pytest.raises(StateError, match="'app telemetry' has no place"):
        lamp.send(Message(kind=Kind.TELEMETRY), 0.0)


def test_a_method_must_keep_to_the_states_of_its_row() -> None:
    lamp = LampSession(0.0)
    lamp.receive(Switch(), 0.0)
    with pytest.raises(AssertionError, match="may not lead to LIT"):
        lamp.receive(Switch(), 0.0)


def test_signals_without_a_row_do_nothing() -> None:
    lamp = LampSession(0.0)
    assert lamp.fail(ProtocolError("x", "y", 0), 0.0) == Step()
    assert lamp.close(Closing("done"), 0.0) == Step()


def test_deadlines_run_once_in_order_when_due() -> None:
    assert LampSession(0.0).deadline_s is None
    lamp = LampSession(0.0)
    lamp.receive(Switch(), 5.0)
    assert lamp.deadline_s == 105.0
    assert lamp.tick(104.9) == Step()
    assert lamp.tick(105.0).closing == Closing("broken")
    assert lamp.tick(200.0) == Step()


def test_silence_counts_from_the_last_frame() -> None:
    lamp = LampSession(0.0, idle_s=10.0)
    lamp.receive(Switch(), 8.0)
    assert lamp.tick(12.0) == Step()
    assert lamp.deadline_s == 18.0
    assert lamp.tick(18.0).closing == Closing("broken")
