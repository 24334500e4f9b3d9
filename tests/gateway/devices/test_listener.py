"""Device packets: the fast path has the same outcome as single packets, and each connection reads its share."""

import asyncio
import json
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.apostol_client import packets_in, report
from gateway.running_gateway import HOST, Running, running_gateway, until
from wirelake.address import Address
from wirelake.gateway.devices import listener as listener_module
from wirelake.gateway.devices.driver import Origin
from wirelake.gateway.devices.listener import DeviceDatagrams, DeviceListener, DeviceStream
from wirelake.protocols.apostol.constants import ANSWER, SEALED, ZIPPED
from wirelake.protocols.apostol.fast_path import ReportReader
from wirelake.protocols.apostol.frames import Packet
from wirelake.protocols.apostol.protocol import PROTOCOL
from wirelake.protocols.protocol import Carrier

KEY = bytes(range(16))
DEVICES = (("m1", 6, None), ("meter-2", 0, None), ("safe", 6, KEY))
BAD_PLACES = st.integers(0, 200)
ADDRESSES = ((HOST, 1001), (HOST, 1002))


class Wire(asyncio.Transport):
    """Stand in for the transport of a stream."""

    def __init__(self) -> None:
        super().__init__({"peername": (HOST, 1)})
        self.written: list[bytes] = []
        self.closed = False
        self.reading = True

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written.append(bytes(data))

    def sendto(self, data: bytes, addr: tuple[str, int]) -> None:
        assert addr in ADDRESSES
        self.written.append(data)

    def close(self) -> None:
        self.closed = True

    abort = close

    def is_closing(self) -> bool:
        return self.closed

    def is_reading(self) -> bool:
        return self.reading

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0  # takes everything at once


@st.composite
def packets(draw: st.DrawFn) -> list[bytes]:
    """Return packets of devices: mostly reports, often repeated, with few numbers so that many collide."""
    serial = draw(st.sampled_from(["m1", "m1", "m1", "meter-2", "safe", "stranger", "ünknown", ""]))
    number = draw(st.integers(0, 3))
    data = draw(st.sampled_from([b"", b"a", b"b", b"x" * 40, b"y" * 300]))
    shape = draw(st.sampled_from(["plain"] * 6 + ["pieces", "zipped", "sealed", "answer", "error", "other", "short"]))
    kinds = {"plain": 0, "pieces": 0, "zipped": ZIPPED, "sealed": SEALED, "answer": ANSWER, "error": 0}
    if shape == "short":
        return [Packet(1, 3, 6, serial, number, 0, data[:5]).encode()]
    if shape == "other":
        params, packet_no = draw(st.integers(0, 0x3F)), draw(st.integers(0, 2))
        return [Packet(1, params, draw(st.sampled_from([0, 6])), serial, number, packet_no, data).encode()]
    made = report(
        serial,
        number,
        b"" if shape == "error" else data,
        params=kinds[shape],
        seal_with=(KEY, bytes(12)) if shape == "sealed" else None,
        data_bytes=30 if shape == "pieces" else 1024,
        error=2 if shape == "error" else 0,
        command_type=draw(st.sampled_from([2, 9])),
        device_type=draw(st.sampled_from([6, 6, 0])),
    )
    return draw(st.permutations(made)) if shape == "pieces" else made


def repeated(sent: list[list[bytes]], times: list[int]) -> list[bytes]:
    """Return runs of equal packets, so that the fast path handles runs with repeats."""
    return [packet for made, count in zip(sent, times, strict=False) for packet in made * count]


def listener_of(running: Running) -> DeviceListener:
    return DeviceListener(
        running.gateway.transport,
        running.gateway.devices,
        PROTOCOL,
        PROTOCOL.name,
        Address("127.0.0.1", 0),
        (Carrier.TCP, Carrier.UDP),
    )


def new_stream(running: Running) -> DeviceStream:
    return listener_of(running).new_stream()


