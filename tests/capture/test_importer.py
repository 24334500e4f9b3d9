"""Captures of real conversations, and of all that can happen to one on the way, give the frames that were sent."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from gateway.running_gateway import running_gateway
from pcap_writer import (
    COOKED,
    COOKED_2,
    ETHERNET,
    LOOPBACK,
    OPENBSD_LOOPBACK,
    RAW,
    START_US,
    STEP_US,
    CapturedPacket,
    TcpConversation,
    capture_file,
    fragments,
    pcapng_file,
    tcp_payload,
    udp_packet,
)

from capture.recording import CONVERSATIONS, LOGIN, frames_of, joined, record, records_of
from wirelake.capture.importer import ImportReport, import_capture
from wirelake.config import default_settings, settings_type
from wirelake.errors import InputError, InUseError
from wirelake.limits import CAPTURE_WAITING_BYTES_MAX
from wirelake.log.imported import import_of, imported_at_us
from wirelake.protocols import registry
from wirelake.protocols.apostol.constants import FIRST, LAST
from wirelake.protocols.apostol.frames import Packet
from wirelake.protocols.comet import frames as comet
from wirelake.protocols.frame import Sender
from wirelake.protocols.protocol import Carrier

PORT = 7334
UNKNOWN_PORT = 4711
CLIENT_FRAMES = [frame.encode() for frame in (comet.Subscribe(("@a", "@b")), *[comet.Heartbeat()] * 3)]
SERVER_FRAMES = [frame.encode() for frame in (comet.TopicList(("@a", "@b")), *[comet.Ok()] * 3)]
NOW_US = START_US + 10**12


def import_packets(
    folder: Path, packets: list[CapturedPacket], named: str | None = None, now_us: int = NOW_US, **options: Any
) -> ImportReport:
    return import_file(folder, capture_file(packets, **options), named, now_us)


def import_file(folder: Path, content: bytes, named: str | None = None, now_us: int = NOW_US) -> ImportReport:
    file = folder / "sample.pcap"
    file.write_bytes(content)
    protocol = registry.get(named) if named else None
    return import_capture(file, folder / "data", default_settings(), protocol, lambda: now_us)


def conversation(port: int = PORT, **options: Any) -> TcpConversation:
    """Return a connection in which each frame is a segment."""
    talk = TcpConversation(server=("10.0.0.1", port), **options)
    talk.open()
    say(talk)
    talk.close()
    return talk


def say(talk: TcpConversation) -> None:
    for question, answer in zip(CLIENT_FRAMES, SERVER_FRAMES, strict=True):
        talk.send(Sender.CLIENT, question)
        talk.send(Sender.SERVER, answer)


def split(rows: list[dict[str, Any]], direction: str) -> list[bytes]:
    return [row["frame"] for row in rows if row["event"] == "frame" and row["direction"] == direction]


def cut(protocol: str, sender: Sender, stream: bytes) -> list[bytes]:
    """Return the frames of a stream, without secrets."""
    found = registry.get(protocol)
    return [*found.redact_all(found.splitter(sender, Carrier.TCP).receive(stream), sender)]


def redacted(data: bytes) -> bytes:
    return registry.get("comet").redact(data, Sender.CLIENT)


def assert_whole(folder: Path) -> list[dict[str, Any]]:
    """Assert that the log has the frames of `conversation` and no others. Return all records."""
    rows = records_of(folder / "data")
    assert split(rows, "in") == CLIENT_FRAMES
    assert split(rows, "out") == SERVER_FRAMES
    assert not [row for row in rows if row["event"] in ("quarantine", "gap")]
    return rows


# ── real conversations


@pytest.mark.parametrize("name", CONVERSATIONS)
async def test_the_log_has_the_frames_that_were_sent(tmp_path: Path, name: str) -> None:
    recording, logged = await record(name, tmp_path / "live")
    port = {"comet": 7334, "magline": 9757, "esnp": 1080, "sisnet_tcp": 7330, "sisnet": 7329, "apostol": 7332}
    listener = CONVERSATIONS[name][0]
    (tmp_path / "again").mkdir()
    report = import_packets(tmp_path / "again", recording.packets(port[listener]))
    imported = frames_of(tmp_path / "again" / "data")
    assert report.left_out_count == 0
    assert {row["protocol"] for row in imported} == {name.split(maxsplit=1)[0]}
    if name == "magline":  # the gateway logs what it could decrypt; a capture shows it sealed
        assert split(imported, "in") == cut("magline", Sender.CLIENT, recording.sent(Sender.CLIENT))
        assert b"hidden" not in joined(imported, "in")
        assert b"hidden" in joined(logged, "in")
    else:
        assert split(imported, "in") == split(logged, "in")
    if name.startswith("sisnet"):  # whose frames have a prefix on the wire
        assert split(imported, "out") == split(logged, "out")
    else:
        assert len(joined(imported, "out")) == len(recording.sent(Sender.SERVER))
        protocol = name.split(maxsplit=1)[0]
        assert split(imported, "out") == cut(protocol, Sender.SERVER, recording.sent(Sender.SERVER))
    assert [row["event"] for row in records_of(tmp_path / "again" / "data")].count("quarantine") == 0
    for file in (tmp_path / "again" / "data" / "log").rglob("*"):
        assert file.is_dir() or LOGIN[1].encode() not in file.read_bytes()


async def test_configured_ports_name_the_protocol(tmp_path: Path) -> None:
    listen = default_settings().listen
    settings = msgspec.structs.replace(
        default_settings(), listen=msgspec.structs.replace(listen, comet=f"127.0.0.1:{UNKNOWN_PORT}")
    )
    assert isinstance(settings, settings_type())
    file = tmp_path / "sample.pcap"
    file.write_bytes(capture_file(conversation(UNKNOWN_PORT).packets))
    import_capture(file, tmp_path / "data", settings, None, lambda: NOW_US)
    (opened,) = [row for row in assert_whole(tmp_path) if row["event"] == "open"]
    assert opened["note"]["protocol_by"] == f"port {UNKNOWN_PORT}"


# ── what is recorded


def test_a_session_is_marked_and_has_the_times_of_the_capture(tmp_path: Path) -> None:
    talk = conversation()
    report = import_packets(tmp_path, talk.packets)
    rows = assert_whole(tmp_path)
    session = [row for row in rows if row["session"]]
    assert [row["event"] for row in session] == ["open", *["frame"] * 8, "close"]
    (name,) = {row["session"] for row in session}
    assert imported_at_us(name) == NOW_US
    assert import_of(name) == report.session_prefix
    assert {(row["peer"], row["identity"]) for row in session} == {("10.0.0.2:50000", "")}
    note = session[0]["note"]
    assert (note["import"], note["server"], note["transport"]) == ("sample.pcap", f"10.0.0.1:{PORT}", "tcp")
    assert note["captured_at"] == "2023-11-14T22:13:20.000Z"
    assert session[-1]["note"]["reason"] == "peer_closed"
    assert session[-1]["note"]["frames_in"] == 4
    sent_at = [packet.at_us for packet in talk.packets if tcp_payload(packet.data)]
    assert [round(row["at"].timestamp() * 1e6) for row in session[1:-1]] == sent_at
    assert report.protocols["comet"]["frames_out"] == 4


def test_the_counters_count_what_was_imported(tmp_path: Path) -> None:
    import_packets(tmp_path, conversation().packets)
    first, last = [row["note"] for row in records_of(tmp_path / "data") if row["event"] == "counters"]
    assert first == {"start": True, "hours": {}}
    hour = START_US // 3_600_000_000 * 3600
    assert last == {"hours": {str(hour): {"comet": {"in": 4, "out": 4}}}}


def test_a_frame_dated_after_the_import_has_its_time(tmp_path: Path) -> None:
    report = import_packets(tmp_path, conversation().packets, now_us=START_US + 5 * STEP_US)
    rows = [row for row in assert_whole(tmp_path) if row["session"]]
    assert max(round(row["at"].timestamp() * 1e6) for row in rows) == START_US + 5 * STEP_US
    assert report.skipped["records dated after the import, which have its time"] == 7


async def test_a_gateway_starts_on_an_imported_log_and_refuses_another_writer(tmp_path: Path) -> None:
    import_packets(tmp_path, conversation().packets)
    async with running_gateway(tmp_path, "comet") as running:
        assert len(running.records("frame")) == 8
        with pytest.raises(InUseError, match="stop the gateway, import the capture, and start it again"):
            import_packets(tmp_path, conversation().packets)
    import_packets(tmp_path, conversation().packets)
    assert len(frames_of(tmp_path / "data")) == 16


# ── what happens on the way


@pytest.mark.parametrize("link", [ETHERNET, COOKED, COOKED_2, RAW, LOOPBACK, OPENBSD_LOOPBACK])
@pytest.mark.parametrize("version", [4, 6])
def test_every_link_type(tmp_path: Path, link: int, version: int) -> None:
    client, server = ("10.0.0.2", "10.0.0.1") if version == 4 else ("fd00::2", "fd00::1")
    talk = TcpConversation((client, 50_000), (server, PORT))
    talk.open()
    say(talk)
    import_packets(tmp_path, talk.packets, link=link)
    assert_whole(tmp_path)


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("nanoseconds", [True, False])
def test_every_file_format(tmp_path: Path, order: str, nanoseconds: bool) -> None:
    packets = conversation().packets
    contents = [
        capture_file(packets, order=order, nanoseconds=nanoseconds, vlans=(5, 6)),
        pcapng_file(packets, [ETHERNET, RAW], order=order, nanoseconds=nanoseconds),
    ]
    for number, content in enumerate(contents):
        folder = tmp_path / str(number)
        folder.mkdir()
        import_file(folder, content)
        rows = assert_whole(folder)
        assert round(next(row for row in rows if row["session"])["at"].timestamp() * 1e6) == START_US


def test_segments_out_of_order_repeated_and_overlapping(tmp_path: Path) -> None:
    talk = TcpConversation(server=("10.0.0.1", PORT))
    talk.open()
    stream = b"".join(CLIENT_FRAMES)
    talk.send(Sender.CLIENT, stream, size=3)
    for frame in SERVER_FRAMES:
        talk.send(Sender.SERVER, frame)
    opening, data = talk.packets[:3], talk.packets[3:]
    shuffled = data[::-1] + data[:5] + data[2:4]
    report = import_packets(tmp_path, opening + shuffled)
    rows = assert_whole(tmp_path)
    closed = rows[-2]
    assert (closed["event"], closed["note"]["reason"]) == ("close", "capture_ended")
    assert closed["note"]["repeated_bytes"] == 12
    assert report.protocols["comet"]["bytes_in"] == len(stream)


def test_sequence_numbers_wrap(tmp_path: Path) -> None:
    import_packets(tmp_path, conversation(client_seq=2**32 - 6, server_seq=2**32 - 1).packets)
    assert_whole(tmp_path)


def test_a_port_that_is_used_again_is_another_session(tmp_path: Path) -> None:
    first, second = conversation(), conversation(client_seq=9_000_000, server_seq=77, at_us=START_US + 10**9)
    unfinished = first.packets[:-3]
    import_packets(tmp_path, unfinished + second.packets + first.packets[-3:])
    rows = records_of(tmp_path / "data")
    assert split(rows, "in") == CLIENT_FRAMES * 2
    assert [row["note"]["reason"] for row in rows if row["event"] == "close"] == ["replaced", "peer_closed"]
    assert len({row["session"] for row in rows if row["session"]}) == 2


def test_a_reset_ends_the_session(tmp_path: Path) -> None:
    talk = conversation()
    talk.packets = talk.packets[:-3]
    talk.reset(Sender.SERVER)
    import_packets(tmp_path, talk.packets)
    assert assert_whole(tmp_path)[-2]["note"]["reason"] == "reset"


def test_without_the_handshake_frames_are_found_by_their_clues(tmp_path: Path) -> None:
    talk = conversation()
    import_packets(tmp_path, talk.packets[3:])
    assert_whole(tmp_path)


def test_a_capture_that_begins_inside_a_frame(tmp_path: Path) -> None:
    talk = TcpConversation(server=("10.0.0.1", PORT))
    talk.send(Sender.CLIENT, CLIENT_FRAMES[0][5:])
    say(talk)
    import_packets(tmp_path, talk.packets)
    rows = records_of(tmp_path / "data")
    assert split(rows, "in") == CLIENT_FRAMES
    (lost,) = [row for row in rows if row["event"] == "quarantine"]
    assert (lost["note"]["code"], lost["note"]["offset"]) == ("mid_stream", 0)
    assert lost["frame"] == redacted(CLIENT_FRAMES[0][5:])


def test_a_gap_is_recorded_and_what_follows_is_quarantined_until_a_frame_is_sure(tmp_path: Path) -> None:
    talk = TcpConversation(server=("10.0.0.1", PORT))
    talk.open()
    stream = CLIENT_FRAMES[1] + CLIENT_FRAMES[0]
    talk.send(Sender.CLIENT, stream, size=5)  # the second frame begins in the first segment and ends in the third
    lost = talk.data_packets(Sender.CLIENT)[1]
    talk.send(Sender.CLIENT, CLIENT_FRAMES[1])  # too short to be sure
    talk.send(Sender.CLIENT, b"\xff\xff\xff")
    talk.send(Sender.CLIENT, CLIENT_FRAMES[0])
    talk.send(Sender.SERVER, SERVER_FRAMES[0])
    report = import_packets(tmp_path, [packet for packet in talk.packets if packet != lost])
    rows = records_of(tmp_path / "data")
    assert split(rows, "in") == [CLIENT_FRAMES[1], CLIENT_FRAMES[0]]
    assert split(rows, "out") == SERVER_FRAMES[:1]
    (gap,) = [row for row in rows if row["event"] == "gap"]
    assert (gap["direction"], gap["note"]["offset"], gap["note"]["bytes"]) == ("in", 5, 5)
    found = [(row["note"]["code"], row["note"]["offset"], row["frame"]) for row in rows if row["event"] == "quarantine"]
    assert found == [
        ("gap", 5, redacted(stream[3:5])),
        ("after_gap", 10, redacted(stream[10:])),
        ("after_gap", 15, CLIENT_FRAMES[1]),
        ("after_gap", 18, redacted(b"\xff\xff\xff")),
    ]
    assert (report.protocols["comet"]["gaps"], report.protocols["comet"]["unreadable"]) == (1, 4)
    in_order = [row["note"]["offset"] for row in rows if row["event"] == "quarantine"]
    assert in_order == sorted(in_order)


def test_a_gap_is_noticed_while_the_connection_lasts(tmp_path: Path) -> None:
    talk = TcpConversation(server=("10.0.0.1", PORT))
    talk.open()
    talk.send(Sender.CLIENT, CLIENT_FRAMES[1])
    big = bytes(60_000)
    opening = talk.packets[:3]
    for _ in range(CAPTURE_WAITING_BYTES_MAX // len(big) + 2):
        talk.send(Sender.CLIENT, big, size=len(big))
    talk.send(Sender.SERVER, SERVER_FRAMES[1])
    import_packets(tmp_path, opening + talk.packets[4:])
    rows = records_of(tmp_path / "data")
    events = [row["event"] for row in rows]
    assert events.index("gap") < events.index("frame"), "the server's frame comes later in the capture"
    wasted = [row for row in rows if row["event"] == "quarantine"]
    assert sum(len(row["frame"]) for row in wasted) == (CAPTURE_WAITING_BYTES_MAX // len(big) + 2) * len(big)


def test_bytes_that_are_no_frame_are_quarantined_with_their_offset(tmp_path: Path) -> None:
    talk = TcpConversation(server=("10.0.0.1", 9757))
    talk.open()
    talk.send(Sender.CLIENT, b"\xff" * 40)
    talk.send(Sender.CLIENT, b"\xfe" * 40)
    talk.close()
    import_packets(tmp_path, talk.packets)
    first, second = [row for row in records_of(tmp_path / "data") if row["event"] == "quarantine"]
    assert (first["frame"], first["note"]["code"], first["note"]["offset"]) == (b"\xff" * 40, "bad_magic", 0)
    assert (second["frame"], second["note"]["code"], second["note"]["offset"]) == (b"\xfe" * 40, "after_failure", 40)


def test_a_connection_that_ends_inside_a_frame(tmp_path: Path) -> None:
    talk = TcpConversation(server=("10.0.0.1", PORT))
    talk.open()
    talk.send(Sender.CLIENT, CLIENT_FRAMES[1] + CLIENT_FRAMES[0][:6])
    talk.close()
    import_packets(tmp_path, talk.packets)
    (lost,) = [row for row in records_of(tmp_path / "data") if row["event"] == "quarantine"]
    assert (lost["note"]["code"], lost["note"]["offset"]) == ("incomplete", 9)
    assert lost["frame"] == redacted(CLIENT_FRAMES[0][:6])


@pytest.mark.parametrize("version", [4, 6])
def test_fragments_are_joined(tmp_path: Path, version: int) -> None:
    client, server = (("10.0.0.2", 50_000), ("10.0.0.1", 7332))
    if version == 6:
        client, server = ("fd00::2", 50_000), ("fd00::1", 7332)
    frame = packet(b"x" * 200)
    parts = fragments(udp_packet(client, server, frame), 64)
    order = [parts[index] for index in (2, 0, 3, 1)]
    report = import_packets(tmp_path, [CapturedPacket(START_US, part) for part in [*order, parts[1]]])
    assert split(records_of(tmp_path / "data"), "in") == [frame]
    assert report.skipped == {"packets with missing fragments": 1}


def packet(data: bytes) -> bytes:
    return Packet(1, FIRST | LAST, 6, "1234", 1, 0, data).encode()


def test_datagrams_are_cut_one_by_one(tmp_path: Path) -> None:
    client, server = ("10.0.0.2", 50_000), ("10.0.0.1", 7332)
    frame = packet(b"x" * 20)
    sent = [frame * 2, frame + b"\x1e\x01", frame[:-1] + b"?", frame]
    packets = [CapturedPacket(START_US + index, udp_packet(client, server, each)) for index, each in enumerate(sent)]
    late = CapturedPacket(START_US + 10**9, udp_packet(client, server, frame))
    report = import_packets(tmp_path, [*packets, late])
    rows = records_of(tmp_path / "data")
    assert split(rows, "in").count(frame) == 5
    assert [row["frame"] for row in rows if row["event"] == "quarantine"] == [b"\x1e\x01"]
    assert report.protocols["apostol"]["sessions"] == 2, "the first one was idle for too long"


def test_a_datagram_of_which_the_capture_has_a_part_is_quarantined(tmp_path: Path) -> None:
    sent = udp_packet(("10.0.0.2", 50_000), ("10.0.0.1", 7332), packet(b"x" * 200))
    import_packets(tmp_path, [CapturedPacket(START_US, sent)], snap_bytes=100)
    (row,) = [row for row in records_of(tmp_path / "data") if row["event"] == "quarantine"]
    assert row["note"]["code"] == "truncated"
    assert packet(b"x" * 200).startswith(row["frame"])


# ── which protocol, which end


def test_unknown_ports_are_identified_by_the_first_bytes(tmp_path: Path) -> None:
    import_packets(tmp_path, conversation(UNKNOWN_PORT).packets)
    (opened,) = [row for row in assert_whole(tmp_path) if row["event"] == "open"]
    assert opened["note"]["protocol_by"].endswith("bits of evidence")
    assert opened["note"]["server"] == f"10.0.0.1:{UNKNOWN_PORT}"


def test_without_ports_and_handshake_the_bytes_tell_the_server(tmp_path: Path) -> None:
    talk = TcpConversation(server=("10.0.0.1", UNKNOWN_PORT))
    talk.send(Sender.SERVER, comet.AuthSuccess(b"k" * 16).encode())
    say(talk)
    import_packets(tmp_path, talk.packets)
    rows = records_of(tmp_path / "data")
    assert split(rows, "in") == CLIENT_FRAMES


def test_unknown_and_encrypted_connections_are_reported(tmp_path: Path) -> None:
    other = TcpConversation(client=("10.0.0.3", 1), server=("10.0.0.1", UNKNOWN_PORT))
    other.open()
    other.send(Sender.CLIENT, bytes(range(200, 250)))
    secure = TcpConversation(client=("10.0.0.4", 1), server=("10.0.0.1", PORT))
    secure.open()
    secure.send(Sender.CLIENT, bytes.fromhex("16030100c8010000c40303") + bytes(100))
    report = import_packets(tmp_path, other.packets + secure.packets)
    assert [row for row in records_of(tmp_path / "data") if row["session"]] == []
    assert report.left_out_by == {"unknown protocol": 1, "encrypted with TLS": 1}
    unknown, encrypted = report.left_out
    assert (unknown.first, unknown.bytes, unknown.begins_with) == ("10.0.0.3:1", 50, bytes(range(200, 216)).hex())
    assert encrypted.reason == "encrypted with TLS"


def test_the_user_names_the_protocol_of_unknown_ports(tmp_path: Path) -> None:
    talk = TcpConversation(server=("10.0.0.1", UNKNOWN_PORT))
    talk.open()
    talk.send(Sender.CLIENT, b"\x00\x01\x63")
    import_packets(tmp_path, talk.packets, named="comet")
    (row,) = frames_of(tmp_path / "data")
    assert (row["protocol"], row["frame"]) == ("comet", b"\x00\x01\x63")


# ── files


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"", "is no pcap or pcapng file"),
        (b"\x1f\x8b\x08\0" + bytes(40), "looks compressed"),
        (capture_file([])[:20], "is no pcap or pcapng file"),
        (capture_file([]) + bytes(8) + b"\xff\xff\xff\x7f" * 2, "over the limit"),
        (pcapng_file([]) + b"\x06\0\0\0\xff\xff\xff\x7f", "the file is damaged"),
        (pcapng_file([]) + b"\x06\0\0\0\x0c\0\0\0\x0c\0\0\0", "damaged block"),
    ],
)
def test_a_file_that_cannot_be_read_leaves_no_trace(tmp_path: Path, content: bytes, error: str) -> None:
    with pytest.raises(InputError, match=error):
        import_file(tmp_path, content)
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("make", [capture_file, pcapng_file])
def test_a_file_that_ends_early_is_read_so_far(tmp_path: Path, make: Any) -> None:
    packets = conversation().packets
    report = import_file(tmp_path, make(packets)[:-7])
    assert report.packets == len(packets) - 1
    assert report.skipped["file ends inside a packet"] == 1
    assert_whole(tmp_path)
