"""The states of a session and the transitions between them, as one table.

The table drives the session and is drawn into the docs, so the two always agree.

An event is the name of a frame from the peer, `app …` for a call from our own side, `clock …` for a deadline that
passed, or `*` for every frame that has no transition of its own in that state.
"""

from collections.abc import Iterable, Iterator
from enum import Enum

from msgspec import Struct

ANY_FRAME = "*"


class Transition(Struct, frozen=True):
    """What a session does on an event in a state."""

    state: Enum
    event: str
    action: str  # the name of the session's method
    next_states: tuple[Enum, ...]  # one state, or those that the method chooses from
    summary: str  # what happens, in words, for the docs


class StateMachine:
    """Find transitions by state and event. A session starts in the state of the first transition."""

    def __init__(self, rows: Iterable[Transition]) -> None:
        self.rows = tuple(rows)
        self.start = self.rows[0].state
        self._found = {(row.state, row.event): row for row in self.rows}
        if len(self._found) != len(self.rows):
            raise ValueError("two rows for one state and event")

    def find(self, state: Enum, event: str) -> Transition | None:
        """Return the transition for an `app …` or `clock …` event."""
        return self._found.get((state, event))

    def find_frame(self, state: Enum, name: str) -> Transition | None:
        """Return the transition for a frame: its own, or that of any other frame."""
        return self._found.get((state, name)) or self._found.get((state, ANY_FRAME))

    def mermaid(self) -> str:
        """Draw the states as a Mermaid diagram: one arrow for each pair of states, labelled with its events."""
        arrows: dict[tuple[Enum, Enum], list[str]] = {}
        for row in self.rows:
            for state in row.next_states:
                arrows.setdefault((row.state, state), []).append(_label(row.event))
        lines = ["stateDiagram-v2", f"    [*] --> {self.start.name}"]
        for (state, then), events in arrows.items():
            lines.append(f"    {state.name} --> {then.name}: {', '.join(events)}")
        return "\n".join(lines)

    def markdown(self) -> str:
        """Write the transitions as a Markdown table."""
        lines = ["| state | on | then | what happens |", "| --- | --- | --- | --- |"]
        for row in self.rows:
            then = " or ".join(state.name for state in row.next_states)
            lines.append(f"| {row.state.name} | {_label(row.event)} | {then} | {row.summary} |")
        return "\n".join(lines)


def login_transitions(
    checking: Enum,
    decided: tuple[Enum, ...],
    closed: Enum,
    *,
    decide: str,
    late: str,
    hold: str = "held until the login is decided",
    held_frames: str = ANY_FRAME,
) -> Iterator[Transition]:
    """Yield the transitions of the state in which a login is checked and the frames behind it are held.

    The session has the methods `_decide`, `_hold` and `_too_late`; `decided` are the states that `_decide` may choose.
    """
    yield Transition(checking, "app response", "_decide", decided, decide)
    yield Transition(checking, held_frames, "_hold", (checking, closed), hold)
    yield Transition(checking, "clock login", "_too_late", (closed,), late)


def closing_transitions(
    states: Iterable[Enum],
    closed: Enum,
    *,
    close: str = "close",
    fail: str | None = "close",
    silence: str | None = "close",
    flood: str | None = None,
) -> Iterator[Transition]:
    """Yield the transitions that close a session from any of these states, with a summary of each for the docs.

    The session has the methods `_goodbye`, `_fail`, `_silent` and `_flood`; an event whose summary is None has no
    transition.
    """
    events = (
        ("app fail", "_fail", fail),
        ("app close", "_goodbye", close),
        ("app flood", "_flood", flood),
        ("clock silence", "_silent", silence),
    )
    for state in states:
        for event, action, summary in events:
            if summary is not None:
                yield Transition(state, event, action, (closed,), summary)


def _label(event: str) -> str:
    return "any other frame" if event == ANY_FRAME else event
