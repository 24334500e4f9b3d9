"""Devices with a key against an attacker who sends packets in their name: forged, or replayed."""

import asyncio
import itertools
import json
import os
import time
from base64 import b64decode
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.apostol_client import Meter, StreamMeter, report
from gateway.running_gateway import Running, running_gateway, until
from wirelake.protocols.apostol.commands import DeviceCommand
from wirelake.protocols.apostol.constants import ANSWER, FIRST, LAST, SEALED, TO_DEVICE, ZIPPED
from wirelake.protocols.apostol.envelope import build_packets
from wirelake.protocols.apostol.frames import Packet, receipt_for

KEY = bytes(range(16))
BOTH = pytest.mark.parametrize("kind", [Meter, StreamMeter])
STRICT = {"require_seal": True, "receipt_s": 0.5, "resends_max": 5, "request_s": 20.0}
SHORT = {**STRICT, "assembly_s": 0.2}  # finished commands are dropped soon


@asynccontextmanager
async def gateway(folder: Path, **apostol: Any) -> AsyncIterator[Running]:
    async with running_gateway(folder, "apostol", devices=[("safe", 6, KEY)], apostol=apostol) as running:
        yield running


def sealed(
    command_no: int, data: bytes, *, at: int | None = None, params: int = 0, data_bytes: int = 1024
) -> list[Packet]:
    """Return the packets of a sealed command of the device, with a new nonce."""
    command = DeviceCommand(int(time.time()) if at is None else at, 2, 0, data).encode()
    return build_packets(command, params | SEALED, 6, "safe", command_no, data_bytes, (KEY, os.urandom(12)))


async def send_and_await_receipts(meter: Meter, *packets: Packet) -> None:
    """Send packets one by one, and wait for the receipt of each."""
    for packet in packets:
        meter.send(packet.encode())
        reply = await meter.receive()
        assert (reply.receipt, reply.command_no, reply.packet_no) == (True, packet.command_no, packet.packet_no)


async def check_answer(running: Running, meter: Meter) -> None:
    """Check that a command for the device arrives here, and that its answer is accepted."""
    response = asyncio.create_task(running.command("safe", 0x82, device_type=6))
    request = await meter.receive()
    assert request.to_device
    assert not request.receipt
    await send_and_await_receipts(meter, *sealed(request.command_no, b"here", params=ANSWER))
    assert (await response).payload == b"here"


async def published(running: Running, count: int) -> list[dict[str, Any]]:
    return [json.loads(row["frame"]) for row in await running.recorded("publish", count)]


@BOTH
async def test_forged_packets_do_not_move_a_device(tmp_path: Path, kind: type[Meter]) -> None:
    async with gateway(tmp_path, **STRICT) as running:
        port = running.port("apostol")
        async with (
            await kind.connect(port) as device,
            await kind.connect(port) as thief,
            await kind.connect(port) as moved,
        ):
            genuine = sealed(1, b"genuine")
            await send_and_await_receipts(device, *genuine)
            await check_answer(running, device)
            broken = Packet(1, 3 | SEALED, 6, "safe", 9, 0, os.urandom(60))
            in_clear = build_packets(DeviceCommand(5, 2, 0, b"forged").encode(), 0, 6, "safe", 8, 1024)
            await send_and_await_receipts(thief, *in_clear, broken, *genuine)
            thief.send(receipt_for(Packet(1, 3 | TO_DEVICE, 6, "safe", 7, 0, b"")).encode())
            await check_answer(running, device)
            (peer,) = running.gateway.devices.peers.values()
            assert peer.address.endswith(str(device.local_port))
            frames = await running.recorded("frame", protocol="apostol", direction="in")
            at_thief = str(thief.local_port)
            assert len([row for row in frames if row["peer"].endswith(at_thief)]) >= 3, "where they came from"
            await send_and_await_receipts(moved, *sealed(2, b"from elsewhere"))
            await check_answer(running, moved)
            assert await thief.is_silent()
            counted = running.gateway.counters.errors
            assert (counted["apostol", "unsealed"], counted["apostol", "bad_seal"]) == (1, 1)


async def test_nothing_is_sent_to_a_device_before_its_first_seal(tmp_path: Path) -> None:
    async with gateway(tmp_path, **STRICT) as running:
        port = running.port("apostol")
        async with await Meter.connect(port) as thief, await Meter.connect(port) as device:
            thief.send(report("safe", 1, b"forged", device_type=6)[0])
            assert (await thief.receive()).receipt
            refused = await running.command("safe", 0x82, device_type=6)
            assert refused.failure is not None
            assert "sealed" in refused.failure.text
            assert await thief.is_silent()
            await send_and_await_receipts(device, *sealed(1, b"x"))
            await check_answer(running, device)


