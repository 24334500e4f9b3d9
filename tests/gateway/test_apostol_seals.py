"""Devices with a key against somebody who sends packets in their name: forged, or recorded and sent again."""

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

from gateway.running import Running, running_gateway, until
from gateway.wire import Meter, StreamMeter, report
from wirelake.protocols.apostol.commands import DeviceCommand
from wirelake.protocols.apostol.envelope import build_packets
from wirelake.protocols.apostol.frames import Packet, receipt_for
from wirelake.protocols.apostol.opcodes import ANSWER, FIRST, LAST, SEALED, TO_DEVICE, ZIPPED

KEY = bytes(range(16))
BOTH = pytest.mark.parametrize("kind", [Meter, StreamMeter])
STRICT = {"require_seal": True, "receipt_s": 0.5, "resends_max": 5, "request_s": 20.0}
SHORT = {**STRICT, "assembly_s": 0.2}  # finished commands are forgotten soon


@asynccontextmanager
async def gateway(folder: Path, **apostol: Any) -> AsyncIterator[Running]:
    async with running_gateway(folder, "apostol", devices=[("safe", 6, KEY)], apostol=apostol) as running:
        yield running


def sealed(
    command_no: int, data: bytes, *, at: int | None = None, params: int = 0, data_bytes: int = 1024
) -> list[Packet]:
    """A command of the device, with a nonce of its own."""
    command = DeviceCommand(int(time.time()) if at is None else at, 2, 0, data).encode()
    return build_packets(command, params | SEALED, 6, "safe", command_no, data_bytes, (KEY, os.urandom(12)))


async def said(meter: Meter, *packets: Packet) -> None:
    """Send these, one by one, and hear their receipts."""
    for packet in packets:
        meter.send(packet.encode())
        heard = await meter.hear()
        assert (heard.receipt, heard.command_no, heard.packet_no) == (True, packet.command_no, packet.packet_no)


async def answers(running: Running, meter: Meter) -> None:
    """A command for the device comes here, and its answer is taken."""
    asked = asyncio.create_task(running.command("safe", 0x82, device_type=6))
    request = await meter.hear()
    assert request.to_device
    assert not request.receipt
    await said(meter, *sealed(request.command_no, b"here", params=ANSWER))
    assert (await asked).payload == b"here"


async def published(running: Running, count: int) -> list[dict[str, Any]]:
    return [json.loads(row["frame"]) for row in await running.recorded("publish", count)]


@BOTH
async def test_forged_packets_do_not_move_a_device(tmp_path: Path, kind: type[Meter]) -> None:
    async with gateway(tmp_path, **STRICT) as running:
        port = running.port("apostol")
        async with await kind.call(port) as device, await kind.call(port) as thief, await kind.call(port) as moved:
            genuine = sealed(1, b"genuine")
            await said(device, *genuine)
            await answers(running, device)
            broken = Packet(1, 3 | SEALED, 6, "safe", 9, 0, os.urandom(60))
            in_clear = build_packets(DeviceCommand(5, 2, 0, b"forged").encode(), 0, 6, "safe", 8, 1024)
            await said(thief, *in_clear, broken, *genuine)
            thief.send(receipt_for(Packet(1, 3 | TO_DEVICE, 6, "safe", 7, 0, b"")).encode())
            await answers(running, device)
            (peer,) = running.gateway.devices.peers.values()
            assert peer.address.endswith(str(device._transport.get_extra_info("sockname")[1]))
            frames = await running.recorded("frame", protocol="apostol", direction="in")
            at_thief = str(thief._transport.get_extra_info("sockname")[1])
            assert len([row for row in frames if row["peer"].endswith(at_thief)]) >= 3, "where they came from"
            await said(moved, *sealed(2, b"from elsewhere"))
            await answers(running, moved)
            assert await thief.silent()
            counted = running.gateway.counters.errors
            assert (counted["apostol", "unsealed"], counted["apostol", "bad_seal"]) == (1, 1)


