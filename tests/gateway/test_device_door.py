"""Packets on TCP: skimmed or read one by one, the outcome is the same; and no connection takes more than its turn."""

import asyncio
import json
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.running import HOST, Running, running_gateway, until
from gateway.wire import packets_in, report
from wirelake.gateway.devices.listener import DeviceDatagrams, DeviceStream
from wirelake.gateway.devices.peer import Origin
from wirelake.gateway.devices.sessions import DeviceSessions
from wirelake.protocols.apostol.frames import Packet
from wirelake.protocols.apostol.opcodes import ANSWER, SEALED, ZIPPED

KEY = bytes(range(16))
DEVICES = (("m1", 6, None), ("meter-2", 0, None), ("safe", 6, KEY))
BAD_PLACES = st.integers(0, 200)
ADDRESSES = ((HOST, 1001), (HOST, 1002))


class Wire(asyncio.Transport):
    """Where a stream writes to, and what it knows of its peer."""

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
        return 0  # all of it is taken at once


@st.composite
def packets(draw: st.DrawFn) -> list[bytes]:
    """What devices send: mostly reports, often again, of few numbers, so that much of it meets."""
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
    """Runs of the same packets, so that runs are skimmed and repeats are among them."""
    return [packet for made, count in zip(sent, times, strict=False) for packet in made * count]


async def settled(running: Running) -> None:
    """Until nothing waits for the disk any more."""
    for _ in range(3):
        await running.gateway.state.barrier()
        await running.gateway.recorder.event(_Nobody(), "test", {})
        await asyncio.sleep(0)


class _Nobody:
    id = protocol = identity = address = ""


def outcome(running: Running, wire: Wire) -> dict[str, Any]:
    """What is the same however packets are read: for each device the order, for all the sums."""
    kept: dict[Any, list[Any]] = defaultdict(list)
    for row in running.records():
        if row["event"] == "publish":
            kept["publish", row["note"]["topic"]].append(json.loads(row["frame"]))
        elif row["event"] in ("frame", "refuse", "open"):
            kept[row["event"], row["direction"], row["identity"], row["peer"]].append((row["frame"], row["note"]))
        elif row["event"] == "quarantine":
            kept["quarantine"].append((row["frame"], row["note"]))
    heard: dict[str, list[bytes]] = defaultdict(list)
    for packet in packets_in(b"".join(wire.written)):
        heard[packet.serial].append(packet.encode())
    devices = running.gateway.devices
    return {
        "kept": dict(kept),
        "heard": {
            serial: sorted(each) for serial, each in heard.items()
        },  # receipts have no order: UDP has none either
        "closed": wire.closed,
        "frames_in": running.gateway.counters.frames_in["apostol"],
        "recorded": {place[1:]: count for place, count in running.gateway.recorder._counted.items()},
        "refused": dict(running.gateway.counters.refused),
        "peers": {
            serial: (peer.frames_in, peer.frames_out, peer.bytes_in, peer.bytes_out, peer.address, peer.assembling)
            for serial, peer in devices.peers.items()
        },
        "duplicates": {serial: peer.session.assembler.duplicates for serial, peer in devices.peers.items()},  # type: ignore[attr-defined]
    }


async def streamed(folder: Path, data: bytes, cuts: list[int]) -> dict[str, Any]:
    async with running_gateway(folder, devices=DEVICES) as running:
        wire, stream = Wire(), DeviceStream(running.gateway.devices, running.gateway)
        stream.connection_made(wire)
        for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
            if not wire.closed:
                stream.data_received(data[start:end])
        await until(lambda: wire.closed or wire.reading)  # all of it had its turn
        await settled(running)
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
        wire, datagrams = Wire(), DeviceDatagrams(running.gateway.devices)
        datagrams.connection_made(wire)
        for turn in turns:
            for number, data in enumerate(turn):
                datagrams.datagram_received(data, ADDRESSES[number % 2])
            await asyncio.sleep(0)
        await settled(running)
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
                patch.setattr(DeviceSessions, "skim", lambda *_args: 0)
            outcomes.append(asyncio.run(run(Path(folder))))
    assert outcomes[0] == outcomes[1]


async def test_reports_are_skimmed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the tests above compare nothing: after the first one of a device, its reports are not read one by one."""
    async with running_gateway(tmp_path, devices=DEVICES) as running:
        read: list[bytes] = []
        devices = running.gateway.devices
        receive = devices.receive

        def reading(raw: bytes, packet: Packet, origin: Origin) -> None:
            read.append(raw)
            receive(raw, packet, origin)

        monkeypatch.setattr(devices, "receive", reading)
        wire, stream = Wire(), DeviceStream(devices, running.gateway)
        stream.connection_made(wire)
        sent = [report(serial, number, b"x")[0] for number in range(100) for serial in ("m1", "meter-2")]
        stream.data_received(b"".join(sent))
        await settled(running)
        assert read == sent[:2]
        assert len(packets_in(b"".join(wire.written))) == 200
        # One write for each block of the log that held some of them: how many those are is the disk's affair.
        assert len(wire.written) <= len(sent) // 10, "many receipts go together"


async def test_a_stream_is_read_for_no_more_than_its_turn(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, devices=DEVICES, broker={"devices_topic": ""}) as running:
        wire, stream = Wire(), DeviceStream(running.gateway.devices, running.gateway)
        stream.connection_made(wire)
        stream.data_received(b"".join([report("m1", number % 256, b"x")[0] for number in range(50_000)]))
        heard = running.gateway.counters.frames_in["apostol"]
        assert 0 < heard < 5_000
        assert not wire.reading
        await until(lambda: running.gateway.counters.frames_in["apostol"] == 50_000)
        await settled(running)
        assert len(packets_in(b"".join(wire.written))) == 50_000
        assert wire.reading


async def test_a_stream_that_is_too_fast_is_read_later(tmp_path: Path) -> None:
    limits = {"frames_per_second": 5}
    async with running_gateway(tmp_path, devices=DEVICES, limits=limits) as running:
        gateway = running.gateway
        clock, now_s = gateway.now_s, gateway.now_s()
        gateway.now_s = lambda: now_s  # the time between the two reads is none
        wire, stream = Wire(), DeviceStream(gateway.devices, gateway)
        stream.connection_made(wire)
        sent = [report("m1", number, b"x")[0] for number in range(6)]
        stream.data_received(b"".join(sent[:5]))
        assert wire.is_reading(), "a second's worth at once"
        stream.data_received(sent[5])
        assert not wire.is_reading()
        gateway.now_s = clock
        await until(lambda: wire.reading)
        await settled(running)
        assert len(packets_in(b"".join(wire.written))) == 6
