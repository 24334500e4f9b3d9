from enum import Enum, auto

import pytest

from wirelake.protocols.state_machine import ANY_FRAME, StateMachine, Transition


class Door(Enum):
    OPEN = auto()
    SHUT = auto()


ROWS = [
    Transition(Door.OPEN, "push", "_shut", (Door.SHUT,), "it falls shut"),
    Transition(Door.SHUT, ANY_FRAME, "_knock", (Door.SHUT, Door.OPEN), "somebody may come"),
    Transition(Door.SHUT, "clock morning", "_open", (Door.OPEN,), "it opens"),
]


def test_rows_are_found_by_state_and_event() -> None:
    table = StateMachine(ROWS)
    assert table.start is Door.OPEN
    assert table.find(Door.SHUT, "clock morning") is ROWS[2]
    assert table.find(Door.OPEN, "clock morning") is None
    assert table.find_frame(Door.SHUT, "anything") is ROWS[1]
    assert table.find_frame(Door.OPEN, "anything") is None


def test_two_rows_for_one_event_are_refused() -> None:
    with pytest.raises(ValueError, match="two rows"):
        StateMachine([*ROWS, ROWS[0]])


def test_the_diagram() -> None:
    assert StateMachine(ROWS).mermaid() == (
        "stateDiagram-v2\n"
        "    [*] --> OPEN\n"
        "    OPEN --> SHUT: push\n"
        "    SHUT --> SHUT: any other frame\n"
        "    SHUT --> OPEN: any other frame, clock morning"
    )


def test_the_table_in_words() -> None:
    assert (
        StateMachine(ROWS).markdown().splitlines()[3] == "| SHUT | any other frame | SHUT or OPEN | somebody may come |"
    )
