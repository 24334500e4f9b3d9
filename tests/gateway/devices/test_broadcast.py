"""Broadcasts, type FF without a serial: from devices, and to all of them, byte for byte over real sockets."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.apostol_client import Meter, StreamMeter, report
from gateway.http.calling import BOB, calling
from gateway.running_gateway import HOST, Running, running_gateway, until
from wirelake.clients.esnp import EsnpClient
from wirelake.errors import AnswerError
from wirelake.gateway.devices import broadcast as device_broadcast
from wirelake.gateway.devices.listener import DeviceListener
from wirelake.protocols.apostol.constants import SEALED

BOTH = pytest.mark.parametrize("kind", [Meter, StreamMeter])
METER = ("1234", 6, None)
KEY = bytes(range(16))
ALL = "/api/devices/*/commands"
# The sample of the protocol's document, and its content as a broadcast.
STATUS = "1e 01 03 06 04 31 32 33 34 f0 00 a6 53 0c 5e 01 00 00 00 04 00 00 00 00 02 9c 53 0c 5e 3e c7"
STATUS_RECEIPT = "0c 01 44 06 04 31 32 33 34 f0 00 99 f7"
TO_ALL = "1a 01 03 ff 00 f1 00 a6 53 0c 5e 01 00 00 00 04 00 00 00 00 02 9c 53 0c 5e b4 db"
TO_ALL_RECEIPT = "08 01 44 ff 00 f1 00 16 9a"
FIRST_PART, FIRST_RECEIPT = "10 01 01 ff 00 f2 00 a6 53 0c 5e 02 00 61 62 48 78", "08 01 44 ff 00 f2 00 16 6a"
LAST_PART, LAST_RECEIPT = "0a 01 02 ff 00 f2 01 63 64 c8 30", "08 01 44 ff 00 f2 01 d7 aa"


@asynccontextmanager
async def gateway(folder: Path, *listeners: str, **settings: Any) -> AsyncIterator[Running]:
    settings = {"devices": [METER], **settings}
    async with running_gateway(folder, "apostol", *listeners, **settings) as running:
        yield running


async def exchange(meter: Meter, packet: str) -> str:
    """Send a packet, and return the one that answers it."""
    meter.send(bytes.fromhex(packet))
    return (await meter.receive()).encode().hex(" ")


def published(running: Running) -> list[tuple[str, dict[str, Any]]]:
    return [(row["note"]["topic"], json.loads(row["frame"])) for row in running.records("publish")]


# ── from a device


@BOTH
async def test_a_device_broadcasts(tmp_path: Path, kind: type[Meter]) -> None:
    async with (
        gateway(tmp_path, "esnp", identities=[BOB]) as running,
        await kind.connect(running.port("apostol")) as meter,
        EsnpClient(HOST, running.port("esnp"), *BOB) as follower,
    ):
        await follower.subscribe("@devices/*")
        assert await exchange(meter, STATUS) == STATUS_RECEIPT
        assert await exchange(meter, TO_ALL) == TO_ALL_RECEIPT
        assert await exchange(meter, TO_ALL) == TO_ALL_RECEIPT, "the receipt may have been lost"
        assert await exchange(meter, LAST_PART) == LAST_RECEIPT
        assert await exchange(meter, FIRST_PART) == FIRST_RECEIPT
        status = {"state": 0, "tariff": 4, "configured_at": 0, "time_sync": 2, "synced_at": 1577866140}
        status_report = {"command_type": 1, "error": 0, "device_time": 1577866150, "status": status}
        to_all = {**status_report, "serial": "1234", "broadcast": True}
        notes = [await follower.next_notification(10) for _ in range(2)]
        assert json.loads(notes[0].content) == to_all
        assert [note.topic for note in notes] == ["@devices/*"] * 2
        assert [(topic, summary.get("broadcast")) for topic, summary in published(running)] == [
            ("@devices/1234", None),
            ("@devices/1234", True),
            ("@devices/*", True),
            ("@devices/1234", True),
            ("@devices/*", True),
        ]
        assert published(running)[1][1] == to_all
        rows = running.records("frame", direction="in", protocol="apostol")
        assert [row["identity"] for row in rows] == ["1234"] * 5, "every packet is in the log, with its device"
        assert rows[1]["frame"] == bytes.fromhex(TO_ALL)


@pytest.mark.parametrize("is_open", [False, True])
@BOTH
async def test_a_broadcast_from_where_no_device_was_heard_is_refused(
    tmp_path: Path, kind: type[Meter], is_open: bool
) -> None:
    async with gateway(tmp_path, apostol={"open": is_open}) as running:
        port = running.port("apostol")
        async with await Meter.connect(port) as known, await kind.connect(port) as stranger:
            await exchange(known, STATUS)
            stranger.send(bytes.fromhex(TO_ALL))
            assert await stranger.is_silent()
            assert await exchange(known, TO_ALL) == TO_ALL_RECEIPT
        assert running.gateway.counters.refused["apostol", "unknown_device"] == 1
        (refused,) = running.records("refuse")
        assert (refused["note"], refused["frame"]) == ({"reason": "unknown_device"}, bytes.fromhex(TO_ALL))
        assert [topic for topic, _ in published(running)] == ["@devices/1234"] * 2 + ["@devices/*"]


async def test_a_broadcast_is_that_of_the_device_last_heard_there(tmp_path: Path) -> None:
    async with gateway(tmp_path, devices=[METER, ("m2", 0, None)]) as running:
        port = running.port("apostol")
        async with await StreamMeter.connect(port) as both, await Meter.connect(port) as elsewhere:
            await exchange(both, STATUS)
            await exchange(both, report("m2", 1, b"x")[0].hex())
            await exchange(both, TO_ALL)
            assert [summary["serial"] for topic, summary in published(running) if topic == "@devices/*"] == ["m2"]
            await exchange(elsewhere, report("m2", 2, b"y")[0].hex())
            both.send(bytes.fromhex(FIRST_PART))
            assert await both.is_silent(), "m2 went away from there"
            assert await exchange(both, STATUS) == STATUS_RECEIPT
            assert await exchange(both, FIRST_PART) == FIRST_RECEIPT
        listener = running.gateway.listeners["apostol"]
        assert isinstance(listener, DeviceListener)
        await until(lambda: not listener.streams)
        assert [key for key in running.gateway.devices._by_origin if key[1]] == []
        for peer in list(running.gateway.devices.peers.values()):
            peer.tick(peer.last_received_s + 4000)
        assert running.gateway.devices._by_origin == {}


async def test_where_a_seal_is_required_a_broadcast_needs_one(tmp_path: Path) -> None:
    settings = {"devices": [("safe", 6, KEY)], "apostol": {"require_seal": True}}
    async with gateway(tmp_path, **settings) as running, await Meter.connect(running.port("apostol")) as meter:
        (hello,) = report("safe", 1, b"x", params=SEALED, seal_with=(KEY, bytes(12)))
        await exchange(meter, hello.hex())
        assert await exchange(meter, TO_ALL) == TO_ALL_RECEIPT
        sealed = {"params": SEALED, "device_type": 0xFF}
        for nonce, key in ((1, bytes(16)), (2, KEY)):
            (packet,) = report("", nonce, b"secret", seal_with=(key, bytes([nonce] * 12)), **sealed)
            assert (await exchange(meter, packet.hex()))[:14] == "08 01 44 ff 00"
        assert [topic for topic, _ in published(running)] == ["@devices/safe"] * 2 + ["@devices/*"]
        counts = running.gateway.counters.device_commands
        assert counts == {("refused", "unsealed"): 1, ("refused", "bad_seal"): 1}


# ── to all devices


def packet(body: str) -> bytes:
    """Return a short packet of these bytes, with length and CRC as the protocol's document computes them."""
    raw = bytes.fromhex(body)
    raw = bytes([len(raw) + 2]) + raw
    crc = 0xFFFF
    for byte in raw:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ 0xA001 if crc & 1 else crc >> 1
    return raw + crc.to_bytes(2, "little")


