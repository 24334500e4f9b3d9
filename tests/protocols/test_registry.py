from collections.abc import Iterator
from importlib.metadata import EntryPoint

import pytest

from wirelake.errors import InputError, UnknownProtocolError
from wirelake.protocols import registry
from wirelake.protocols.protocol import ReadingName


def added(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    point = EntryPoint(name, value, registry.ENTRY_POINT_GROUP)
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **_group: [point])
    registry.refresh()


@pytest.fixture(autouse=True)
def _forget(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a test pretends to have installed is forgotten with it."""
    yield
    monkeypatch.undo()
    registry.refresh()


@pytest.mark.parametrize("name", registry.BUILT_IN)
def test_each_built_in_protocol_is_whole(name: str) -> None:
    protocol = registry.get(name)
    assert protocol.name == name
    assert protocol.transports
    assert protocol.decoder_version >= 1
    assert protocol.server_session is not None
    assert protocol.client_session is not None
    assert protocol.losses


def test_an_unknown_name_gets_a_hint() -> None:
    with pytest.raises(UnknownProtocolError, match="did you mean magline"):
        registry.get("maglin")
    with pytest.raises(UnknownProtocolError, match="there are apostol, comet"):
        registry.get("zzz")


def test_a_name_cannot_be_taken_over(monkeypatch: pytest.MonkeyPatch) -> None:
    place = "wirelake.protocols.esnp.protocol:PROTOCOL"
    added(monkeypatch, "comet", place)
    assert registry.failures() == {place: f"entry point {place} takes the name of the built-in protocol 'comet'"}
    assert registry.get("comet").name == "comet"
    assert [protocol.name for protocol in registry.all_protocols()] == list(registry.BUILT_IN)


def test_an_entry_point_must_be_a_protocol_of_that_name(monkeypatch: pytest.MonkeyPatch) -> None:
    added(monkeypatch, "morse", "wirelake.limits:KIB")
    with pytest.raises(InputError, match="is a int, not a Protocol"):
        registry.get("morse")
    added(monkeypatch, "morse", "wirelake.protocols.comet.protocol:PROTOCOL")
    with pytest.raises(InputError, match="registered as 'morse' but is called 'comet'"):
        registry.get("morse")


@pytest.mark.parametrize(
    ("name", "private"),
    [("esnp.flags", True), ("sisnet.ans", True), ("lang", False), ("my.lang", False), ("esnp", False)],
)
def test_a_header_that_begins_with_a_protocols_name_is_private(name: str, private: bool) -> None:
    assert registry.is_private_header(name) is private


def test_a_reading_has_the_name_and_unit_that_its_protocol_gives_it() -> None:
    apostol = registry.get("apostol")
    assert apostol.reading_name(2) == ReadingName("energy", "Wh")
    assert apostol.reading_name(12) == ReadingName("reading 12", "")
    assert registry.get("comet").reading_name(2) == ReadingName("reading 2")
