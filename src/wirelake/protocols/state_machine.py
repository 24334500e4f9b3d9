"""A session's life as one table: in which state, on what, what is done, and which states may follow.

The same rows drive the session and are drawn into the docs, so neither can drift from the other.

What a row reacts to is written as: a frame's name for something the peer sent, `app …` for something our own side
asks for, `clock …` for a deadline that passed, and `*` for any frame that has no row of its own in that state.
"""

from collections.abc import Iterable
from enum import Enum

from msgspec import Struct

ANY_FRAME = "*"


class Transition(Struct, frozen=True):
    state: Enum
    event: str
    action: str  # the session's method
    next_states: tuple[Enum, ...]  # one state, or those among which the method chooses
    summary: str  # what happens, in words, for the docs


class StateMachine:
    """Rows, found by (state, event)."""

    def __init__(self, rows: Iterable[Transition]) -> None:
        self.rows = tuple(rows)
        self.start = self.rows[0].state
        self._found = {(row.state, row.event): row for row in self.rows}
        if len(self._found) != len(self.rows):
            raise ValueError("two rows for one state and event")

    def find(self, state: Enum, event: str) -> Transition | None:
        return self._found.get((state, event))

    def find_frame(self, state: Enum, name: str) -> Transition | None:
        return self._found.get((state, name)) or self._found.get((state, ANY_FRAME))

    def mermaid(self) -> str:
        """The diagram: one arrow for each pair of states, with the events that lead over it."""
        arrows: dict[tuple[Enum, Enum], list[str]] = {}
        for row in self.rows:
            for state in row.next_states:
                arrows.setdefault((row.state, state), []).append(_label(row.event))
        lines = ["stateDiagram-v2", f"    [*] --> {self.start.name}"]
        for (state, then), events in arrows.items():
            lines.append(f"    {state.name} --> {then.name}: {', '.join(events)}")
        return "\n".join(lines)

    def markdown(self) -> str:
        """The rows as a table of text."""
        lines = ["| state | on | then | what happens |", "| --- | --- | --- | --- |"]
        for row in self.rows:
            then = " or ".join(state.name for state in row.next_states)
            lines.append(f"| {row.state.name} | {_label(row.event)} | {then} | {row.summary} |")
        return "\n".join(lines)


def _label(event: str) -> str:
    return "any other frame" if event == ANY_FRAME else event
