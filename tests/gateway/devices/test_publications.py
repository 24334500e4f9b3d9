"""A receipt promises that a report is logged and published: while the state fails, there are no receipts."""

import asyncio
import base64
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.apostol_client import Meter, StreamMeter, report
from gateway.running_gateway import Running, running_gateway, until
from wirelake.errors import BusyError
from wirelake.protocols.apostol.constants import ZIPPED
from wirelake.protocols.apostol.frames import ApostolSplitter, decode
from wirelake.protocols.frame import Sender
from wirelake.protocols.text import read_json

SERIALS = [f"m{number}" for number in range(8)]
REPORTS = 30  # of each device
FILLING = "x" * 700
Make = Callable[[str, int, bytes], list[bytes]]
SHAPES: dict[str, Make] = {
    "plain": lambda serial, number, data: report(serial, number, data),
    "zipped": lambda serial, number, data: report(serial, number, data, params=ZIPPED),
    "pieces": lambda serial, number, data: report(serial, number, data, data_bytes=300),
}
every_way = pytest.mark.parametrize("carrier", [Meter, StreamMeter], ids=["udp", "tcp"])
every_shape = pytest.mark.parametrize("shape", SHAPES)

Packet = tuple[str, int, int]  # serial, command_no, packet_no


class Fleet:
    """Send the reports of many devices, and on demand repeat those without a receipt."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self.sent: dict[Packet, bytes] = {}
        self.receipts: Counter[Packet] = Counter()

    async def send(self, wires: list[bytes]) -> None:
        for raw in wires:
            packet = decode(raw, Sender.CLIENT)
            self.sent[packet.serial, packet.command_no, packet.packet_no] = raw
        for start in range(0, len(wires), 32):  # as many as a socket takes at once
            for raw in wires[start : start + 32]:
                self._meter.send(raw)
            await asyncio.sleep(0.002)

    async def receive(self) -> None:
        while True:
            packet = await self._meter.receive()
            assert packet.receipt
            self.receipts[packet.serial, packet.command_no, packet.packet_no] += 1

    async def repeat(self) -> None:
        await self.send([raw for packet, raw in self.sent.items() if packet not in self.receipts])

    def answered(self, commands: dict[tuple[str, int], int]) -> set[tuple[str, int]]:
        """Return the commands of which every packet has its receipt, given their number of packets."""
        found = Counter((serial, number) for serial, number, _ in self.receipts)
        return {command for command, packets in commands.items() if found[command] == packets}


def text(serial: str, number: int) -> str:
    return f"{serial}/{number} {FILLING}"


def commands(shape: str, numbers: range) -> dict[tuple[str, int], list[bytes]]:
    return {
        (serial, number): SHAPES[shape](serial, number, text(serial, number).encode())
        for number in numbers
        for serial in SERIALS
    }


def published(running: Running) -> Counter[tuple[str, int]]:
    """Return the content of the topics on disk."""
    found: Counter[tuple[str, int]] = Counter()
    for serial in SERIALS:
        position = 0
        while rows := running.gateway.state.topics.read_after(f"@devices/{serial}", position):
            position = rows[-1].position
            for row in rows:
                content = read_json(row.content)
                data = base64.b64decode(content["data"]).decode()
                found[serial, int(data.partition(" ")[0].partition("/")[2])] += 1
    return found


def fill(running: Running) -> None:
    """Let SQLite fail as on a full disk when the file would need another page."""
    writing = running.gateway.state.database.write_connection
    (pages,) = writing.execute("PRAGMA page_count").fetchone()
    writing.execute(f"PRAGMA max_page_count = {pages}")


def make_room(running: Running) -> None:
    running.gateway.state.database.write_connection.execute("PRAGMA max_page_count = 1000000")


async def devices_are_known(running: Running, fleet: Fleet) -> None:
    """Publish one report of each device to a topic that has a durable subscriber."""
    for serial in SERIALS:
        await running.gateway.state.topics.subscribe("ann", f"@devices/{serial}")
    first = commands("plain", range(1))
    await fleet.send([raw for wires in first.values() for raw in wires])
    await until(lambda: len(fleet.receipts) == len(SERIALS))


@every_way
@every_shape
async def test_nothing_that_got_a_receipt_is_missing_when_the_state_was_full(
    tmp_path: Path, carrier: type[Meter], shape: str
) -> None:
    devices = [(serial, 0, None) for serial in SERIALS]
    async with (
        running_gateway(tmp_path, "apostol", devices=devices) as running,
        await carrier.connect(running.port("apostol")) as meter,
    ):
        fleet = Fleet(meter)
        hearing = asyncio.create_task(fleet.receive())
        await devices_are_known(running, fleet)
        await running.gateway.state.barrier()
        fill(running)
        sent = commands(shape, range(1, REPORTS + 1))
        await fleet.send([raw for wires in sent.values() for raw in wires])
        errors = running.gateway.counters.errors
        await until(lambda: running.gateway.state.writer.error is not None)
        before = errors["apostol", "not_published"]
        await fleet.repeat()
        await until(lambda: errors["apostol", "not_published"] > before)
        await asyncio.sleep(0.3)  # the time to wait for receipts that must not come
        packets = {command: len(wires) for command, wires in sent.items()}
        early = fleet.answered(packets)
        assert early <= published(running).keys(), "a receipt for what is not published"
        assert len(early) < len(sent)
        make_room(running)
        async with asyncio.timeout(60):
            while len(fleet.answered(packets)) < len(sent):
                await fleet.repeat()
                await asyncio.sleep(0.3)
        assert all(count == 1 for count in published(running).values()), "published once"
        assert published(running).keys() == sent.keys() | {(serial, 0) for serial in SERIALS}
        hearing.cancel()


@every_way
@every_shape
async def test_a_repeat_gets_no_receipt_before_the_first_is_published(
    tmp_path: Path, carrier: type[Meter], shape: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Delay the state and then let it fail: neither the first report nor its repeat may get a receipt."""
    devices = [(serial, 0, None) for serial in SERIALS]
    async with (
        running_gateway(tmp_path, "apostol", devices=devices) as running,
        await carrier.connect(running.port("apostol")) as meter,
    ):
        fleet = Fleet(meter)
        hearing = asyncio.create_task(fleet.receive())
        await devices_are_known(running, fleet)
        fail = block_writer(running, monkeypatch)
        sent = commands(shape, range(1, 4))
        packets = {command: len(wires) for command, wires in sent.items()}
        await fleet.send([raw for wires in sent.values() for raw in wires])
        await frames_recorded(running, len(SERIALS) + sum(packets.values()))
        await fleet.repeat()
        await asyncio.sleep(0.3)
        assert not fleet.answered(packets)
        fail()
        await until(lambda: running.gateway.state.writer.error is None)
        await asyncio.sleep(0.1)
        assert not fleet.answered(packets)
        assert len(published(running)) == len(SERIALS)
        async with asyncio.timeout(60):
            while len(fleet.answered(packets)) < len(sent):
                await fleet.repeat()
                await asyncio.sleep(0.3)
        assert all(count == 1 for count in published(running).values()), "published once"
        assert published(running).keys() >= sent.keys()
        hearing.cancel()


def block_writer(running: Running, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Block the state's writes until they are made to fail; after that it writes as before."""
    writer = running.gateway.state.writer
    whole, failing = writer._write, threading.Event()

    def write(batch: object) -> None:
        failing.wait(60)
        monkeypatch.setattr(writer, "_write", whole)
        raise BusyError("no room")

    monkeypatch.setattr(writer, "_write", write)
    return failing.set


async def frames_recorded(running: Running, count: int) -> None:
    await until(lambda: running.gateway.counters.frames_in["apostol"] >= count)


def test_only_pieces_are_several_packets() -> None:
    for shape, made in SHAPES.items():
        wires = made("m1", 1, text("m1", 1).encode())
        assert ApostolSplitter().receive(b"".join(wires)) == wires
        assert (len(wires) > 1) == (shape == "pieces")
