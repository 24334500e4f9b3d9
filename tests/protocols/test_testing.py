"""The laws fail for a protocol that breaks them, with the smallest bytes that show it."""

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
from gateway.installed_protocol import example
from msgspec.structs import replace

from wirelake.errors import ProtocolError, TranslationError
from wirelake.layout import FrameSet
from wirelake.message import Kind, Message, Topic
from wirelake.protocols.frame import Frame, Sender
from wirelake.protocols.guards import guard
from wirelake.protocols.protocol import Carrier, Protocol, Transport
from wirelake.protocols.testing import EXAMPLES, LawError, laws, protocol_laws
from wirelake.protocols.translation import Loss
from wirelake.protocols.tree import Tree

beacon = example("beacon")
SOUND: Protocol = replace(
    beacon.PROTOCOL, transports=(*beacon.PROTOCOL.transports, Transport(Carrier.TCP, 7999, "beacon_tcp"))
)
FRAMES: FrameSet = beacon.FRAMES


def reading(station: str, tenths: int) -> Frame:
    made: Frame = beacon.Reading(station, tenths)
    return made


test_the_laws_of_a_sound_protocol = protocol_laws(SOUND)


def broken(protocol: Protocol, name: str) -> LawError:
    """Return how the law of this name fails."""
    (law,) = [law for law in laws(protocol) if law.name == name]
    with pytest.raises(LawError) as caught:
        law.run(EXAMPLES)
    return caught.value


def test_each_law_is_a_test_of_its_own() -> None:
    (mark,) = test_the_laws_of_a_sound_protocol.pytestmark  # type: ignore[attr-defined]
    assert mark.kwargs["ids"] == ["round trip", "any split", "any bytes", "one verdict", "translation", "columns"]


def test_a_decoder_that_changes_a_value() -> None:
    def decode(frame: bytes, sender: Sender) -> Frame:
        found: Any = FRAMES.decode(frame, sender)
        return reading(found.station, abs(found.tenths))

    error = broken(replace(SOUND, decode=decode), "round trip")
    assert error.data == bytes.fromhex("be00ffff"), "the smallest: no station, -1"
    assert str(error) == (
        "Reading(station='', tenths=-1) is decoded as Reading(station='', tenths=1); the client sent be00ffff"
    )


def test_a_decoder_that_raises_something_else() -> None:
    def decode(frame: bytes, sender: Sender) -> Frame:
        if len(frame) == 3:
            raise ValueError("of somebody else's")
        return FRAMES.decode(frame, sender)

    with pytest.raises(ValueError, match="somebody"):
        next(law for law in laws(replace(SOUND, decode=decode)) if law.name == "any bytes").run(EXAMPLES)
    error = broken(guard(replace(SOUND, decode=decode)), "any bytes")
    assert (error.data, "somebody" in error.reason) == (b"\0\0\0", True), "also where the registry stands guard"


def test_an_offset_outside_the_bytes() -> None:
    def decode(frame: bytes, _sender: Sender) -> Frame:
        raise ProtocolError("never", "never", len(frame) + 1)

    assert "not inside" in broken(replace(SOUND, decode=decode), "any bytes").reason


def test_a_tree_that_leaves_bytes_out() -> None:
    def dissect(frame: bytes, sender: Sender) -> Tree:
        tree = FRAMES.dissect(frame, sender)
        if tree.error is None:
            del tree.root.children[-1]
        return tree

    assert broken(replace(SOUND, dissect=dissect), "one verdict").reason == "the tree ends at 2 of 4 bytes"


def test_a_tree_that_accepts_more() -> None:
    def dissect(frame: bytes, sender: Sender) -> Tree:
        return replace(FRAMES.dissect(frame, sender), error=None)

    assert "dissect does not" in broken(replace(SOUND, dissect=dissect), "one verdict").reason


def test_a_splitter_that_depends_on_the_chunks() -> None:
    class Impatient(FRAMES.splitter):  # type: ignore[misc, name-defined]
        def receive(self, data: bytes) -> list[bytes]:
            return super().receive(data) or ([data] if data else [])

    error = broken(replace(SOUND, splitter=lambda _sender, _carrier: Impatient()), "any split")
    assert "chunks of" in error.reason


def test_a_translation_that_loses_something() -> None:
    def from_message(message: Message, _sender: Sender) -> Frame:
        if message.kind is not Kind.TELEMETRY:
            raise TranslationError("a reading only")
        return reading(message.source, int(message.fields["celsius"]) * 10)

    error = broken(replace(SOUND, from_message=from_message), "translation")
    assert "0.1" in error.reason


def test_a_loss_that_is_none() -> None:
    message = Message(kind=Kind.NOTIFICATION, target=Topic("@a"))
    declared = Loss("notifications", "refused", message, None)
    sound = replace(SOUND, losses=(declared,))
    next(law for law in laws(sound) if law.name == "losses").run(EXAMPLES)

    def accept(_message: Message, _sender: Sender) -> Frame:
        return reading("", 0)

    assert "notifications" in broken(replace(sound, from_message=accept), "losses").reason


def test_a_protocol_without_a_description_has_the_laws_about_bytes() -> None:
    plain = replace(SOUND, layout=None, example=b"\xbe\0\0\0")
    assert [law.name for law in laws(plain)] == ["any bytes", "one verdict"]
    for law in laws(plain):
        law.run(EXAMPLES)


def test_a_bounded_number_of_examples_is_tried() -> None:
    calls = count()

    def decode(frame: bytes, sender: Sender) -> Any:
        next(calls)
        return FRAMES.decode(frame, sender)

    checked: Callable[[int], None] = laws(replace(SOUND, decode=decode))[0].run
    checked(7)
    assert 7 <= next(calls) <= 2 * 7
