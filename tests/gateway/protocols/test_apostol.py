"""apostol over real sockets: the packets of devices, and what the gateway does with them."""

import asyncio
import itertools
import json
from base64 import b64decode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.apostol_client import Meter, StreamMeter, packets_in, report
from gateway.running_gateway import Running, running_gateway, until
from wirelake.commit import Commit
from wirelake.gateway.transport.commit_barrier import CommitWaiter
from wirelake.protocols.apostol.commands import DeviceCommand, Status, encode_data
from wirelake.protocols.apostol.constants import ANSWER, RECEIPT, SEALED, TO_DEVICE, ZIPPED
from wirelake.protocols.apostol.envelope import build_packets, open_command
from wirelake.protocols.apostol.frames import Packet, receipt_for

METER = ("m1", 6, None)
KEY = bytes(range(16))
SAFE = ("safe", 6, KEY)
BOTH = pytest.mark.parametrize("kind", [Meter, StreamMeter])
QUICK = {"receipt_s": 0.5, "resends_max": 5, "request_s": 20.0}


@asynccontextmanager
async def gateway(folder: Path, **settings: Any) -> AsyncIterator[Running]:
    devices = settings.pop("devices", [METER, SAFE])
    async with running_gateway(folder, "apostol", devices=devices, **settings) as running:
        yield running


def number_of(packet: Packet) -> tuple[int, int]:
    return packet.command_no, packet.packet_no


async def published(running: Running, serial: str, count: int) -> list[dict[str, Any]]:
    """Return what was published for a device, once there is so much."""
    rows = await running.recorded("publish", count)
    return [json.loads(row["frame"]) for row in rows if row["note"]["topic"] == f"@devices/{serial}"]


@BOTH
async def test_every_packet_has_its_receipt_whatever_the_order(tmp_path: Path, kind: type[Meter]) -> None:
    packets = report("m1", 9, bytes(range(200)), data_bytes=70)
    assert len(packets) == 3
    async with gateway(tmp_path) as running, await kind.connect(running.port("apostol")) as meter:
        for number, order in enumerate(itertools.permutations(range(3))):
            packets = report("m1", number, bytes([number]) * 200, data_bytes=70)
            for place in order:
                meter.send(packets[place])
            received = [await meter.receive() for _ in order]
            assert all(each.receipt and each.to_device and each.serial == "m1" for each in received)
            assert [number_of(each) for each in received] == [(number, place) for place in order]
        commands = await published(running, "m1", 6)
        assert [each["command_type"] for each in commands] == [2] * 6


@BOTH
async def test_repeats_get_receipts_and_count_once(tmp_path: Path, kind: type[Meter]) -> None:
    async with gateway(tmp_path) as running, await kind.connect(running.port("apostol")) as meter:
        first, second = report("m1", 3, b"x" * 100, data_bytes=60)
        for packet in (first, first, second, second, first):
            meter.send(packet)
        assert [(await meter.receive()).packet_no for _ in range(5)] == [0, 0, 1, 1, 0]
        meter.send(report("m1", 4, b"y")[0])
        await meter.receive()
        assert len(await published(running, "m1", 2)) == 2
        assert len(running.records("frame", direction="in")) == 6, "every packet is in the log"


@BOTH
async def test_zlib_and_aes(tmp_path: Path, kind: type[Meter]) -> None:
    async with gateway(tmp_path) as running, await kind.connect(running.port("apostol")) as meter:
        for number, params in enumerate((ZIPPED, SEALED, ZIPPED | SEALED)):
            seal_with = (KEY, bytes(11) + bytes([number])) if params & SEALED else None
            for packet in report("safe", number, b"data" * 99, params=params, seal_with=seal_with, data_bytes=64):
                meter.send(packet)
        await until(lambda: len(running.records("publish")) == 3)
        commands = await published(running, "safe", 3)
        assert [b64decode(each["data"]) for each in commands] == [b"data" * 99] * 3
        assert b"datadata" not in b"".join(row["frame"] for row in running.records("frame", direction="in"))


