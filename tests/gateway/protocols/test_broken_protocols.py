"""An installed protocol that fails is disabled, and nothing else is affected."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

from gateway.comet_client import Phone
from gateway.http.calling import calling
from gateway.installed_protocol import example, installed_protocols
from gateway.protocols.broken_protocols import LEFT_OUT, POINTS, PROTOCOLS
from gateway.running_gateway import HOST, WAIT_S, Running, running_gateway, until
from wirelake.cli.main import wirelake
from wirelake.config import Settings
from wirelake.errors import InputError
from wirelake.log.interface import SCHEMA
from wirelake.pipeline.ingest.decode import decode_batch
from wirelake.protocols import registry
from wirelake.protocols.comet import frames as comet
from wirelake.protocols.frame import Sender
from wirelake.protocols.settings import SECTIONS

pager = example("pager")
ANN, BOB = ("ann", "t-ann"), ("bob", "t-bob")
LOGIN = pager.Login(number=1, identity=ANN[0], token=ANN[1])
FRAME = LOGIN.encode().hex()
RAISED = "raised ValueError: of somebody else's"


@pytest.fixture(autouse=True)
def _installed() -> Iterator[None]:
    with installed_protocols({**POINTS, "pager": "pager:PROTOCOL"}):
        yield


def cli(*words: str) -> Result:
    return CliRunner().invoke(wirelake, list(words), catch_exceptions=False)


def test_the_names_of_sections_are_known_below_the_settings() -> None:
    assert set(Settings.__struct_fields__) == SECTIONS


def test_doctor_says_of_each_what_is_wrong(tmp_path: Path) -> None:
    result = cli("doctor", "--data", str(tmp_path / "data"))
    assert result.exit_code == 1
    lines = result.output.splitlines()

    def line_about(name: str) -> str:
        (line,) = [line for line in lines if f"The protocol {name} " in line]
        return line

    assert "is disabled: entry point gateway.not_there:PROTOCOL cannot be loaded: ModuleNotFoundError" in line_about(
        "bad_import"
    )
    for name, (_, reason) in LEFT_OUT.items():
        assert reason in line_about(name)
    for name, what in {
        "bad_decode": "fail",
        "bad_dissect": "fail",
        "bad_clues": "clues",
        "bad_split": "splitter",
        "bad_ends": "BadSplitter",
        "bad_made": "server_session",
        "bad_tick": "tick",
    }.items():
        assert f"{what} " in line_about(name)
        assert RAISED in line_about(name)
    assert not any("The protocol pager " in line for line in lines)
    assert "Traceback" not in result.output


def test_the_command_line_goes_on() -> None:
    guesses = json.loads(cli("identify", "--json", FRAME).stdout)
    assert "pager" in {guess["protocol"] for guess in guesses}
    assert not {"bad_decode", "bad_split", "bad_ends"} & {guess["protocol"] for guess in guesses}
    assert cli("decode", "comet", "000106").exit_code == 0
    for name in ("bad_dissect", "bad_split", "bad_ends"):
        result = cli("decode", name, "--json", FRAME)
        assert result.exit_code == 1
        found = json.loads(result.stdout)["error"]
        assert (found["code"], RAISED in found["message"]) == ("codec_fault", True)
    with pytest.raises(InputError, match=r"gateway\.not_there:PROTOCOL cannot be loaded"):
        cli("decode", "bad_import", FRAME)
    assert cli("config").exit_code == 0


async def test_pages_and_the_api_go_on(tmp_path: Path) -> None:
    async with calling(tmp_path) as caller:
        for name in PROTOCOLS:
            answer = await caller.call("POST", "/api/decode", {"protocol": name, "hex": FRAME})
            assert answer.status_code == 200, (name, answer.text)
        faults = (await caller.call("POST", "/api/decode", {"protocol": "bad_dissect", "hex": FRAME})).json()
        assert faults["error"]["code"] == "codec_fault"
        answer = await caller.call("POST", "/api/decode", {"protocol": "bad_import", "hex": FRAME})
        assert answer.status_code == 400
        assert "not_there" in answer.json()["error"]["message"]
        guesses = (await caller.call("POST", "/api/identify", {"hex": FRAME})).json()["guesses"]
        assert "pager" in {guess["protocol"] for guess in guesses}
        for page in ("/metrics", "/api/openapi.json", "/api/sessions"):
            assert (await caller.call("GET", page)).status_code == 200
        same_site = {"sec-fetch-site": "same-origin"}
        entered = await caller.client.post("/login", data={"token": caller.admin_token}, headers=same_site)
        cookie = {"cookie": entered.headers["set-cookie"].partition(";")[0]}
        for page in ("/inspector", "/sessions", "/trace"):
            answer = await caller.client.get(page, headers=cookie)
            assert answer.status_code == 200, (page, answer.text)
        assert "bad_decode" in (await caller.client.get("/inspector", headers=cookie)).text


class Socket:
    """Send and receive pager frames over TCP."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    @asynccontextmanager
    async def open(cls, running: Running, setting: str) -> AsyncIterator[Self]:
        reader, writer = await asyncio.open_connection(HOST, running.port(setting))
        try:
            yield cls(reader, writer)
        finally:
            writer.close()

    def send(self, frame: Any) -> None:
        self._writer.write(frame.encode())

    async def receive(self) -> Any:
        """Return the next frame, or None if the gateway closed the connection."""
        async with asyncio.timeout(WAIT_S):
            try:
                head = await self._reader.readexactly(8)
            except (asyncio.IncompleteReadError, ConnectionError):
                return None
            return pager.FRAMES.decode(head + await self._reader.readexactly(int.from_bytes(head[6:])), Sender.SERVER)

    async def closed(self) -> bool:
        while await self.receive() is not None:
            pass
        return True


