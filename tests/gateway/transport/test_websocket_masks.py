"""WebSocket clients without Host header and masks, such as the one of the protocol's authors."""

import asyncio
import base64
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.frames import Frame, Opcode
from websockets.utils import accept_key

from gateway.running_gateway import HOST, WAIT_S, running_gateway
from gateway.sisnet_client import UNMASKED_HANDSHAKE, UNMASKED_KEY
from wirelake.gateway.transport.websocket import FrameMasker

LOGIN = b'in:{"command":"login","ask":{"name":"terminal","password":"t0ken"}}'
HANDSHAKE = (
    b"GET / HTTP/1.1\r\n%sUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: " + base64.b64encode(bytes(16)) + b"\r\n\r\n"
)
NO_HOST = HANDSHAKE % b""
WITH_HOST = HANDSHAKE % b"Host: gateway\r\n"


def frame(data: bytes, *, mask: bool = False) -> bytes:
    return Frame(Opcode.TEXT, data).serialize(mask=mask)


async def until(reader: asyncio.StreamReader, end: bytes) -> bytes:
    async with asyncio.timeout(WAIT_S):
        return await reader.readuntil(end)


async def test_such_a_client_is_served_where_the_setting_says_so(tmp_path: Path) -> None:
    long = b'p:{"service":"wirelake","command":"ping","lnk":"%s"}' % (b"x" * 70_000)
    async with running_gateway(
        tmp_path, "sisnet", identities=[("terminal", "t0ken")], sisnet={"lenient": True}
    ) as running:
        reader, writer = await asyncio.open_connection(HOST, running.port("sisnet"), limit=2**20)
        writer.write(NO_HOST + frame(LOGIN))
        assert (await until(reader, b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
        assert (await until(reader, b"}")).endswith(b'in:{"ans":0}')
        for data in (frame(LOGIN.replace(b"in:", b"i2:")), frame(long), frame(b'm:{"command":"ping"}', mask=True)):
            writer.write(data)
        assert (await until(reader, b"}")).endswith(b'"already logged in"}')
        assert b'p:{"ans":0' in await until(reader, b"}")
        assert (await until(reader, b"}")).endswith(b'm:{"ans":0}')
        writer.close()


@pytest.mark.parametrize("hosts", [b"", b"Host: a\r\nHost: b\r\n"])
async def test_without_the_setting_no_host_is_refused(tmp_path: Path, hosts: bytes) -> None:
    async with running_gateway(tmp_path, "sisnet") as running:
        reader, writer = await asyncio.open_connection(HOST, running.port("sisnet"))
        writer.write(HANDSHAKE % hosts)
        async with asyncio.timeout(WAIT_S):
            assert (await reader.read(-1)).startswith(b"HTTP/1.1 400 ")
        writer.close()


async def test_without_the_setting_unmasked_frames_are_refused(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, "sisnet", identities=[("terminal", "t0ken")]) as running:
        reader, writer = await asyncio.open_connection(HOST, running.port("sisnet"))
        writer.write(WITH_HOST)
        assert (await until(reader, b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
        writer.write(frame(LOGIN))
        async with asyncio.timeout(WAIT_S):
            received = await reader.read(-1)
        writer.close()
        assert received[0] == 0x88, "a close frame"
        assert int.from_bytes(received[2:4]) == 1002
        assert running.gateway.counters.frames_in["sisnet"] == 0


async def test_the_authors_clients_conversation(tmp_path: Path) -> None:
    """Use no Host, a key of 24 letters and digits, no masks, fragmented messages, and service with cmd and ask."""
    long = b'5:{"service":"sisdb","cmd":"set","ask":{"key":"k","sdb":"t","data":{"time":2,"s":"%s"}}}' % (b"x" * 40_000)
    pieces = [long[at : at + 16_000] for at in range(0, len(long), 16_000)]
    exchanges = {
        b'1:{"cmd":"login","ask":{"username":"terminal","password":"t0ken"}}': b'1:{"ans":0}',
        b'2:{"service":"sisdb","cmd":"create","ask":{"sdb":"t","fields":{"time":["U",4],"s":["C",50000]}}}': (
            b'2:{"ans":0}'
        ),
        b'3:{"service":"sisdb","cmd":"set","ask":{"key":"k","sdb":"t","data":{"time":1,"s":"a"}}}': b'3:{"ans":0}',
        b'4:{"service":"sisdb","cmd":"get","ask":{"key":"k","sdb":"t"}}': b'4:{"ans":4,"msg":[[1,"a"]]}',
    }
    async with running_gateway(
        tmp_path, "sisnet", identities=[("terminal", "t0ken")], sisnet={"lenient": True}
    ) as running:
        reader, writer = await asyncio.open_connection(HOST, running.port("sisnet"))
        writer.write(UNMASKED_HANDSHAKE)
        accepted = await until(reader, b"\r\n\r\n")
        assert accepted.startswith(b"HTTP/1.1 101 ")
        assert b"\r\nSec-WebSocket-Accept: " + accept_key(UNMASKED_KEY.decode()).encode() + b"\r\n" in accepted
        for request, answer in exchanges.items():
            writer.write(frame(request))
            assert await until(reader, answer) == frame(answer)
        for place, piece in enumerate(pieces):
            opcode = Opcode.CONT if place else Opcode.TEXT
            writer.write(Frame(opcode, piece, fin=place == len(pieces) - 1).serialize(mask=False))
        assert await until(reader, b"}") == frame(b'5:{"ans":0}')
        writer.close()


@pytest.mark.parametrize(
    ("lenient", "key"), [(False, UNMASKED_KEY), (True, UNMASKED_KEY[1:]), (True, UNMASKED_KEY + b"x"), (True, b"")]
)
async def test_other_keys_are_refused(tmp_path: Path, lenient: bool, key: bytes) -> None:
    async with running_gateway(tmp_path, "sisnet", sisnet={"lenient": lenient}) as running:
        reader, writer = await asyncio.open_connection(HOST, running.port("sisnet"))
        writer.write(
            UNMASKED_HANDSHAKE.replace(b"Upgrade: w", b"Host: gateway\r\nUpgrade: w").replace(UNMASKED_KEY, key)
        )
        async with asyncio.timeout(WAIT_S):
            refused = await reader.read(-1)
        assert refused.startswith(b"HTTP/1.1 400 ")
        assert b"Sec-WebSocket-Key" in refused
        writer.close()


@given(
    st.lists(st.tuples(st.binary(max_size=300), st.booleans()), max_size=5),
    st.lists(st.integers(0, 2000), max_size=8),
)
def test_any_split_gives_the_same_frames_masked(sent: list[tuple[bytes, bool]], cuts: list[int]) -> None:
    wire, expected = WITH_HOST, WITH_HOST
    for data, masked in sent:
        plain = frame(data)
        if masked:
            whole = frame(data, mask=True)
            wire, expected = wire + whole, expected + whole
        else:
            wire += plain
            head = len(plain) - len(data)
            expected += plain[:1] + bytes((plain[1] | 0x80,)) + plain[2:head] + bytes(4) + data
    masker = FrameMasker()
    places = sorted({0, len(wire), *(cut for cut in cuts if cut < len(wire))})
    read = b"".join(masker.receive(wire[start:end]) for start, end in pairwise(places))
    assert read == expected
