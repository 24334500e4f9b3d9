import asyncio
import datetime
import ipaddress
import signal
import socket
import ssl
from pathlib import Path

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from gateway.http.calling import calling
from gateway.running_gateway import HOST, running_gateway
from wirelake.address import Address
from wirelake.errors import InputError
from wirelake.gateway.http.listener import bind_socket


async def test_port_0_is_a_port_of_its_own_and_is_told(tmp_path: Path) -> None:
    async with calling(tmp_path) as caller:
        listener = caller.gateway.listeners["http"]
        assert listener.address.port > 0
        assert listener.is_open
        response = await caller.call("GET", "/healthz")
        assert "server" not in response.headers
        assert "date" in response.headers


def test_a_response_in_parts_does_not_wait_for_acknowledgements() -> None:
    with bind_socket(Address(HOST, 0)) as listening, socket.create_connection(listening.getsockname()):
        listening.setblocking(True)
        with listening.accept()[0] as accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


async def test_a_port_in_use_is_told_in_a_sentence(tmp_path: Path) -> None:
    async with calling(tmp_path) as caller:
        port = caller.port("http")
        with pytest.raises(InputError, match=rf"listen.http: cannot listen on 127.0.0.1:{port}"):
            async with running_gateway(tmp_path / "other", "http", ports={"http": port}):
                pass


async def test_it_can_be_opened_again_at_once(tmp_path: Path) -> None:
    async with calling(tmp_path) as caller:
        port = caller.port("http")
        await caller.call("GET", "/healthz")
        await caller.gateway.close()
        async with running_gateway(tmp_path, "http", ports={"http": port}), httpx.AsyncClient() as client:
            assert (await client.get(f"http://{HOST}:{port}/healthz")).status_code == 200


async def test_it_leaves_signals_alone(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    async with calling(tmp_path):
        # asyncio.run has a handler of its own for SIGINT, which is not uvicorn's.
        assert signal.getsignal(signal.SIGTERM) is before[0]
        assert "uvicorn" not in repr(signal.getsignal(signal.SIGINT))
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before


async def test_closing_waits_for_requests_under_way_and_no_longer(tmp_path: Path) -> None:
    ids: list[str] = []
    async with calling(tmp_path) as caller:
        path = "/api/topics/%40a/notifications"
        calls = [asyncio.create_task(caller.call("POST", path, {"content": str(n)})) for n in range(20)]
        await asyncio.sleep(0)
        while caller.http.limiter.open.running == 0:
            await asyncio.sleep(0)
        _, idle = await asyncio.open_connection(HOST, caller.port("http"))
        await caller.gateway.close()
        answers = await asyncio.gather(*calls, return_exceptions=True)
        kept = [answer for answer in answers if isinstance(answer, httpx.Response) and answer.status_code == 201]
        assert kept
        assert not caller.gateway.listeners["http"].is_open
        idle.close()
        ids.extend(answer.json()["id"] for answer in kept)
    async with running_gateway(tmp_path) as running:
        assert all(running.gateway.state.topics.find(id_) is not None for id_ in ids)


async def test_tls(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    trust = ssl.create_default_context(cafile=str(cert))
    async with calling(tmp_path, trust=trust, tls={"cert": str(cert), "key": str(key)}) as caller:
        assert (await caller.call("GET", "/api/sessions")).status_code == 200
        with pytest.raises(httpx.HTTPError):
            await caller.client.get(f"http://{HOST}:{caller.port('http')}/healthz")


def certificate(folder: Path) -> tuple[Path, Path]:
    """Write a self-signed certificate for 127.0.0.1, and its key."""
    private = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, HOST)])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(private.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(HOST))]), critical=False)
        .sign(private, hashes.SHA256())
    )
    cert, key = folder / "cert.pem", folder / "key.pem"
    cert.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    key.write_bytes(
        private.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    return cert, key
