"""Options shared by all clients, and the forms of earlier releases that still work and warn."""

import asyncio
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from gateway.running_gateway import HOST, running_gateway

from wirelake.backoff import Backoff
from wirelake.clients import serving
from wirelake.clients.apostol import ApostolDevice
from wirelake.clients.client import ClientOptions, StreamClient, TopicClient
from wirelake.clients.comet import CometClient
from wirelake.clients.esnp import EsnpClient
from wirelake.clients.magline import MaglineClient
from wirelake.clients.notification import AckTracker
from wirelake.clients.sisnet import SisnetClient
from wirelake.errors import LateError
from wirelake.protocols.comet.protocol import PROTOCOL

NOWHERE = (HOST, 1)
CLIENTS: dict[str, Callable[..., Any]] = {
    "comet": lambda **options: CometClient(*NOWHERE, "phone", "secret", **options),
    "magline": lambda **options: MaglineClient(*NOWHERE, "box", "secret", **options),
    "esnp": lambda **options: EsnpClient(*NOWHERE, "station", "secret", **options),
    "sisnet": lambda **options: SisnetClient(f"tcp://{HOST}:1", "terminal", "secret", **options),
    "apostol": lambda **options: ApostolDevice(*NOWHERE, "m1", transport="tcp", **options),
}
every_client = pytest.mark.parametrize("protocol", CLIENTS)


def test_options_do_not_change() -> None:
    with pytest.raises(AttributeError):
        ClientOptions().answer_s = 1.0  # type: ignore[misc]


def test_clients_with_the_same_options_have_pauses_of_their_own() -> None:
    options = ClientOptions(backoff=Backoff(lambda: 1.0, first_s=1.0, max_s=8.0))
    first, second = options.new_backoff(), options.new_backoff()
    assert [first.next_s() for _ in range(3)] == [1.0, 2.0, 4.0]
    assert second.next_s() == 1.0


@every_client
async def test_keyword_arguments_of_the_last_release_still_work_and_warn(protocol: str) -> None:
    with pytest.warns(DeprecationWarning, match=r"options=ClientOptions\(connect_s=…, backoff=…\)") as warned:
        client = CLIENTS[protocol](connect_s=0.05, backoff=Backoff(first_s=0.01))
    assert [Path(warning.filename).name for warning in warned] == [Path(__file__).name], "the caller's line"
    with pytest.raises(LateError, match=r"not connected within 0.05 s"):
        await client.open()


@every_client
async def test_an_unknown_keyword_argument_is_an_error(protocol: str) -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'answers'"):
        CLIENTS[protocol](answers=1)


async def test_each_keyword_argument_reaches_the_client(tmp_path: Path) -> None:
    drawn: list[int] = []

    def random(count: int) -> bytes:
        drawn.append(count)
        return bytes(range(count))

    async with running_gateway(tmp_path, "comet", identities=[("phone", "secret")]) as running:
        with pytest.warns(DeprecationWarning, match="tls=…, answer_s=…"):
            client = CometClient(
                HOST,
                running.port("comet"),
                "phone",
                "secret",
                secret_bytes=16,
                tls=None,
                answer_s=0.05,
                connect_s=None,
                inbox_max=4,
                backoff=None,
                clock=asyncio.get_running_loop().time,
                random=random,
            )
        async with client:
            assert drawn
            running.gateway.broker.handle = lambda *_: None  # type: ignore[method-assign]
            with pytest.raises(LateError, match=r"no answer within 0.05 s"):
                await client.topics()


async def test_a_client_for_another_protocol_may_pass_them_on() -> None:
    class OwnClient(StreamClient):
        protocol = PROTOCOL

        def __init__(self) -> None:
            super().__init__(*NOWHERE, connect_s=0.05, backoff=Backoff(first_s=0.01))

    with pytest.warns(DeprecationWarning, match="ClientOptions"):
        client = OwnClient()
    with pytest.raises(LateError, match=r"not connected within 0.05 s"):
        await client.open()


@pytest.mark.parametrize(
    ("module", "name", "found"),
    [
        ("stream", "StreamClient", StreamClient),
        ("topics", "TopicClient", TopicClient),
        ("service", "ServiceClient", serving.ServiceClient),
        ("acks", "Acks", AckTracker),
    ],
)
def test_modules_of_the_last_release_can_be_imported_and_warn(module: str, name: str, found: type) -> None:
    sys.modules.pop(f"wirelake.clients.{module}", None)
    with pytest.warns(DeprecationWarning, match="import .* from wirelake.clients"):
        former = import_module(f"wirelake.clients.{module}")
    assert issubclass(getattr(former, name), found)


def test_the_warning_names_the_line_that_imports() -> None:
    program = "import warnings; warnings.simplefilter('default')\nfrom wirelake.clients.stream import StreamClient"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "<string>:2: DeprecationWarning: import StreamClient from wirelake.clients.client" in ran.stderr


def test_packets_have_another_name_now() -> None:
    with pytest.warns(DeprecationWarning, match="AnswerPackets"):
        assert serving.Packets is serving.AnswerPackets  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        serving.Nothing  # type: ignore[attr-defined]  # noqa: B018