async def test_a_seal_that_does_not_hold_refuses_the_command_not_the_packet(tmp_path: Path) -> None:
    async with gateway(tmp_path) as running, await Meter.connect(running.port("apostol")) as meter:
        meter.send(report("safe", 1, b"x", params=SEALED, seal_with=(bytes(16), bytes(12)))[0])
        meter.send(report("m1", 1, b"x", params=SEALED, seal_with=(KEY, bytes(12)))[0])
        meter.send(report("m1", 2, b"x" * 9, params=ZIPPED)[0][:-12] + bytes(12))
        assert [(await meter.receive()).serial for _ in range(2)] == ["safe", "m1"]
        meter.send(report("m1", 3, b"x")[0])
        await meter.receive()
        assert len(await published(running, "m1", 1)) == 1


async def test_known_contents_are_read(tmp_path: Path) -> None:
    async with gateway(tmp_path) as running, await Meter.connect(running.port("apostol")) as meter:
        status = Status(3, 1, 1_600_000_000, 2, 1_600_000_001)
        meter.send(report("m1", 1, encode_data(status), command_type=1)[0])
        readings = bytes.fromhex("03 01 01 07 02 04 01000000 03 08 000000000000f03f")
        meter.send(report("m1", 2, readings, command_type=4)[0])
        meter.send(report("m1", 3, b"", command_type=9, error=4)[0])
        first, second, third = await published(running, "m1", 3)
        assert first["status"]["configured_at"] == 1_600_000_000
        assert [(each["type"], each["value"]) for each in second["readings"]] == [(1, 7), (2, 1), (3, 1.0)]
        assert (third["command_type"], third["error"], third["device_time"]) == (9, 4, 1_700_000_000)