def new_datagrams(running: Running) -> DeviceDatagrams:
    return listener_of(running).new_datagrams()


async def wait_for_disk(running: Running) -> None:
    """Wait until nothing waits for the disk."""
    for _ in range(3):
        await running.gateway.state.barrier()
        await running.gateway.recorder.event(_NoSession(), "test", {})
        await asyncio.sleep(0)


class _NoSession:
    id = protocol = identity = address = ""


def outcome(running: Running, wire: Wire) -> dict[str, Any]:
    """Return what must not depend on how packets are read: the order for each device, and the sums."""
    recorded: dict[Any, list[Any]] = defaultdict(list)
    for row in running.records():
        if row["event"] == "publish":
            recorded["publish", row["note"]["topic"]].append(json.loads(row["frame"]))
        elif row["event"] in ("frame", "refuse", "open"):
            recorded[row["event"], row["direction"], row["identity"], row["peer"]].append((row["frame"], row["note"]))
        elif row["event"] == "quarantine":
            recorded["quarantine"].append((row["frame"], row["note"]))
    received: dict[str, list[bytes]] = defaultdict(list)
    for packet in packets_in(b"".join(wire.written)):
        received[packet.serial].append(packet.encode())
    devices = running.gateway.devices
    return {
        "records": dict(recorded),
        "received": {
            serial: sorted(each) for serial, each in received.items()
        },  # receipts have no order: UDP has none either
        "closed": wire.closed,
        "frames_in": running.gateway.counters.frames_in["apostol"],
        "recorded": {place[1:]: count for place, count in running.gateway.recorder.counts.items()},
        "refused": dict(running.gateway.counters.refused),
        "peers": {
            serial: (peer.frames_in, peer.frames_out, peer.bytes_in, peer.bytes_out, peer.address, peer.assembling)
            for serial, peer in devices.peers.items()
        },
        "duplicates": {serial: peer.session.assembler.duplicates for serial, peer in devices.peers.items()},  # type: ignore[attr-defined]
    }


async def streamed(folder: Path, data: bytes, cuts: list[int]) -> dict[str, Any]:
    async with running_gateway(folder, devices=DEVICES) as running:
        wire, stream = Wire(), new_stream(running)
        stream.connection_made(wire)
        for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
            if not wire.closed:
                stream.data_received(data[start:end])
        await until(lambda: wire.closed or wire.reading)  # everything was read
        await wait_for_disk(running)
        return outcome(running, wire)


@settings(max_examples=40)
@given(
    sent=st.lists(packets(), min_size=1, max_size=12),
    times=st.lists(st.sampled_from([1, 1, 2, 30]), min_size=12, max_size=12),
    bad=st.none() | BAD_PLACES,
    cuts=st.lists(st.integers(0, 2000), max_size=4),
)
def test_a_stream_skimmed_or_read_one_by_one_has_the_same_outcome(
    sent: list[list[bytes]], times: list[int], bad: int | None, cuts: list[int]
) -> None:
    together = repeated(sent, times)
    if bad is not None and bad < len(together):
        together[bad] = together[bad][:-1] + bytes([together[bad][-1] ^ 1])
    data = b"".join(together)
    places = sorted(cut for cut in cuts if cut < len(data))
    assert_same(lambda folder: streamed(folder, data, places))


async def sent_as_datagrams(folder: Path, turns: list[list[bytes]]) -> dict[str, Any]:
    async with running_gateway(folder, devices=DEVICES) as running:
        wire, datagrams = Wire(), new_datagrams(running)
        datagrams.connection_made(wire)
        for turn in turns:
            for number, data in enumerate(turn):
                datagrams.datagram_received(data, ADDRESSES[number % 2])
            await asyncio.sleep(0)
        await wait_for_disk(running)
        return outcome(running, wire)


