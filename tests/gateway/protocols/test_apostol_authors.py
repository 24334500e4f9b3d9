"""Packets that the authors' software sends beyond its document, byte for byte over real sockets."""

import asyncio
import json
import socket
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest

from gateway.running_gateway import HOST, WAIT_S, Running, running_gateway

SAMPLE = "1e010306 04 31323334 f000 a6530c5e 01 00 0000 04 00000000 02 9c530c5e 3ec7"
METER = ("1234", 6, None)
DATA = bytes(range(130))


def with_crc(raw: bytes) -> bytes:
    """Append the CRC as the protocol's document computes it."""
    crc = 0xFFFF
    for byte in raw:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ 0xA001 if crc & 1 else crc >> 1
    return raw + crc.to_bytes(2, "little")


class Device:
    """Send and receive whole datagrams, or bytes of a stream."""

    def __init__(self, kind: socket.SocketKind, port: int) -> None:
        self._socket = socket.socket(socket.AF_INET, kind)
        self._socket.connect((HOST, port))
        self._socket.settimeout(WAIT_S)

    async def send(self, raw: bytes) -> None:
        await asyncio.to_thread(self._socket.sendall, raw)

    async def receive(self) -> bytes:
        return await asyncio.to_thread(self._socket.recv, 4096)

    async def ask(self, raw: bytes) -> bytes:
        await self.send(raw)
        return await self.receive()

    def close(self) -> None:
        self._socket.close()


async def published(running: Running, count: int) -> list[dict[str, Any]]:
    return [json.loads(row["frame"]) for row in await running.recorded("publish", count)]


@pytest.mark.parametrize("kind", [socket.SOCK_DGRAM, socket.SOCK_STREAM], ids=["udp", "tcp"])
async def test_a_conversation_as_the_authors_software_conducts_it(tmp_path: Path, kind: socket.SocketKind) -> None:
    async with running_gateway(tmp_path, "apostol", devices=[METER]) as running:
        device = Device(kind, running.port("apostol"))
        # The sample of the document: a device type that its list does not have.
        assert await device.ask(bytes.fromhex(SAMPLE)) == with_crc(bytes.fromhex("0c014406 04 31323334 f000"))

        # Readings of 3, 6 and 8 bytes.
        readings = "03 01 03 010203 02 06 010203040506 03 08 000000000000f83f"
        body = bytes.fromhex(f"01030604 31323334 f100 a6530c5e 04 00 {readings}")
        receipt = await device.ask(with_crc(bytes([len(body) + 2]) + body))
        assert receipt == with_crc(bytes.fromhex("0c014406 04 31323334 f100"))

        # 148 bytes behind the length: 0x80 | 0x14, then 1.
        long = bytes.fromhex("9401 01030604 31323334 f200 a6530c5e 02 00") + DATA
        receipt = await device.ask(with_crc(long))
        assert receipt == with_crc(bytes.fromhex("0c014406 04 31323334 f200"))

        _, measured, transparent = await published(running, 3)
        values = [(each["type"], each["size"], each["value"]) for each in measured["readings"]]
        assert values == [(1, 3, 0x030201), (2, 6, 0x060504030201), (3, 8, 1.5)]
        assert b64decode(transparent["data"]) == DATA

        # To the device: 143 bytes behind the length, in the same form.
        response = asyncio.create_task(running.command("1234", 0x82, DATA))
        request = await device.receive()
        number = request[10:11]
        assert request == with_crc(bytes.fromhex("8f01 01070604 31323334") + number + b"\0\x82" + DATA)
        await device.send(with_crc(bytes.fromhex("0c014006 04 31323334") + number + b"\0"))
        body = bytes.fromhex("010b0604 31323334") + number + bytes.fromhex("00 a6530c5e 02 00 0c0d")
        await device.send(with_crc(bytes([len(body) + 2]) + body))
        assert (await response).payload == b"\x0c\x0d"
        device.close()