async def test_nothing_is_sent_to_a_device_before_its_first_seal(tmp_path: Path) -> None:
    async with gateway(tmp_path, **STRICT) as running:
        port = running.port("apostol")
        async with await Meter.call(port) as thief, await Meter.call(port) as device:
            thief.send(report("safe", 1, b"forged", device_type=6)[0])
            assert (await thief.hear()).receipt
            refused = await running.command("safe", 0x82, device_type=6)
            assert refused.failure is not None
            assert "sealed" in refused.failure.text
            assert await thief.silent()
            await said(device, *sealed(1, b"x"))
            await answers(running, device)


async def test_where_no_seal_is_required_a_device_that_was_heard_sealed_is_not_moved_without(tmp_path: Path) -> None:
    async def answers_in_clear(running: Running, meter: Meter) -> None:
        asked = asyncio.create_task(running.command("safe", 0x82, device_type=6))
        request = await meter.hear()
        meter.send(report("safe", request.command_no, b"here", params=ANSWER, device_type=6)[0])
        assert (await asked).payload == b"here"
        assert (await meter.hear()).receipt

    settings = {**STRICT, "require_seal": False}
    async with gateway(tmp_path, **settings) as running:
        port = running.port("apostol")
        async with (
            await Meter.call(port) as first,
            await Meter.call(port) as second,
            await Meter.call(port) as third,
        ):
            for number, meter in enumerate((first, second)):
                meter.send(report("safe", number, b"in clear", device_type=6)[0])
                assert (await meter.hear()).receipt
                await answers_in_clear(running, meter)
            await said(second, *sealed(5, b"sealed"))
            for number in range(40):  # skimmed, too
                third.send(report("safe", 100 + number, b"in clear", device_type=6)[0])
                assert (await third.hear()).receipt
            await answers_in_clear(running, second)
            assert await third.silent()


def forgeries(number: int, place: int, last: int) -> Iterator[list[Packet]]:
    """What may be sent in the name of the device, while it sends a command of this number."""

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
    """Whatever is forged, and wherever it comes between the three packets of a genuine command."""
    async with gateway(tmp_path, **STRICT) as running:
        port = running.port("apostol")
        async with await kind.call(port) as device, await kind.call(port) as thief:
            expected = []
            numbers = itertools.count()
            for kind_of_forgery, order in itertools.product(range(6), itertools.permutations(range(3))):
                number = next(numbers)
                genuine = sealed(number, b"genuine %d" % number, data_bytes=20)
                last = len(genuine) - 1
                expected.append(f"genuine {number}")
                for step, place in enumerate([*order, *range(3, last + 1)]):
                    forged = list(forgeries(number, order[step % 3], last))[kind_of_forgery]
                    await said(thief, *forged)
                    await said(device, genuine[place])
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
    async with gateway(tmp_path, **SHORT) as running, await kind.call(running.port("apostol")) as device:
        await said(device, *every)
        assert len(await published(running, 5)) == 5
        await said(device, *every)  # a receipt was lost: it is given again, at once
        await asyncio.sleep(0.3)
        async with await kind.call(running.port("apostol")) as thief:
            await said(thief, *every)
        refused = await running.recorded("refuse", 5)
        assert {row["note"]["reason"] for row in refused} == {"replayed"}
        assert running.gateway.counters.errors["apostol", "replayed"] == 5
        await said(device, *sealed(6, b"new", at=now + 1), *sealed(7, b"late", at=now - 200))
        assert len(await published(running, 7)) == 7
    async with gateway(tmp_path, **SHORT) as running, await kind.call(running.port("apostol")) as thief:
        await said(thief, *every, *sealed(8, b"too old to tell", at=now - 400))
        await running.recorded("refuse", 11)
        await said(thief, *sealed(9, b"newer", at=now + 2))
        assert len(await published(running, 8)) == 8


async def test_what_is_known_is_stored_within_a_moment(tmp_path: Path) -> None:
    """As a crash would find it: not only a clean end stores it."""
    async with gateway(tmp_path, **STRICT) as running, await Meter.call(running.port("apostol")) as device:
        assert running.gateway.state.devices.seals("safe") == {}
        await said(device, *sealed(1, b"x"))
        await until(lambda: running.gateway.state.devices.seals("safe"))
        await running.gateway.state.barrier()
        running.gateway.state.devices.remove("safe")
        assert running.gateway.state.devices.seals("safe") == {}, "another key knows nothing of it"
