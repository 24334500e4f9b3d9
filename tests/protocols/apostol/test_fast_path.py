"""Test that reports in a batch have the same outcome as reports that are decoded one by one."""

import random
from collections.abc import Iterator

from wirelake.protocols.apostol.assembly import Assembler, Bounds
from wirelake.protocols.apostol.fast_path import PARAMS, Reports, report_run
from wirelake.protocols.apostol.frames import Packet, decode, receipt_for
from wirelake.protocols.apostol.server import ServerSession
from wirelake.protocols.apostol.session import SessionSettings
from wirelake.protocols.frame import Sender

DEVICES = [(6, "d1"), (6, "d2"), (9, "d1"), (6, "é")]
BOUNDS = Bounds(timeout_s=10.0)


def known() -> dict[bytes, Reports]:
    reports = [Reports(None, session(serial), device_type) for device_type, serial in DEVICES]
    return {each.head: each for each in reports}


def session(serial: str) -> ServerSession:
    made = ServerSession(0.0, bytes, SessionSettings(assembly_s=BOUNDS.timeout_s))
    made.serial = serial
    return made


def report(device: int, number: int, content: bytes) -> bytes:
    device_type, serial = DEVICES[device]
    return Packet(1, PARAMS, device_type, serial, number, 0, content).encode()


def test_receipts_are_those_of_packets_read_one_by_one() -> None:
    for size in (0, 18, 200):  # the last has a length of two bytes
        frames = [report(number % 4, number, bytes([number]) * size) for number in range(256)]
        run = report_run(frames, 0, 1000, known())
        assert run is not None
        one_by_one = [receipt_for(decode(frame, Sender.CLIENT)).encode() for frame in frames]
        assert run.replies() == b"".join(one_by_one)
        assert run.joined == b"".join(frames)
        assert run.contents == [bytes([number]) * size for number in range(256)]


def odd_ones() -> Iterator[bytes]:
    """Yield packets of the same length as the reports, each of which has to be decoded."""
    good = report(0, 1, b"data")
    yield good[:-1] + bytes((good[-1] ^ 1,))
    yield Packet(1, PARAMS, 6, "d3", 1, 0, b"data").encode()  # nobody knows it
    yield Packet(1, PARAMS, 6, "d1", 1, 1, b"data").encode()  # packet 1 of a command
    yield Packet(1, 1, 6, "d1", 1, 0, b"data").encode()  # the first of several


def test_a_run_ends_before_whatever_has_to_be_read() -> None:
    for odd in odd_ones():
        for place in (1, 3, 63, 64, 65, 130):
            frames = [report(0, number % 256, b"data") for number in range(140)]
            frames[place] = odd
            run = report_run(frames, 0, 1000, known())
            assert run is not None
            assert run.joined == b"".join(frames[:place])
            assert len(run.streams) == len(run.numbers) == len(run.contents) == place
        assert report_run([odd], 0, 10, known()) is None
    longer = [report(0, 1, b"data"), report(0, 2, b"longer")]
    run = report_run(longer, 0, 10, known())
    assert run is not None
    assert run.joined == longer[0]


def test_a_device_with_an_open_command_is_read() -> None:
    lines = known()
    busy = lines[next(iter(lines))]
    busy.assembler.add(Packet(1, 1, 6, "d1", 5, 0, b"first of two"), 0.0)
    frames = [report(1, 1, b"data"), report(0, 1, b"data"), report(1, 2, b"data")]
    run = report_run(frames, 0, 10, lines)
    assert run is not None
    assert run.numbers == b"\x01"


def test_repeats_are_the_same_ones_as_when_read_one_by_one() -> None:
    """Repeat numbers soon, late and with other contents, and use more of them than are remembered."""
    chance = random.Random(4)
    lines, one_by_one = known(), [Assembler(BOUNDS) for _ in DEVICES]
    now_s, number = 0.0, 0
    repeated = 0
    for _ in range(300):
        now_s += chance.choice((0.0, 0.1, 1.0, 11.0))
        places = []
        for _ in range(chance.choice((1, 5, 100, 300))):
            number += chance.choice((1, 1, 1, 0, -3, 130))
            places.append((chance.randrange(len(DEVICES) - 1), number % 256, chance.choice((b"a", b"a", b"b"))))
        run = report_run([report(*each) for each in places], 0, 1000, lines)
        assert run is not None
        wanted = []
        for place, (device, command_no, content) in enumerate(places):
            packet = Packet(1, PARAMS, *DEVICES[device], command_no, 0, content)
            if not one_by_one[device].add(packet, now_s):
                wanted.append(place)
        assert run.accept(now_s) == wanted
        repeated += len(wanted)
    assert repeated > 100
    for reports, assembler in zip(lines.values(), one_by_one, strict=True):
        assert reports.assembler.duplicates == assembler.duplicates
        assert reports.assembler.finished.count == assembler.finished.count
