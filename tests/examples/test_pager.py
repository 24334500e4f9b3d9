"""The example of a protocol with sessions, installed as a user would, and served over TLS sockets."""

import json
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
import pytest
import redis
from cli.serving import free_ports
from gateway.certificates import make_certificate
from gateway.installed_protocol import example, installed_protocols

from examples.installed import WAIT_S, install, wirelake
from wirelake.log.interface import SCHEMA
from wirelake.pipeline.ingest.decode import decode_batch
from wirelake.protocols.frame import Sender
from wirelake.protocols.kernel_columns import KernelDecoder, column_decoder

pager, beacon = example("pager"), example("beacon")
HOST = "127.0.0.1"
LISTENERS = ("http", "redis", "pager", "beacon")
OFF = ("comet", "magline", "apostol", "esnp", "sisnet", "sisnet_tcp")


class Served:
    """Run `wirelake serve` as a process that finds the installed packages."""

    def __init__(self, folder: Path) -> None:
        self.packages = folder / "packages"
        self.environment = install(self.packages, "pager", "beacon")
        self.ports = dict(zip(LISTENERS, free_ports(len(LISTENERS)), strict=True))
        cert, key = make_certificate(folder / "tls", HOST)
        self.cert = str(cert)
        self.settings = folder / "wirelake.toml"
        lines = [f'data = "{folder / "data"}"', "[listen]"]
        lines += [f'{name} = "{HOST}:{port}"' for name, port in self.ports.items()]
        lines += [f'{name} = "off"' for name in OFF]
        lines += ["[tls]", f'cert = "{cert}"', f'key = "{key}"', "[pager]", "idle_s = 77.0"]
        self.settings.write_text("\n".join(lines))
        self.trust = ssl.create_default_context(cafile=self.cert)
        command = [sys.executable, "-m", "wirelake.cli.main", "serve", "--config", str(self.settings)]
        self.process = subprocess.Popen(
            command, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert self.process.stdout is not None
        self.greeting = ""
        for line in self.process.stdout:
            self.greeting += line
            if "admin token" in line:
                break
        token = (folder / "data" / "keys" / "admin.token").read_text().strip()
        self.http = httpx.Client(
            base_url=f"https://{HOST}:{self.ports['http']}",
            verify=self.trust,
            headers={"authorization": f"Bearer {token}"},
            timeout=WAIT_S,
            trust_env=False,
        )
        self.admin_token = token
        self.tokens = {name: self.post("/api/identities", {"name": name})["token"] for name in ("ann", "bob")}
        self.post("/api/devices", {"serial": "Oslo", "type": 0})

    def post(self, path: str, body: Any) -> Any:
        answer = self.http.post(path, json=body)
        assert answer.is_success, answer.text
        return answer.json()

    def cli(self, *words: str) -> "subprocess.CompletedProcess[str]":
        return wirelake(self.environment, *words, "--config", str(self.settings))

    def pager(self, identity: str = "", token: str = "") -> "Pager":
        return Pager(self, identity, token or self.tokens.get(identity, ""))

    def end(self) -> None:
        self.http.close()
        self.process.terminate()
        self.process.communicate(timeout=WAIT_S)


class Pager:
    """Send and receive pager frames over a TLS socket."""

    def __init__(self, served: Served, identity: str, token: str) -> None:
        plain = socket.create_connection((HOST, served.ports["pager"]), WAIT_S)
        self._socket = served.trust.wrap_socket(plain, server_hostname=HOST)
        self._number = 0
        if identity:
            self.login = self.ask(pager.Login, identity=identity, token=token)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._socket.close()

    def send(self, frame: Any) -> None:
        self._socket.sendall(frame.encode())

    def receive(self) -> Any:
        """Return the next frame, or None if the gateway closed the connection."""
        head = self._exactly(8)
        if not head:
            return None
        return pager.FRAMES.decode(head + self._exactly(int.from_bytes(head[6:])), Sender.SERVER)

    def ask(self, kind: Any, **fields: Any) -> Any:
        self._number += 1
        self.send(kind(number=self._number, **fields))
        answer = self.receive()
        assert answer is not None
        assert answer.number == self._number, answer
        return answer

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size and (piece := self._socket.recv(size - len(data))):
            data += piece
        return data


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    running = Served(tmp_path_factory.mktemp("pager"))
    try:
        yield running
    finally:
        running.end()


def test_a_login_is_refused_in_the_protocols_own_code(served: Served) -> None:
    with served.pager() as nobody:
        refused = nobody.ask(pager.Login, identity="ann", token="wrong")
        assert (refused.code, refused.content) == (pager.Code.BAD_TOKEN, b"invalid token")
        assert nobody.receive() is None
    with served.pager() as nobody:
        assert nobody.ask(pager.Publish, topic="news").code == pager.Code.LOG_IN_FIRST
    with served.pager("ann") as ann:
        assert ann.login == pager.Reply(number=1)
        with served.pager("ann") as second:
            assert second.login == pager.Reply(number=1)
            assert ann.receive().code == pager.Code.CONNECTED


def test_the_log_has_no_token(served: Served) -> None:
    with served.pager("ann") as ann:
        assert ann.login == pager.Reply(number=1)
    with served.pager() as nobody:
        nobody.ask(pager.Login, identity="ann", token="a wrong token")
    hidden = [served.tokens["ann"].encode(), b"a wrong token"]
    shown = served.cli("log", "cat", "--protocol", "pager", "--full")
    for secret in hidden:
        assert secret.hex(" ") not in shown.stdout
        for path in (served.settings.parent / "data" / "log").rglob("*"):
            assert path.is_dir() or secret not in path.read_bytes(), path
    login = pager.Login(number=7, identity="ann", token="s3cret")
    assert pager.FRAMES.decode(pager.redact(login.encode(), Sender.CLIENT), Sender.CLIENT).token == "******"
    assert b"s3cret" not in pager.redact(login.encode()[:-1], Sender.CLIENT)
    assert b"ann".hex(" ") in shown.stdout
    assert (b"*" * 4).hex(" ") in shown.stdout


def test_publish_and_subscribe_across_protocols(served: Served) -> None:
    other: Any = redis.Redis(
        HOST, served.ports["redis"], username="bob", password=served.tokens["bob"], ssl=True, ssl_ca_certs=served.cert
    )
    pubsub: Any = other.pubsub  # has no types
    with other, pubsub(ignore_subscribe_messages=True) as listening, served.pager("ann") as ann:
        listening.subscribe("news")
        listening.get_message(timeout=WAIT_S)
        answer = ann.ask(pager.Publish, topic="news", content=b"from a pager")
        assert json.loads(answer.content) == {"receivers": 1}
        message = None
        while message is None:
            message = listening.get_message(timeout=WAIT_S)
        assert message["data"] == b"from a pager"
        ann.ask(pager.Subscribe, topic="live")
        assert other.publish("live", b"from redis") == 1
        page = ann.receive()
        assert (page.topic, page.content) == ("live", b"from redis")


def test_what_is_not_acked_comes_again(served: Served) -> None:
    with served.pager("ann") as ann:
        ann.ask(pager.Subscribe, topic="@orders")
        with served.pager("bob") as bob:
            for content in (b"one", b"two"):
                bob.ask(pager.Publish, topic="@orders", content=content)
        first, second = ann.receive(), ann.receive()
        assert [first.content, second.content] == [b"one", b"two"]
        ann.ask(pager.Ack, id=first.id)
    with served.pager("ann") as ann:
        ann.ask(pager.Subscribe, topic="@orders")
        again = ann.receive()
        assert (again.id, again.content) == (second.id, b"two")
        ann.ask(pager.Ack, id=again.id)
    with served.pager("ann") as ann:
        ann.ask(pager.Subscribe, topic="@orders")
        assert ann.ask(pager.Ping) == pager.Reply(number=3), "nothing was left to be sent"


def test_services_both_ways(served: Served) -> None:
    with served.pager("ann") as ann, served.pager("bob") as bob:
        ann.ask(pager.Provide, service="clock")
        bob.send(pager.Ask(number=50, service="clock", op="now", content=b"utc"))
        request = ann.receive()
        assert (request.service, request.op, request.content) == ("clock", "now", b"utc")
        ann.send(pager.Reply(number=request.number, content=b"noon"))
        assert bob.receive() == pager.Reply(number=50, content=b"noon")
        bob.send(pager.Ask(number=51, service="clock", op="set"))
        ann.send(pager.Refused(number=ann.receive().number, code=99, content=b"no"))
        assert bob.receive() == pager.Refused(number=51, code=pager.Code.FAILED, content=b"no")
        missing = bob.ask(pager.Ask, service="nobody", op="x")
        assert missing.code == pager.Code.NOT_FOUND


def test_it_is_seen_everywhere(served: Served) -> None:
    with served.pager("ann") as ann:
        ann.ask(pager.Ping)
        (row,) = served.http.get("/api/sessions", params={"protocol": "pager"}).json()["sessions"]
        assert (row["identity"], row["state"], row["frames_in"]) == ("ann", "ready", 2)
        form = {"token": served.admin_token}
        entered = served.http.post("/login", data=form, headers={"sec-fetch-site": "same-origin"})
        cookie = {"cookie": entered.headers["set-cookie"].partition(";")[0]}
        assert "pager" in served.http.get("/sessions", headers=cookie).text
        metrics = served.http.get("/metrics").text
        assert 'wirelake_connections{protocol="pager"} 1.0' in metrics
        assert 'wirelake_logins_total{outcome="wrong_token",protocol="pager"}' in metrics.replace(
            'protocol="pager",outcome="wrong_token"', 'outcome="wrong_token",protocol="pager"'
        )
    assert f"pager {HOST}:{served.ports['pager']}" in " ".join(served.greeting.split())


def test_its_settings_are_a_section(served: Served, tmp_path: Path) -> None:
    shown = served.cli("config").stdout
    section = shown[shown.index("[pager]") :]
    assert "idle_s = 77.0" in section.partition("[pager]")[2].partition("\n[")[0]
    wrong = tmp_path / "wrong.toml"
    for text, says in (
        ("idle_s = -1", "pager.idle_s"),
        ("frame_bytes_max = 10", "frame_bytes_max is at least 1024"),
        ("idle = 1", "there is no setting pager.idle; did you mean pager.idle_s?"),
    ):
        wrong.write_text(f"[pager]\n{text}\n")
        done = wirelake(served.environment, "config", "--config", str(wrong))
        assert done.returncode != 0
        assert says in done.stderr
        assert "pager" in done.stderr


def test_a_beacon_is_served_by_udp_and_ends_in_the_log(served: Served) -> None:
    reading = beacon.Reading("Oslo", -75).encode()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as station:
        station.sendto(reading, (HOST, served.ports["beacon"]))
        rows = _logged(served, "beacon", 1)
    assert [bytes.fromhex(row["frame"]) for row in rows] == [reading]


def test_its_frames_become_rows(served: Served) -> None:
    import pyarrow as pa

    with served.pager("ann") as ann:
        ann.ask(pager.Publish, topic="@rows", content=b"row")
    rows = _logged(served, "pager", 2)
    assert any(b"@rows" in bytes.fromhex(row["frame"]) for row in rows)
    frames = [pager.Publish(number=3, topic="@rows", content=b"row").encode(), b"\x50bad"]
    records = [
        {**dict.fromkeys(SCHEMA.names, ""), "seq": place, "at": 0, "protocol": name, "event": "frame"}
        | {"direction": "in", "frame": frame}
        for place, (name, frame) in enumerate(
            [*(("pager", frame) for frame in frames), ("beacon", beacon.Reading("Oslo", -75).encode())]
        )
    ]
    with installed_protocols({"pager": "pager:PROTOCOL", "beacon": "beacon:PROTOCOL"}):
        decoded = decode_batch(pa.RecordBatch.from_pylist(records, SCHEMA))
    first, second = decoded.messages.to_pylist()
    assert (first["kind"], first["topic"], first["payload"]) == ("notification", "@rows", b"row")
    assert first["decoder"] == "pager/1"
    assert (second["kind"], json.loads(second["fields"])) == ("telemetry", {"celsius": -7.5})
    decoder = column_decoder(beacon.PROTOCOL)
    assert isinstance(decoder, KernelDecoder)
    assert decoder.kinds == (beacon.Reading,)
    assert [row["decoder"] for row in decoded.quarantine.to_pylist()] == ["pager/1"]


def _logged(served: Served, protocol: str, count: int) -> list[Any]:
    """Return the frames that `wirelake log cat` prints, once there are so many."""
    ends_s = time.monotonic() + WAIT_S
    while True:
        done = served.cli("log", "cat", "--protocol", protocol, "--json", "--full")
        assert done.returncode == 0, done.stderr
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        frames = [row for row in rows if row["event"] == "frame"]
        if len(frames) >= count or time.monotonic() > ends_s:
            return frames


def test_history_is_decoded_again_by_a_newer_decoder(served: Served) -> None:
    """Change the installed package; this test must be the last."""
    with served.pager("ann") as ann:
        ann.ask(pager.Publish, topic="@again", content=b"x")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as station:
        station.sendto(beacon.Reading("Oslo", 10).encode(), (HOST, served.ports["beacon"]))
        _logged(served, "beacon", 1)
    done = served.cli("pipeline", "run", "--once")
    assert done.returncode == 0, done.stderr
    found = _decoders(served)
    assert set(found) == {("pager", "pager/1"), ("beacon", "beacon/1")}
    done = served.cli(
        "query", "--format", "json", "SELECT DISTINCT name, fields FROM silver.messages WHERE protocol = 'beacon'"
    )
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert {"name": "reading", "fields": '{"celsius":1.0}'} in rows  # by a kernel that Spark's worker made for it
    source = served.packages / "pager.py"
    source.write_text(source.read_text().replace("decoder_version=1", "decoder_version=2"))
    done = served.cli("pipeline", "redecode", "--protocol", "pager", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["tables"]["silver.messages"]["relabelled"] == found["pager", "pager/1"]
    counts = {"pager": found["pager", "pager/1"], "beacon": found["beacon", "beacon/1"]}
    assert _decoders(served) == {("pager", "pager/2"): counts["pager"], ("beacon", "beacon/1"): counts["beacon"]}


def _decoders(served: Served) -> dict[tuple[str, str], int]:
    """Count the rows of silver by protocol and decoder."""
    wanted = "protocol IN ('pager', 'beacon')"
    query = f"SELECT protocol, decoder, count(*) AS n FROM silver.messages WHERE {wanted} GROUP BY ALL"
    done = served.cli("query", "--format", "json", query)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    return {(row["protocol"], row["decoder"]): row["n"] for row in rows}
