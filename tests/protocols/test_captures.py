"""Known frames: each line of tests/captures/*.hex must decode to the fields beside it and encode back byte for byte.

A line is: sender, frame name, hex (spaces allowed), the fields as JSON with bytes as base64.
"""

import json
import re
from pathlib import Path

import pytest

from wirelake.protocols import registry
from wirelake.protocols.frame import Sender
from wirelake.protocols.text import write_json

CAPTURES = Path(__file__).parent.parent / "captures"
LINE = re.compile(r"(?P<sender>client|server) (?P<name>\S+) (?P<hex>[0-9a-f ]+) (?P<fields>[{\[].*)")


def captured() -> list[tuple[str, str]]:
    return [
        (path.stem, line)
        for path in sorted(CAPTURES.glob("*.hex"))
        for line in path.read_text().splitlines()
        if line and not line.startswith("#")
    ]


@pytest.mark.parametrize(("protocol_name", "line"), captured())
def test_capture(protocol_name: str, line: str) -> None:
    parts = LINE.fullmatch(line)
    assert parts is not None, "a line is: sender, frame name, hex, fields as JSON"
    protocol = registry.get(protocol_name)
    wire = bytes.fromhex(parts["hex"])
    frame = protocol.decode(wire, Sender(parts["sender"]))
    assert frame.name == parts["name"]
    assert json.loads(write_json(frame)) == json.loads(parts["fields"])
    assert frame.encode() == wire


def test_every_protocol_has_captures() -> None:
    assert {name for name, _ in captured()} >= set(registry.BUILT_IN)
