"""The clients over TLS, with a certificate of the test's own."""

import ssl
from pathlib import Path

import pytest
from gateway.certificates import make_certificate
from gateway.running_gateway import HOST, running_gateway

from wirelake.backoff import Backoff
from wirelake.clients.apostol import ApostolDevice
from wirelake.clients.client import ClientOptions
from wirelake.clients.comet import CometClient
from wirelake.clients.esnp import EsnpClient
from wirelake.clients.magline import MaglineClient
from wirelake.clients.sisnet import SisnetClient
from wirelake.errors import LateError


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return make_certificate(tmp_path_factory.mktemp("tls"), HOST)


async def test_they_speak_tls(tmp_path: Path, certificate: tuple[Path, Path]) -> None:
    cert, key = map(str, certificate)
    trusting = ClientOptions(tls=ssl.create_default_context(cafile=cert))
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
        phone = CometClient(HOST, ports[0], "phone", "secret", options=trusting)
        meter = ApostolDevice(HOST, ports[1], "m1", transport="tcp", options=trusting)
        async with phone, meter:
            await phone.subscribe("@devices/m1")
            await meter.status(1)
            assert b'"state":1' in (await phone.next_notification(10)).content
        for scheme, listener in (("wss", "sisnet"), ("tls", "sisnet_tcp")):
            url = f"{scheme}://{HOST}:{running.port(listener)}"
            async with SisnetClient(url, "phone", "secret", options=trusting) as terminal:
                await terminal.ping()
        box = MaglineClient(HOST, running.port("magline"), "phone", "secret", options=trusting)
        station = EsnpClient(HOST, running.port("esnp"), "phone", "secret", options=trusting)
        async with box, station:
            await box.ping()
            await station.ping()
        for tls, trouble in ((ssl.create_default_context(), "certificate verify failed"), (None, "closed")):
            options = ClientOptions(tls=tls, connect_s=0.3, backoff=Backoff(first_s=0.01))
            wrong = CometClient(HOST, ports[0], "phone", "secret", options=options)
            with pytest.raises(LateError, match=trouble):
                await wrong.open()
