"""Known frames: each line of tests/captures/*.hex must decode to the fields beside it and encode back byte for byte."""

from pathlib import Path

import pytest

from wirelake.errors import InputError
from wirelake.protocols import registry
from wirelake.protocols.testing import LawError, check_capture

CAPTURES = Path(__file__).parent.parent / "captures"


def captured() -> list[tuple[str, str]]:
    return [
        (path.stem, line)
        for path in sorted(CAPTURES.glob("*.hex"))
        for line in path.read_text().splitlines()
        if line and not line.startswith("#")
    ]


@pytest.mark.parametrize(("protocol_name", "line"), captured())
def test_capture(protocol_name: str, line: str) -> None:
    check_capture(registry.get(protocol_name), line)


def test_every_protocol_has_captures() -> None:
    assert {name for name, _ in captured()} >= set(registry.BUILT_IN)


@pytest.mark.parametrize("line", ["client ok 000106 {}", 'client heartbeat 000106 {"a":1}'])
def test_a_capture_that_says_something_else_fails(line: str) -> None:
    with pytest.raises(LawError, match="decodes to heartbeat"):
        check_capture(registry.get("comet"), line)
    with pytest.raises(InputError, match="a line is"):
        check_capture(registry.get("comet"), line.removeprefix("client "))
