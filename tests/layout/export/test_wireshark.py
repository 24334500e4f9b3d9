"""Exported dissectors in tshark: every type of field, in segments and datagrams, whole and damaged."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import pytest
from fastcrc import crc8, crc16, crc32
from pcap_writer import START_US, STEP_US, CapturedPacket, TcpConversation, udp_packet

from layout.export.comparison import compare_tshark
from layout.export.samples import LAYOUTS, samples
from layout.export.tshark import ShownFrame, run_tshark
from layout.sampler import PLAIN, SAMPLER, Colour, Login, Marks, Plain, Report, protocol
from wirelake.layout import (
    Body,
    Checksum,
    Crc,
    Envelope,
    FrameSet,
    LayoutFrame,
    length_of_rest,
    rest_text,
    u8,
    u16,
    u32,
)
from wirelake.layout.export.wireshark import wireshark_dissector
from wirelake.protocols.apostol.frames import FRAMES as APOSTOL
from wirelake.protocols.comet.frames import FRAMES as COMET
from wirelake.protocols.esnp.lines import LINES
from wirelake.protocols.frame import Sender
from wirelake.protocols.inspection import as_values, inspect
from wirelake.protocols.protocol import Carrier, Transport

PORT = 7001
TRANSPORTS = (Transport(Carrier.TCP, PORT, "sampler"), Transport(Carrier.UDP, PORT, "sampler"))
ENDS = {Sender.CLIENT: ("10.0.0.2", 50_000), Sender.SERVER: ("10.0.0.1", PORT)}
SEGMENT_BYTES = 37  # so that most frames are in several segments, and some segments have several frames
FRAMES_IN_DATAGRAM = 3

STREAMS = [layout for layout in LAYOUTS if not layout.envelope.is_datagram]
Length = Annotated[u16, length_of_rest()]
layouts = pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.name)


def show(folder: Path, layout: FrameSet, packets: Sequence[CapturedPacket], *options: str) -> list[ShownFrame]:
    return run_tshark(folder, layout.name, wireshark_dissector(layout, layout.name, TRANSPORTS), packets, *options)


def decode(layout: FrameSet, frame: bytes, sender: Sender) -> dict[str, Any]:
    """Return what `wirelake decode --json` prints of one frame."""
    return as_values(inspect(frame, protocol(layout), sender))


def datagrams(sent: Sequence[tuple[Sender, bytes]]) -> list[CapturedPacket]:
    return [
        CapturedPacket(START_US + number * STEP_US, udp_packet(ENDS[sender], ENDS[sender.other], data))
        for number, (sender, data) in enumerate(sent)
    ]


@pytest.mark.parametrize("layout", STREAMS, ids=lambda layout: layout.name)
def test_frames_in_tcp_segments(layout: FrameSet, tmp_path: Path) -> None:
    sent = samples(layout)
    conversation = TcpConversation(ENDS[Sender.CLIENT], ENDS[Sender.SERVER])
    conversation.open()
    for sender in Sender:
        stream = b"".join(frame for by, frame in sent if by is sender)
        conversation.send(sender, stream, SEGMENT_BYTES)
    conversation.close()
    shown = show(tmp_path, layout, conversation.packets)
    in_order = [(sender, frame) for sender in Sender for by, frame in sent if by is sender]
    assert len(shown) == len(in_order)
    compared = 0
    for (sender, frame), each in zip(in_order, shown, strict=True):
        (found,) = decode(layout, frame, sender)["frames"]
        compared += compare_tshark(found, frame, each, layout)
        error = decode(layout, frame, sender)["error"]  # of a frame inside it
        assert len(each.experts) == (0 if error is None else 1)
    assert compared >= len(sent)


@layouts
def test_several_frames_in_a_datagram(layout: FrameSet, tmp_path: Path) -> None:
    sent = [frame for sender, frame in samples(layout) if sender is Sender.CLIENT]
    step = 1 if layout.envelope.is_datagram else FRAMES_IN_DATAGRAM
    parts = [sent[start : start + step] for start in range(0, len(sent), step)]
    shown = show(tmp_path, layout, datagrams([(Sender.CLIENT, b"".join(part)) for part in parts]))
    assert len(shown) == len(sent)
    for frame, each in zip(sent, shown, strict=True):
        (found,) = decode(layout, frame, Sender.CLIENT)["frames"]
        assert compare_tshark(found, frame, each, layout) > 0


def damaged(layout: FrameSet) -> list[tuple[Sender, bytes]]:
    """Return frames with a changed byte, and cut ones."""
    found: list[tuple[Sender, bytes]] = []
    for number, (sender, frame) in enumerate(samples(layout)):
        place = number * 7 % len(frame)
        found.append((sender, frame[:place] + bytes([frame[place] ^ 1 << number % 8]) + frame[place + 1 :]))
        found.append((sender, frame[: -1 - number % 3]))
    return [(sender, frame) for sender, frame in found if frame]


@pytest.mark.parametrize("layout", [COMET, APOSTOL, PLAIN], ids=lambda layout: layout.name)
def test_the_same_frames_are_refused(layout: FrameSet, tmp_path: Path) -> None:
    """All but what only the decoder's own code can check, which is in the other protocols."""
    sent = damaged(layout)
    shown = show(tmp_path, layout, datagrams(sent))
    refused = {each.packet for each in shown if each.experts}
    for number, (sender, frame) in enumerate(sent, start=1):
        found = decode(layout, frame, sender)
        is_refused = found["error"] is not None or found["rest"] != ""
        assert (number in refused) == is_refused, (number, sender, frame.hex(), found["error"])


