"""The described lines: the same verdict as of the message that holds them."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wirelake.errors import ProtocolError
from wirelake.layout import LayoutFrame
from wirelake.protocols.esnp import lines
from wirelake.protocols.esnp.constants import FIXED_SIZES, LINE_NAMES, WITHDRAWN, LineType
from wirelake.protocols.esnp.contents import read_contents
from wirelake.protocols.esnp.frames import END, decode
from wirelake.protocols.esnp.lines import LINES
from wirelake.protocols.frame import Sender

any_line = st.one_of(*LINES.strategies().values())
READ = [kind for kind in LINES.frames if kind is not lines.End]


def verdict(line: bytes) -> tuple[str, int] | None:
    try:
        LINES.decode(line, Sender.CLIENT)
    except ProtocolError as error:
        return error.code, error.offset
    return None


def test_every_type_of_line_is_described_except_withdrawn_ones() -> None:
    assert {kind.opcode for kind in LINES.frames} == set(LINE_NAMES) - WITHDRAWN
    assert all(kind.name == LINE_NAMES[kind.opcode or 0] for kind in LINES.frames)


@pytest.mark.parametrize("kind", LINES.frames, ids=lambda kind: kind.name)
@given(data=st.data())
def test_a_line_round_trips(kind: type[LayoutFrame], data: st.DataObject) -> None:
    line: Any = data.draw(LINES.strategies()[kind])
    assert LINES.decode(line.encode(), Sender.CLIENT) == line
    assert LINES.dissect(line.encode(), Sender.CLIENT).error is None


@pytest.mark.parametrize("kind", READ, ids=lambda kind: kind.name)
@given(body=st.binary(max_size=24))
def test_a_line_has_the_verdict_of_its_message(kind: type[LayoutFrame], body: bytes) -> None:
    number = kind.opcode or 0
    if number in FIXED_SIZES:
        body = body[: FIXED_SIZES[number]].ljust(FIXED_SIZES[number], b"\0")
    wire = bytes([number]) + len(body).to_bytes(3, "big") + body
    message = decode(wire + END, Sender.CLIENT)
    malformed = read_contents(message).malformed
    if number != LineType.VERSION:
        assert verdict(wire) == (None if malformed is None else (malformed.code, malformed.offset))
    found = LINES.dissect(wire, Sender.CLIENT).error
    assert (found and (found.code, found.offset)) == verdict(wire)


@given(any_line)
def test_a_line_is_built_as_described(line: Any) -> None:
    (found,) = decode(line.encode() + END, Sender.CLIENT).lines if line.opcode else (lines.Line(0),)
    assert found.type == line.opcode
    assert line.encode()[4:] == found.data