async def known(meter: Meter, serial: str) -> None:
    meter.send(report(serial, 200, b"hello")[0])
    assert (await meter.receive()).receipt


async def receive_command(meter: Meter) -> str:
    """Receive the broadcast command 82 0a 0b, and return its command number in hex."""
    received = await meter.receive()
    number = f"{received.command_no:02x}"
    assert received.encode() == packet(f"01 07 ff 00 {number} 00 82 0a 0b")
    return number


async def test_every_device_is_asked_and_all_answers_come_together(tmp_path: Path) -> None:
    devices = [(serial, 0, None) for serial in ("d1", "d2", "d3", "d4", "away")]
    async with calling(tmp_path, "apostol", identities=[(*BOB, "admin")], devices=devices) as caller:
        port = caller.port("apostol")
        async with (
            await Meter.connect(port) as udp,
            await StreamMeter.connect(port) as tcp,
            await Meter.connect(port) as nameless,
            await Meter.connect(port) as busy,
        ):
            for meter, serial in ((udp, "d1"), (tcp, "d2"), (nameless, "d3"), (busy, "d4")):
                await known(meter, serial)
            body = {"type": 130, "data": "0a0b", "wait_ms": 1500}
            response = asyncio.create_task(caller.call("POST", ALL, body, bearer=":".join(BOB)))

            number = await receive_command(udp)  # a receipt and an answer, both in the device's own name
            udp.send(packet(f"01 40 00 02 64 31 {number} 00"))
            udp.send(packet(f"01 0b 00 02 64 31 {number} 00 01 00 00 00 02 00 0c 0d"))
            assert (await udp.receive()).encode() == packet(f"01 44 00 02 64 31 {number} 00")

            number = await receive_command(tcp)  # an error without a receipt: the answer implies it
            tcp.send(packet(f"01 0b 00 02 64 32 {number} 00 01 00 00 00 02 04"))
            assert (await tcp.receive()).encode() == packet(f"01 44 00 02 64 32 {number} 00")

            number = await receive_command(nameless)  # both without a serial, as the command was addressed
            nameless.send(packet(f"01 40 ff 00 {number} 00"))
            nameless.send(packet(f"01 0b ff 00 {number} 00 01 00 00 00 02 00 0e"))
            assert (await nameless.receive()).encode() == packet(f"01 44 ff 00 {number} 00")

            number = await receive_command(busy)  # a receipt, and no answer
            busy.send(packet(f"01 40 00 02 64 34 {number} 00"))

            summary = (await response).json()
        assert summary == {
            "devices": 5,
            "receipts": 4,
            "answered": 3,
            "omitted": 0,
            "answers": [
                {"serial": "d1", "type": 2, "error": 0, "device_time": 1, "data": "0c0d"},
                {"serial": "d2", "type": 2, "error": 4, "device_time": 1, "error_text": "bad parameters"},
                {"serial": "d3", "type": 2, "error": 0, "device_time": 1, "data": "0e"},
            ],
            "unanswered": [
                {"serial": "away", "receipt": False, "reason": "not heard from"},
                {"serial": "d4", "receipt": True, "reason": "timeout"},
            ],
        }


