"""The states of a session and the transitions between them, as one table.

The same transitions drive the session and are drawn into the docs, so that neither can drift from the other.

An event is a frame's name if the peer sent something, `app …` if our own side asks for something, `clock …` if a
deadline passed, and `*` for every frame that has no transition of its own in that state.
"""

from collections.abc import Iterable
from enum import Enum

from msgspec import Struct

ANY_FRAME = "*"


class Transition(Struct, frozen=True):
    state: Enum
    event: str
    action: str  # the name of the session's method
    next_states: tuple[Enum, ...]  # one state, or those that the method chooses from
    summary: str  # what happens, in words, for the docs


class StateMachine:
    """Transitions, found by state and event. The session starts in the state of the first one."""

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


def _label(event: str) -> str:
    return "any other frame" if event == ANY_FRAME else event