def test_flags_names_and_scales(tmp_path: Path) -> None:
    frame = Marks(
        colour=Colour.BLUE, version=3, level=1, params=0b1010, tenths=-215, sign=b"OK", count=1, size=2, frame="f"
    )
    (shown,) = show(tmp_path, SAMPLER, datagrams([(Sender.CLIENT, frame.encode())]))
    assert shown.bits == {
        "sampler.marks.params.first": False,
        "sampler.marks.params.last": True,
        "sampler.marks.params.answer": True,
    }
    assert shown.checksum == 1


def test_a_wrong_checksum_is_an_error(tmp_path: Path) -> None:
    frame = bytearray(Login(station="s", token="t", key=b"1234", pin=1, older=()).encode())
    frame[-1] ^= 0xFF
    (shown,) = show(tmp_path, SAMPLER, datagrams([(Sender.CLIENT, bytes(frame))]))
    assert shown.checksum == 0
    assert len(shown.experts) == 1
    assert shown.experts[0].startswith("crc is 0x")


def test_a_secret_is_shown_blanked(tmp_path: Path) -> None:
    frame = Login(station="roof", token="hunter2", key=b"key!", pin=4711, older=("old1", "old2"))
    (shown,) = show(tmp_path, SAMPLER, datagrams([(Sender.CLIENT, frame.encode())]))
    texts = {field.key: field.text for field in shown.fields}
    assert texts["sampler.login.station"] == "roof"
    assert texts["sampler.login.token"] == "*******"
    assert texts["sampler.login.key"] == "00:00:00:00"
    assert texts["sampler.login.pin"] == "0"
    assert [field.text for field in shown.fields if field.key == "sampler.login.older"] == ["****", "****"]


def test_another_port(tmp_path: Path) -> None:
    """Decode As tells the ends of a connection apart by the port that was chosen."""
    conversation = TcpConversation(ENDS[Sender.CLIENT], ("10.0.0.1", 9_999))
    conversation.open()
    sent = samples(COMET)
    for sender, frame in sent:
        conversation.send(sender, frame)
    conversation.close()
    shown = show(tmp_path, COMET, conversation.packets, "-d", "tcp.port==9999,comet")
    assert [each.experts for each in shown] == [[]] * len(sent)
    assert show(tmp_path, COMET, conversation.packets) == []


CRCS = {
    "CRC-8/SMBUS": (u8, crc8.smbus, Crc(8, 0x07)),
    "CRC-16/XMODEM": (u16, crc16.xmodem, Crc(16, 0x1021)),
    "CRC-16/KERMIT": (u16, crc16.kermit, Crc(16, 0x1021, is_reflected=True)),
    "CRC-32/ISO-HDLC": (u32, crc32.iso_hdlc, Crc(32, 0x04C11DB7, 0xFFFFFFFF, is_reflected=True, final=0xFFFFFFFF)),
    "CRC-32/BZIP2": (u32, crc32.bzip2, Crc(32, 0x04C11DB7, 0xFFFFFFFF, final=0xFFFFFFFF)),
}


@pytest.mark.parametrize("title", CRCS)
def test_other_crcs_are_verified(title: str, tmp_path: Path) -> None:
    number, compute, parameters = CRCS[title]
    checksum: Any = Annotated[number, Checksum(title, compute, crc=parameters)]
    envelope: Any = type("Checked", (Envelope,), {"__annotations__": {"length": Length, "body": Body, "sum": checksum}})

    class Note(LayoutFrame, frozen=True, envelope=envelope):
        text: rest_text

    layout = FrameSet("checked", envelope, [Note])
    right = [Note(text).encode() for text in ("", "a", "123456789", "x" * 300)]
    wrong = [frame[:-1] + bytes([frame[-1] ^ 1]) for frame in right]
    shown = show(tmp_path, layout, datagrams([(Sender.CLIENT, frame) for frame in (*right, *wrong)]))
    assert [each.checksum for each in shown] == [1] * len(right) + [0] * len(wrong)


def test_a_name_that_wireshark_has_already(tmp_path: Path) -> None:
    layout = FrameSet("tcp", Plain, [Report])
    frame = Report("roof", (1, 2), 3, "").encode()
    dissector = wireshark_dissector(layout, "not the one of Wireshark", TRANSPORTS)
    (shown,) = run_tshark(tmp_path, "tcp", dissector, datagrams([(Sender.CLIENT, frame)]))
    assert [field.text for field in shown.fields if field.key == "tcp_frames.report.station"] == ["roof"]


def test_parts_with_other_opcodes(tmp_path: Path) -> None:
    dissector = wireshark_dissector(LINES, "esnp", TRANSPORTS, accepts_unknown=True)
    (shown,) = run_tshark(tmp_path, "esnp", dissector, datagrams([(Sender.CLIENT, b"\x8f\0\0\2hi")]))
    assert shown.experts == []
    assert (shown.fields[-1].key, shown.fields[-1].text) == ("esnp.unknown.data", "68:69")
    (shown,) = show(tmp_path, LINES, datagrams([(Sender.CLIENT, b"\x8f\0\0\2hi")]))
    assert shown.experts == ["type 143 is not one that a client sends"]