async def test_where_no_seal_is_required_a_device_that_was_heard_sealed_is_not_moved_without(tmp_path: Path) -> None:
    async def answers_in_clear(running: Running, meter: Meter) -> None:
        response = asyncio.create_task(running.command("safe", 0x82, device_type=6))
        request = await meter.receive()
        meter.send(report("safe", request.command_no, b"here", params=ANSWER, device_type=6)[0])
        assert (await response).payload == b"here"
        assert (await meter.receive()).receipt

    settings = {**STRICT, "require_seal": False}
    async with gateway(tmp_path, **settings) as running:
        port = running.port("apostol")
        async with (
            await Meter.connect(port) as first,
            await Meter.connect(port) as second,
            await Meter.connect(port) as third,
        ):
            for number, meter in enumerate((first, second)):
                meter.send(report("safe", number, b"in clear", device_type=6)[0])
                assert (await meter.receive()).receipt
                await answers_in_clear(running, meter)
            await send_and_await_receipts(second, *sealed(5, b"sealed"))
            for number in range(40):  # on the fast path, too
                third.send(report("safe", 100 + number, b"in clear", device_type=6)[0])
                assert (await third.receive()).receipt
            await answers_in_clear(running, second)
            assert await third.is_silent()


def forgeries(number: int, place: int, last: int) -> Iterator[list[Packet]]:
    """Yield forged packets for a command number that the device is using."""

    def forged(params: int, packet_no: int) -> Packet:
        return Packet(1, params, 6, "safe", number, packet_no, os.urandom(30))

    yield [forged(0, place)]
    yield [forged(SEALED, place)]
    yield [forged(SEALED | LAST, place)]
    yield [forged(SEALED | (LAST if each == last else 0), each) for each in range(last + 1)]
    yield [forged(SEALED | FIRST | LAST, 0)]
    yield [forged(SEALED | ZIPPED, place)]


@BOTH
async def test_forged_packets_do_not_displace_a_sealed_command(tmp_path: Path, kind: type[Meter]) -> None:
    """Insert every forged packet at every place between the three packets of a genuine command."""
    async with gateway(tmp_path, **STRICT) as running:
        port = running.port("apostol")
        async with await kind.connect(port) as device, await kind.connect(port) as thief:
            expected = []
            numbers = itertools.count()
            for kind_of_forgery, order in itertools.product(range(6), itertools.permutations(range(3))):
                number = next(numbers)
                genuine = sealed(number, b"genuine %d" % number, data_bytes=20)
                last = len(genuine) - 1
                expected.append(f"genuine {number}")
                for step, place in enumerate([*order, *range(3, last + 1)]):
                    forged = list(forgeries(number, order[step % 3], last))[kind_of_forgery]
                    await send_and_await_receipts(thief, *forged)
                    await send_and_await_receipts(device, genuine[place])
            rows = await published(running, len(expected))
            assert [b64decode(row["data"]).decode() for row in rows] == expected


@BOTH
async def test_a_sealed_report_is_published_once_however_late_it_is_sent_again(
    tmp_path: Path, kind: type[Meter]
) -> None:
    now = int(time.time())
    ordered = sealed(1, b"ordered", at=now)
    without_clock = sealed(2, b"no clock", at=0)
    clock_error = sealed(3, b"clock error", at=1)
    from_the_future = sealed(4, b"future", at=2**32 - 1)
    long = sealed(5, b"long" * 20, at=now - 100, data_bytes=30)
    every = [*ordered, *without_clock, *clock_error, *from_the_future, *long]
    async with gateway(tmp_path, **SHORT) as running, await kind.connect(running.port("apostol")) as device:
        await send_and_await_receipts(device, *every)
        assert len(await published(running, 5)) == 5
        await send_and_await_receipts(device, *every)  # a receipt was lost: it is sent again, at once
        await asyncio.sleep(0.3)
        async with await kind.connect(running.port("apostol")) as thief:
            await send_and_await_receipts(thief, *every)
        refused = await running.recorded("refuse", 5)
        assert {row["note"]["reason"] for row in refused} == {"replayed"}
        assert running.gateway.counters.errors["apostol", "replayed"] == 5
        await send_and_await_receipts(device, *sealed(6, b"new", at=now + 1), *sealed(7, b"late", at=now - 200))
        assert len(await published(running, 7)) == 7
    async with gateway(tmp_path, **SHORT) as running, await kind.connect(running.port("apostol")) as thief:
        await send_and_await_receipts(thief, *every, *sealed(8, b"too old to tell", at=now - 400))
        await running.recorded("refuse", 11)
        await send_and_await_receipts(thief, *sealed(9, b"newer", at=now + 2))
        assert len(await published(running, 8)) == 8


async def test_what_is_known_is_stored_within_a_moment(tmp_path: Path) -> None:
    """Check the stored state while the gateway runs, as a crash would leave it."""
    async with gateway(tmp_path, **STRICT) as running, await Meter.connect(running.port("apostol")) as device:
        assert running.gateway.state.devices.seals("safe") == {}
        await send_and_await_receipts(device, *sealed(1, b"x"))
        await until(lambda: running.gateway.state.devices.seals("safe"))
        await running.gateway.state.barrier()
        running.gateway.state.devices.remove("safe")
        assert running.gateway.state.devices.seals("safe") == {}, "another key knows nothing of it"