async def test_a_receipt_comes_after_durability(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Send no receipt before the disk confirms."""
    async with gateway(tmp_path) as running, await Meter.connect(running.port("apostol")) as meter:
        meter.send(report("m1", 1, b"x")[0])
        assert (await meter.receive()).command_no == 1
        durable = [row["frame"] for row in running.records("frame", direction="in")]
        assert durable == report("m1", 1, b"x"), "it is on disk when the receipt is here"
        barrier = running.gateway.commit_barrier
        held: list[tuple[Commit, CommitWaiter]] = []
        with monkeypatch.context() as patch:
            patch.setattr(barrier, "wait", lambda *waiting: held.append(waiting))
            meter.send(report("m1", 2, b"x")[0])
            assert await meter.is_silent()
        assert held
        for commit, waiter in held:
            barrier.wait(commit, waiter)
        assert (await meter.receive()).command_no == 2


@BOTH
async def test_unknown_devices_hear_nothing(tmp_path: Path, kind: type[Meter]) -> None:
    async with gateway(tmp_path) as running, await kind.connect(running.port("apostol")) as meter:
        meter.send(report("stranger", 1, b"x")[0])
        meter.send(report("", 1, b"x", device_type=0xFF)[0])
        refused = await running.recorded("refuse", 2)
        assert [(row["identity"], row["note"]["reason"]) for row in refused] == [
            ("stranger", "unknown_device"),
            ("", "unknown_device"),
        ]
        assert running.gateway.counters.refused["apostol", "unknown_device"] == 2
        assert await meter.is_silent()
        meter.send(report("m1", 1, b"x")[0])
        assert (await meter.receive()).serial == "m1", "others on the same socket are served"


async def test_an_open_listener_takes_anybody(tmp_path: Path) -> None:
    settings = {"open": True}
    async with gateway(tmp_path, apostol=settings) as running, await Meter.connect(running.port("apostol")) as meter:
        meter.send(report("stranger", 1, b"x")[0])
        assert (await meter.receive()).serial == "stranger"
        assert len(await published(running, "stranger", 1)) == 1


async def test_a_datagram_of_several_packets_with_a_bad_one(tmp_path: Path) -> None:
    """Accept the packets before the malformed one, and quarantine the rest."""
    good, bad, after = (report("m1", number, b"x")[0] for number in (1, 2, 3))
    bad = bad[:-1] + bytes([bad[-1] ^ 1])
    faults = ((bad + after, "crc"), (b"\x03" + after, "length_min"), (after[:-3], "incomplete"))
    async with gateway(tmp_path) as running, await Meter.connect(running.port("apostol")) as meter:
        for count, (rest, code) in enumerate(faults, 1):
            meter.send(good + rest)
            assert (await meter.receive()).command_no == 1
            row = (await running.recorded("quarantine", count))[-1]
            assert (row["frame"], row["note"]["code"]) == (rest, code)
        assert await meter.is_silent()
        assert running.gateway.counters.quarantined["apostol"] == 3


async def test_a_bad_packet_closes_a_tcp_connection(tmp_path: Path) -> None:
    good = report("m1", 1, b"x")[0]
    bad = good[:-1] + bytes([good[-1] ^ 1])
    for count, (rest, code) in enumerate(((bad, "crc"), (b"\x03", "length_min")), 1):
        async with gateway(tmp_path / code) as running, await StreamMeter.connect(running.port("apostol")) as meter:
            meter.send(good + rest)
            assert (await meter.receive()).command_no == 1
            await asyncio.wait_for(meter.lost.wait(), 10)
            (row,) = await running.recorded("quarantine")
            assert (row["frame"], row["note"]["code"]) == (rest, code), count


async def test_a_tcp_connection_that_ends_inside_a_packet(tmp_path: Path) -> None:
    async with gateway(tmp_path) as running:
        async with await StreamMeter.connect(running.port("apostol")) as meter:
            meter.send(report("m1", 1, b"x")[0][:-3])
        (row,) = await running.recorded("quarantine")
        assert row["note"]["code"] == "incomplete"


@BOTH
async def test_a_command_is_sent_again_until_its_receipt_and_the_answer_is_matched(
    tmp_path: Path, kind: type[Meter]
) -> None:
    async with gateway(tmp_path, apostol=QUICK) as running, await kind.connect(running.port("apostol")) as meter:
        meter.send(report("m1", 1, b"x")[0])
        await meter.receive()
        response = asyncio.create_task(running.command("m1", 0x82, b"who"))
        other = asyncio.create_task(running.command("m1", 0x83))
        first, second = await meter.receive(), await meter.receive()
        assert first.to_device
        assert first.data == b"\x82who"
        again = [await meter.receive() for _ in range(2)]
        assert again == [first, second], "no receipt, so the same packets once more"
        for packet in (first, second):
            meter.send(receipt_for(packet).encode())
        assert await meter.is_silent(2 * QUICK["receipt_s"]), "the receipts came"
        for packet, data in ((second, b"two"), (first, b"one")):
            kind_of = packet.data[0] & 0x7F
            meter.send(report("m1", packet.command_no, data, params=ANSWER, command_type=kind_of)[0])
            receipt = await meter.receive()
            assert receipt.receipt
        answer = await response
        assert (answer.payload, answer.fields["command_type"], answer.failure) == (b"one", 2, None)
        assert (await other).payload == b"two"


async def test_a_long_command_in_fragments_and_sealed(tmp_path: Path) -> None:
    async with gateway(tmp_path, apostol=QUICK) as running, await Meter.connect(running.port("apostol")) as meter:
        meter.send(report("safe", 1, b"x")[0])
        await meter.receive()
        response = asyncio.create_task(running.command("safe", 0x82, bytes(3000), zipped=False))
        packets = [await meter.receive() for _ in range(3)]
        assert all(packet.sealed for packet in packets)
        assert [(packet.first, packet.last) for packet in packets] == [(True, False), (False, False), (False, True)]
        meter.send(receipt_for(packets[0]).encode() + receipt_for(packets[2]).encode())
        again = await meter.receive()
        assert again == packets[1], "only what has no receipt"
        data = b"".join(packet.data for packet in packets)
        clear = open_command(data, SEALED, again.device_type, "safe", again.command_no, KEY)
        assert clear == b"\x82" + bytes(3000)
        command = DeviceCommand(1, 2, 0, b"fine").encode()
        sealed = build_packets(command, ANSWER | SEALED, 0, "safe", again.command_no, 20, (KEY, bytes(12)))
        for packet in reversed(sealed):
            meter.send(packet.encode())
        assert (await response).payload == b"fine"


@pytest.mark.parametrize(
    ("error", "text"), [(1, "unspecified"), (2, "unknown command"), (3, "bad format"), (4, "bad parameters")]
)
async def test_errors_of_a_device(tmp_path: Path, error: int, text: str) -> None:
    async with gateway(tmp_path, apostol=QUICK) as running, await Meter.connect(running.port("apostol")) as meter:
        meter.send(report("m1", 1, b"x")[0])
        await meter.receive()
        response = asyncio.create_task(running.command("m1", 0x82))
        request = await meter.receive()
        meter.send(report("m1", request.command_no, b"", params=ANSWER, error=error)[0])
        failure = (await response).failure
        assert failure is not None
        assert (failure.code, failure.text) == (error, text)


async def test_a_device_that_never_answers(tmp_path: Path) -> None:
    quick = {"receipt_s": 0.4, "resends_max": 2, "request_s": 1.5}
    async with gateway(tmp_path, apostol=quick) as running, await Meter.connect(running.port("apostol")) as meter:
        meter.send(report("m1", 1, b"x")[0])
        await meter.receive()
        failure = (await running.command("m1", 0x82)).failure
        assert failure is not None
        assert "no receipt after 2 repeats" in failure.text
        received = [await meter.receive() for _ in range(3)]
        assert received[0] == received[1] == received[2]
        response = asyncio.create_task(running.command("m1", 0x82))
        meter.send(receipt_for(await meter.receive()).encode())
        failure = (await response).failure
        assert failure is not None
        assert "no answer within 1.5 s" in failure.text
        failure = (await running.command("never", 0x82)).failure
        assert failure is not None
        assert "is offline" in failure.text


async def test_commands_go_where_the_device_was_last_heard(tmp_path: Path) -> None:
    async with gateway(tmp_path, apostol=QUICK) as running:
        port = running.port("apostol")
        async with (
            await Meter.connect(port) as old,
            await Meter.connect(port) as new,
            await StreamMeter.connect(port) as tcp,
        ):
            for number, meter in enumerate((old, new, tcp)):
                meter.send(report("m1", number, b"x")[0])
                await meter.receive()
                response = asyncio.create_task(running.command("m1", 0x82))
                request = await meter.receive()
                meter.send(report("m1", request.command_no, b"here", params=ANSWER)[0])
                assert (await response).payload == b"here"
                assert (await meter.receive()).receipt


async def test_an_incomplete_command_expires(tmp_path: Path) -> None:
    settings = {"assembly_s": 0.05}
    async with gateway(tmp_path, apostol=settings) as running, await Meter.connect(running.port("apostol")) as meter:
        first, second = report("m1", 1, b"x" * 100, data_bytes=60)
        meter.send(first)
        assert (await meter.receive()).packet_no == 0
        (peer,) = running.gateway.devices.peers.values()
        await until(lambda: not peer.session.deadlines.keys() & {"assembly"})
        meter.send(second)
        assert (await meter.receive()).packet_no == 1, "a late packet is durable too"
        meter.send(report("m1", 2, b"y")[0])
        await meter.receive()
        assert len(await published(running, "m1", 1)) == 1


async def test_receipts_for_nothing_are_ignored(tmp_path: Path) -> None:
    async with gateway(tmp_path) as running, await Meter.connect(running.port("apostol")) as meter:
        (packet,) = packets_in(report("m1", 1, b"x")[0])
        stray = receipt_for(packet)
        stray = type(stray)(1, RECEIPT, 0, "m1", 77, 0, b"")
        meter.send(stray.encode())
        meter.send(packet.encode())
        assert (await meter.receive()).command_no == 1
        (peer,) = running.gateway.devices.peers.values()
        assert peer.session.ignored.unknown_receipts == 1  # type: ignore[attr-defined]
        to_device = type(packet)(1, packet.params | TO_DEVICE, 0, "m1", 5, 0, b"\x82")
        meter.send(to_device.encode())
        assert await meter.is_silent(), "the wrong way"


async def test_everything_is_there_after_a_restart(tmp_path: Path) -> None:
    async with gateway(tmp_path) as running, await StreamMeter.connect(running.port("apostol")) as meter:
        meter.send(report("m1", 1, b"x")[0])
        await meter.receive()
    await asyncio.wait_for(meter.lost.wait(), 10)
    async with gateway(tmp_path, devices=[]) as running:
        assert [row["frame"] for row in running.records("frame", direction="in")] == report("m1", 1, b"x")
        assert [row["note"].get("reason") for row in running.records("close")] == ["shutdown"]
        async with await Meter.connect(running.port("apostol")) as other:
            other.send(report("m1", 2, b"x")[0])
            assert (await other.receive()).command_no == 2, "the device is known still"
