"""The clients over TLS, with a certificate of the test's own."""

import asyncio
import ssl
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from gateway.running import HOST, running_gateway

from wirelake.backoff import Backoff
from wirelake.clients.apostol import ApostolDevice
from wirelake.clients.comet import CometClient
from wirelake.clients.esnp import EsnpClient
from wirelake.clients.magline import MaglineClient
from wirelake.clients.sisnet import SisnetClient
from wirelake.errors import LateError


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "gateway")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address(HOST))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    folder = tmp_path_factory.mktemp("tls")
    (folder / "cert.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    (folder / "key.pem").write_bytes(key.private_bytes(encoding, form, serialization.NoEncryption()))
    return folder / "cert.pem", folder / "key.pem"


def test_they_speak_tls(tmp_path: Path, certificate: tuple[Path, Path]) -> None:
    async def work() -> None:
        cert, key = map(str, certificate)
        trusting = ssl.create_default_context(cafile=cert)
        async with running_gateway(
            tmp_path,
            "comet",
            "apostol",
            "sisnet",
            "sisnet_tcp",
            "magline",
            "esnp",
            identities=[("phone", "secret")],
            devices=[("m1", 0, None)],
            tls={"cert": cert, "key": key},
        ) as running:
            ports = running.port("comet"), running.port("apostol")
            phone = CometClient(HOST, ports[0], "phone", "secret", tls=trusting)
            meter = ApostolDevice(HOST, ports[1], "m1", transport="tcp", tls=trusting)
            async with phone, meter:
                await phone.subscribe("@devices/m1")
                await meter.status(1)
                assert b'"state":1' in (await phone.next_notification(10)).content
            for scheme, door in (("wss", "sisnet"), ("tls", "sisnet_tcp")):
                url = f"{scheme}://{HOST}:{running.port(door)}"
                async with SisnetClient(url, "phone", "secret", tls=trusting) as terminal:
                    await terminal.ping()
            box = MaglineClient(HOST, running.port("magline"), "phone", "secret", tls=trusting)
            station = EsnpClient(HOST, running.port("esnp"), "phone", "secret", tls=trusting)
            async with box, station:
                await box.ping()
                await station.ping()
            for tls, trouble in ((ssl.create_default_context(), "certificate verify failed"), (None, "closed")):
                wrong = CometClient(
                    HOST, ports[0], "phone", "secret", tls=tls, connect_s=0.3, backoff=Backoff(first_s=0.01)
                )
                with pytest.raises(LateError, match=trouble):
                    await wrong.open()

    asyncio.run(work())
