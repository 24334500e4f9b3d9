from pathlib import Path

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus
from websockets.typing import Origin

from gateway.running_gateway import HOST, running_gateway
from wirelake.gateway.transport.origins import is_origin_allowed

WEBSOCKET = "127.0.0.1:7329"


@pytest.mark.parametrize(
    ("origin", "host", "allowed"),
    [
        ("http://127.0.0.1:7080", WEBSOCKET, True),
        ("http://127.0.0.1:7329", WEBSOCKET, True),
        ("http://127.0.0.1:8000", WEBSOCKET, False),
        ("http://localhost:7080", WEBSOCKET, False),
        ("http://localhost:7080", "localhost:7329", True),
        ("http://LocalHost:7080", "localhost:7329", True),
        ("https://127.0.0.1:7080", WEBSOCKET, False),
        ("http://[::1]:7080", "[::1]:7329", True),
        ("https://gateway.example", "gateway.example", True),
        ("http://gateway.example", "gateway.example:7329", False),
        ("http://evil.example", WEBSOCKET, False),
        ("http://evil.example:7080", WEBSOCKET, False),
        ("null", WEBSOCKET, False),
        ("", WEBSOCKET, False),
        ("http://127.0.0.1:port", WEBSOCKET, False),
        ("http://[::1", WEBSOCKET, False),
        ("http://127.0.0.1:7080", "", False),
        ("file://127.0.0.1:7080", WEBSOCKET, False),
    ],
)
def test_own_pages_and_no_others(origin: str, host: str, allowed: bool) -> None:
    assert is_origin_allowed(origin, host, 7080, secure=False) is allowed


def test_with_tls_our_pages_come_by_https() -> None:
    assert is_origin_allowed("https://h:7080", "h:7329", 7080, secure=True)
    assert not is_origin_allowed("http://h:7080", "h:7329", 7080, secure=True)


def test_listed_ones() -> None:
    listed = ("https://desk.example/", "http://Other.example:8080")
    assert is_origin_allowed("https://desk.example", WEBSOCKET, None, secure=False, listed=listed)
    assert is_origin_allowed("http://other.example:8080", WEBSOCKET, None, secure=False, listed=listed)
    assert not is_origin_allowed("http://desk.example", WEBSOCKET, None, secure=False, listed=listed)
    assert is_origin_allowed("null", WEBSOCKET, None, secure=False, listed=("*",))


def test_where_nobody_needs_a_token_a_name_proves_nothing() -> None:
    """Refuse other names: their owner can point them to this address, so that origin and host are equal."""
    for host, allowed in (("127.0.0.1", True), ("localhost", True), ("[::1]", True), ("rebound.example", False)):
        assert is_origin_allowed(f"http://{host}:7080", f"{host}:7329", 7080, secure=False, open_to_all=True) is allowed


async def test_the_gateway_asks_for_it(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, "sisnet", "http", sisnet={"origins": ["https://desk.example"]}) as running:
        url = f"ws://{HOST}:{running.port('sisnet')}"
        own = f"http://{HOST}:{running.port('http')}"
        for origin in (None, Origin(own), Origin("https://desk.example")):
            async with connect(url, origin=origin):
                pass
        with pytest.raises(InvalidStatus) as caught:
            await connect(url, origin=Origin("https://evil.example"))
        assert caught.value.response.status_code == 403
        assert b"sisnet.origins" in (caught.value.response.body or b"")