@pytest.mark.parametrize("name", ["bad_decode", "bad_split", "bad_ends", "bad_made", "bad_receive", "bad_tick"])
async def test_what_raises_for_a_frame_closes_its_own_connection(
    tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    settings: dict[str, Any] = {name: {"login_s": 0.05}} if name == "bad_tick" else {}
    async with (
        running_gateway(tmp_path, name, "comet", "pager", identities=[ANN, BOB], **settings) as running,
        await Phone.connect(running.port("comet"), *BOB) as phone,
        Socket.open(running, name) as broken,
    ):
        if name != "bad_tick":
            broken.send(LOGIN)
        assert await broken.closed()
        (row,) = await running.recorded("close", protocol=name)
        session = name in {"bad_made", "bad_receive", "bad_tick"}
        assert row["note"]["reason"] == ("session_fault" if session else "codec_fault")
        assert RAISED in row["note"]["text"]
        assert running.gateway.counters.closed[name, row["note"]["reason"]] == 1
        assert running.gateway.admission.open == 1
        assert isinstance(await phone.ask(comet.Heartbeat()), comet.Ok)
        async with Socket.open(running, "pager") as good:
            good.send(LOGIN)
            assert await good.receive() == pager.Reply(number=1)
        if session:
            assert any(RAISED in record.message for record in caplog.records if record.levelno == logging.ERROR)


@pytest.mark.parametrize("name", ["bad_send", "bad_ask"])
@pytest.mark.parametrize("topic", ["@news", "news"])
async def test_a_subscriber_that_raises_keeps_nothing_from_the_others(tmp_path: Path, name: str, topic: str) -> None:
    async with (
        running_gateway(tmp_path, name, "pager", identities=[ANN, BOB]) as running,
        Socket.open(running, name) as broken,
        Socket.open(running, "pager") as good,
    ):
        broken.send(LOGIN)
        await broken.receive()
        good.send(pager.Login(number=1, identity=BOB[0], token=BOB[1]))
        await good.receive()
        for each in (broken, good):
            each.send(pager.Subscribe(number=2, topic=topic))
        assert await good.receive() == pager.Reply(number=2)
        await until(lambda: running.gateway.counters.frames_in[name] == 2)
        await running.publish(topic, b"one")
        assert (await good.receive()).content == b"one"
        broken.send(pager.Ping(number=3))
        assert await broken.closed()
        await running.publish(topic, b"two")
        assert (await good.receive()).content == b"two"
        (row,) = await running.recorded("close", protocol=name)
        assert row["note"]["reason"] == "session_fault"
        assert RAISED in row["note"]["text"]
        good.send(pager.Ping(number=4))
        assert await good.receive() == pager.Reply(number=4)


def test_the_pipeline_goes_on() -> None:
    frame = LOGIN.encode()
    protocols = ("bad_decode", "bad_import", "bad_message", "pager")
    rows = [
        {**dict.fromkeys(SCHEMA.names, ""), "seq": place, "at": 0, "protocol": name, "event": "frame"}
        | {"direction": "in", "frame": frame}
        for place, name in enumerate(protocols)
    ]
    decoded = decode_batch(pa.RecordBatch.from_pylist(rows, SCHEMA))
    assert [row["protocol"] for row in decoded.messages.to_pylist()] == ["pager"]
    assert {row["protocol"]: row["reason"] for row in decoded.quarantine.to_pylist()} == {
        "bad_decode": "codec_fault",
        "bad_import": "unknown_protocol",
        "bad_message": "no_message",
    }


def test_names_and_failures_are_told_apart() -> None:
    assert set(registry.failures()) == {*LEFT_OUT, "bad_import"}
    assert {protocol.name for protocol in registry.all_protocols()} == {*registry.BUILT_IN, *PROTOCOLS, "pager"}