async def test_a_broadcast_is_sent_again_until_its_receipt_or_its_end(tmp_path: Path) -> None:
    settings = {"receipt_s": 0.1, "resends_max": 2}
    devices = [("deaf", 0, None), ("good", 0, None)]
    async with calling(tmp_path, "apostol", devices=devices, apostol=settings) as caller:
        port = caller.port("apostol")
        async with await Meter.connect(port) as deaf, await Meter.connect(port) as good:
            await known(deaf, "deaf")
            await known(good, "good")
            body = {"type": 130, "data": "0a0b", "wait_ms": 20_000}
            response = asyncio.create_task(caller.call("POST", ALL, body))
            number = await receive_command(good)
            good.send(packet(f"01 40 00 04 67 6f 6f 64 {number} 00"))
            numbers = {await receive_command(deaf) for _ in range(3)}
            assert len(numbers) == 1, "a repeat has the number of the first"
            await until(lambda: caller.gateway.broker.services.open == 1)
            assert await good.is_silent(), "what has a receipt is not sent again"
            good.send(packet(f"01 0b 00 04 67 6f 6f 64 {number} 00 01 00 00 00 02 00"))
            summary = (await response).json()
        assert [each["serial"] for each in summary["answers"]] == ["good"]
        assert summary["unanswered"] == [{"serial": "deaf", "receipt": False, "reason": "no receipt after 2 repeats"}]


async def test_the_service_broadcasts_for_every_protocol(tmp_path: Path) -> None:
    async with (
        gateway(tmp_path, "esnp", identities=[(*BOB, "admin")], devices=[("d1", 0, None)]) as running,
        await Meter.connect(running.port("apostol")) as meter,
        EsnpClient(HOST, running.port("esnp"), *BOB) as client,
    ):
        nobody = await client.ask("devices/command?o=*", {"type": 130})
        assert (nobody["devices"], nobody["answered"]) == (1, 0)
        assert nobody["unanswered"] == [{"serial": "d1", "receipt": False, "reason": "not heard from"}]
        await known(meter, "d1")
        commands: list[tuple[str, dict[str, Any]]] = [
            ("devices/command?o=*", {"type": 130, "data": b"\x0a\x0b"}),
            ("devices/command", {"serial": "*", "type": 130, "data": "0a0b"}),
        ]
        for address, value in commands:
            pending = asyncio.create_task(client.ask(address, value))
            number = await receive_command(meter)
            meter.send(packet(f"01 0b 00 02 64 31 {number} 00 01 00 00 00 02 00 0c"))
            assert (await meter.receive()).receipt
            summary = await pending
            assert [(each["serial"], each["data"]) for each in summary["answers"]] == [("d1", "0c")]
            assert (summary["devices"], summary["receipts"], summary["unanswered"]) == (1, 1, [])
        bad: list[dict[str, Any]] = [{"type": 2}, {"type": 130, "data": "no hex"}, {"type": 130, "colour": 1}]
        for value in bad:
            with pytest.raises(AnswerError):
                await client.ask("devices/command?o=*", value)
        _, hops = await client.trace("devices/command?o=*", {"type": 130, "wait_ms": 1})
        assert [hop.hop for hop in hops] == ["received", "routed to", "answered by"]