@settings(max_examples=40)
@given(
    sent=st.lists(packets(), min_size=1, max_size=12),
    times=st.lists(st.sampled_from([1, 1, 2, 30]), min_size=12, max_size=12),
    bad=st.none() | BAD_PLACES,
    data=st.data(),
)
def test_datagrams_skimmed_or_read_one_by_one_have_the_same_outcome(
    sent: list[list[bytes]], times: list[int], bad: int | None, data: st.DataObject
) -> None:
    together = repeated(sent, times)
    if bad is not None and bad < len(together):
        together[bad] = together[bad][:-1] + bytes([together[bad][-1] ^ 1])
    turns: list[list[bytes]] = [[]]
    while together:
        size = data.draw(st.sampled_from([1, 1, 2, 5]))
        cut = data.draw(st.sampled_from([0] * 9 + [1]))  # a datagram that ends inside a packet
        turns[-1].append(b"".join(together[:size])[: -cut or None])
        together = together[size:]
        if data.draw(st.booleans()):
            turns.append([])
    assert_same(lambda folder: sent_as_datagrams(folder, turns))


def assert_same(run: Any) -> None:
    outcomes = []
    for one_by_one in (True, False):
        with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
            if one_by_one:
                patch.setattr(ReportReader, "read", lambda *_args: None)
            outcomes.append(asyncio.run(run(Path(folder))))
    assert outcomes[0] == outcomes[1]


async def test_reports_are_skimmed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that the tests above compare two paths: after a device's first report, the fast path is used."""
    async with running_gateway(tmp_path, devices=DEVICES) as running:
        read: list[bytes] = []
        devices = running.gateway.devices
        receive = devices.receive

        def reading(listener: DeviceListener, raw: bytes, packet: Packet, origin: Origin) -> bool:
            read.append(raw)
            return receive(listener, raw, packet, origin)

        monkeypatch.setattr(devices, "receive", reading)
        wire, stream = Wire(), new_stream(running)
        stream.connection_made(wire)
        sent = [report(serial, number, b"x")[0] for number in range(100) for serial in ("m1", "meter-2")]
        stream.data_received(b"".join(sent))
        await until(lambda: wire.reading)  # all of it had its turn
        await wait_for_disk(running)
        assert read == sent[:2]
        assert len(packets_in(b"".join(wire.written))) == 200
        # One write for each block of the log that held some of them; the disk decides how many blocks.
        assert len(wire.written) <= len(sent) // 10, "many receipts go together"


async def test_a_stream_is_read_for_no_more_than_its_turn(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, devices=DEVICES, broker={"devices_topic": ""}) as running:
        wire, stream = Wire(), new_stream(running)
        stream.connection_made(wire)
        stream.data_received(b"".join([report("m1", number % 256, b"x")[0] for number in range(50_000)]))
        received = running.gateway.counters.frames_in["apostol"]
        assert 0 < received < 5_000
        assert not wire.reading
        await until(lambda: running.gateway.counters.frames_in["apostol"] == 50_000)
        await wait_for_disk(running)
        assert len(packets_in(b"".join(wire.written))) == 50_000
        assert wire.reading


async def test_a_stream_that_is_too_fast_is_read_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = {"frames_per_second": 5}
    async with running_gateway(tmp_path, devices=DEVICES, limits=limits) as running:
        gateway = running.gateway
        clock, now_s = gateway.now_s, gateway.now_s()
        gateway.transport.now_s = lambda: now_s  # no time passes between the two reads
        monkeypatch.setattr(listener_module, "monotonic", lambda: now_s)  # nor does the turn of the first one end
        wire, stream = Wire(), new_stream(running)
        stream.connection_made(wire)
        sent = [report("m1", number, b"x")[0] for number in range(6)]
        stream.data_received(b"".join(sent[:5]))
        assert wire.is_reading(), "a second's worth at once"
        stream.data_received(sent[5])
        assert not wire.is_reading()
        gateway.transport.now_s = clock
        monkeypatch.undo()
        await until(lambda: wire.reading)
        await wait_for_disk(running)
        assert len(packets_in(b"".join(wire.written))) == 6