async def test_a_device_that_goes_away_is_listed(tmp_path: Path) -> None:
    async with (
        calling(tmp_path, "apostol", devices=[("d1", 0, None)]) as caller,
        await Meter.connect(caller.port("apostol")) as meter,
    ):
        await known(meter, "d1")
        body = {"type": 130, "data": "0a0b", "wait_ms": 20_000}
        response = asyncio.create_task(caller.call("POST", ALL, body))
        await receive_command(meter)
        assert (await caller.call("DELETE", "/api/devices/d1")).status_code == 204
        (lost,) = (await response).json()["unanswered"]
        assert (lost["serial"], lost["receipt"]) == ("d1", False)


async def test_a_device_that_was_not_heard_sealed_is_listed(tmp_path: Path) -> None:
    async with (
        calling(tmp_path, "apostol", devices=[("safe", 0, KEY)], apostol={"require_seal": True}) as caller,
        await Meter.connect(caller.port("apostol")) as meter,
    ):
        await known(meter, "safe")
        (lost,) = (await caller.call("POST", ALL, {"type": 130})).json()["unanswered"]
        assert (lost["serial"], lost["receipt"]) == ("safe", False)
        assert "no sealed packet received" in lost["reason"]


async def test_what_is_collected_has_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    devices = [(f"{prefix}{number}", 0, None) for prefix, count in (("h", 3), ("a", 9)) for number in range(count)]
    async with calling(tmp_path, "apostol", devices=devices) as caller:
        monkeypatch.setattr(device_broadcast, "BROADCAST_ANSWERS_BYTES_MAX", 150)
        monkeypatch.setattr(device_broadcast, "BROADCAST_UNANSWERED_BYTES_MAX", 150)
        async with await StreamMeter.connect(caller.port("apostol")) as meter:
            for serial in ("h0", "h1", "h2"):
                await known(meter, serial)
            body = {"type": 130, "data": "0a0b", "wait_ms": 20_000}
            response = asyncio.create_task(caller.call("POST", ALL, body))
            for digit in ("30", "31", "32"):
                number = await receive_command(meter)
                meter.send(packet(f"01 0b 00 02 68 {digit} {number} 00 01 00 00 00 02 00 0c"))
            summary = (await response).json()
            assert (summary["devices"], summary["receipts"], summary["answered"]) == (12, 3, 3)
            assert (len(summary["answers"]), len(summary["unanswered"]), summary["omitted"]) == (2, 2, 8)

            monkeypatch.setattr(device_broadcast, "BROADCAST_DEVICES_MAX", 2)
            assert "3 are online" in await caller.refused(400, "bad_request", "POST", ALL, body)


async def test_only_so_many_broadcasts_at_once_and_whoever_leaves_makes_room(tmp_path: Path) -> None:
    async with (
        calling(tmp_path, "apostol", "esnp", identities=[(*BOB, "admin")], devices=[("d1", 0, None)]) as caller,
        await Meter.connect(caller.port("apostol")) as meter,
        EsnpClient(HOST, caller.port("esnp"), *BOB) as client,
    ):
        await known(meter, "d1")
        command = {"type": 130, "data": "0a0b", "wait_ms": 30_000}
        waiting = [asyncio.create_task(client.ask("devices/command?o=*", command)) for _ in range(2)]
        for _ in waiting:
            await receive_command(meter)
        await caller.refused(429, "busy", "POST", ALL, {"type": 130})
        await client.close()
        await asyncio.gather(*waiting, return_exceptions=True)
        await until(lambda: caller.gateway.broker.services.open == 0)
        assert (await caller.call("POST", ALL, {"type": 131, "wait_ms": 1})).status_code == 200


async def test_no_device_is_called_star(tmp_path: Path) -> None:
    async with calling(tmp_path, "apostol", apostol={"open": True}) as caller:
        assert "'*'" in await caller.refused(400, "bad_request", "POST", "/api/devices", {"serial": "*"})
        async with await Meter.connect(caller.port("apostol")) as meter:
            meter.send(report("*", 1, b"x")[0])
            assert await meter.is_silent()
        assert caller.gateway.counters.refused["apostol", "unknown_device"] == 1
