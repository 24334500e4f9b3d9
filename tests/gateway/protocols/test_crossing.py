"""Every publisher with every subscriber, and every requester with every provider, over real sockets.

docs/protocols/crossing.md has the observed results; these tests fail where that page differs.
To rewrite it: REWRITE_DOCS=1 pytest tests/gateway/protocols/test_crossing.py
"""

import asyncio
import base64
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from gateway.http.calling import Calling, calling
from gateway.protocols.crossing_peers import DOORS, IDENTITIES, NAMES, TOKEN, Peers, connected, requesters
from gateway.running_gateway import HOST, WAIT_S, until
from wirelake.clients.apostol import ApostolDevice, DeviceError, DeviceRequest
from wirelake.clients.comet import CometClient
from wirelake.clients.esnp import EsnpClient
from wirelake.clients.serving import AnswerPackets, ServiceClient, ServiceError, ServiceRequest
from wirelake.clients.sisnet import SisnetClient
from wirelake.errors import TranslationError
from wirelake.message import Kind, Message, Op, Operation, Topic, control
from wirelake.protocols import registry
from wirelake.protocols.frame import Sender

PAGE = Path(__file__).parents[3] / "docs" / "protocols" / "crossing.md"
CONTENTS = {
    "text": "grüße".encode(),
    "empty": b"",
    "every byte": bytes(range(256)),
    "20 KiB": bytes(range(256)) * 80,
    "200 KiB": bytes(range(256)) * 800,
}
END = b"that was all"
SERVICE = "magline/17"  # a name that magline can request too
TITLES = {"http": "HTTP"}


# The page


def table(corner: str, columns: list[str], rows: dict[str, list[str]]) -> str:
    head = [corner, *(TITLES.get(column, column) for column in columns)]
    lines = [head, ["---"] * len(head), *([TITLES.get(name, name), *cells] for name, cells in rows.items())]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


def publish_on_page(what: str, text: str) -> None:
    """Check that the page has this between its markers; with REWRITE_DOCS, write it there."""
    page = PAGE.read_text()
    part = re.compile(rf"(<!-- observed: {what} -->\n)(.*?)(<!-- end -->)", re.DOTALL)
    found = part.search(page)
    assert found is not None, f"{PAGE.name} has no place for {what}"
    if os.environ.get("REWRITE_DOCS"):
        PAGE.write_text(page[: found.start(2)] + text + page[found.end(2) :])
        return
    assert found[2] == text, "what was observed is not what the page says: REWRITE_DOCS=1 writes it anew"


def cannot(protocol: str, message: Message) -> str:
    """Return the error of a protocol that has no frame for this message."""
    with pytest.raises(TranslationError) as refused:
        registry.get(protocol).from_message(message, Sender.CLIENT)
    return str(refused.value)


# Topics


async def crossed(peers: Peers, publisher: str, topic: str) -> dict[str, str]:
    """Return the outcome of each content for each subscriber."""
    refused = {name: await peer.subscribe(topic) for name, peer in peers.subscribers.items()}
    for content in (*CONTENTS.values(), END):
        await peers.publish[publisher](topic, content)
    found: dict[str, str] = {}
    for name, peer in peers.subscribers.items():
        if refused[name]:
            found[name] = f"no: {refused[name]}"
            continue
        received: list[bytes] = []
        while not received or received[-1] != END:
            received.append(await peer.receive())
        missing = [what for what, content in CONTENTS.items() if content not in received]
        assert received[:-1] == [content for what, content in CONTENTS.items() if what not in missing], name
        found[name] = f"all but {', '.join(missing)}" if missing else "yes"
    return found


async def test_every_publisher_reaches_every_subscriber(tmp_path: Path) -> None:
    async with calling(tmp_path, *DOORS, identities=IDENTITIES, devices=[("m1", 0, None)]) as caller:
        rows: dict[str, list[str]] = {}
        async with connected(caller) as peers:
            for kind, prefix in (("durable", "@"), ("live", "")):
                for publisher in peers.publish:
                    found = await crossed(peers, publisher, f"{prefix}crossing/{publisher}")
                    rows[f"{TITLES.get(publisher, publisher)}, {kind}"] = [found[name] for name in NAMES]
            rows["apostol, `@devices/<serial>`"] = await by_device(caller, peers)
        for name, cells in rows.items():
            expected = ["yes"] * len(NAMES)
            expected[0] = "no: error 4" if name.endswith("live") else "all but 200 KiB"
            assert cells == expected, name
        reason = cannot("comet", Message(kind=Kind.NOTIFICATION, target=Topic("@a"), payload=b"x"))
        notes = (
            f"\nContents: {', '.join(CONTENTS)}. `yes`: each arrives byte by byte, in order.\n\n"
            "- comet has durable topics only: error 4 for any other name.\n"
            "- A notification beyond 32 KiB does not fit a frame of comet's, and is left out there.\n"
            "- A device's report is published as JSON, with its data in base64.\n"
            f"- comet publishes nothing: {reason}.\n"
        )
        publish_on_page("topics", table("published by", list(NAMES), rows) + notes)


async def by_device(caller: Calling, peers: Peers) -> list[str]:
    topic = "@devices/m1"
    for peer in peers.subscribers.values():
        assert await peer.subscribe(topic) == ""
    async with ApostolDevice(HOST, caller.port("apostol"), "m1", transport="tcp") as device:
        for content in (*CONTENTS.values(), END):
            await device.report(2, content)
    found: list[str] = []
    for name in NAMES:
        received: list[bytes] = []
        while not received or received[-1] != END:
            report = json.loads(await peers.subscribers[name].receive())
            assert report["command_type"] == 2
            received.append(base64.b64decode(report.get("data", "")))
        missing = [what for what, content in CONTENTS.items() if content not in received]
        assert received[:-1] == [content for what, content in CONTENTS.items() if what not in missing], name
        found.append(f"all but {', '.join(missing)}" if missing else "yes")
    return found


async def test_a_phone_follows_a_meter(tmp_path: Path) -> None:
    async with (
        calling(tmp_path, *DOORS, identities=IDENTITIES, devices=[("m1", 0, bytes(16))]) as caller,
        CometClient(HOST, caller.port("comet"), "comet", TOKEN, secret_bytes=32) as phone,
        ApostolDevice(HOST, caller.port("apostol"), "m1", 0, bytes(16)) as meter,
    ):
        await phone.subscribe("@devices/m1")
        await meter.status(1, tariff=2)
        await meter.readings({1: 230.5, 2: 4711})
        reports = [json.loads((await phone.next_notification(WAIT_S)).content) for _ in range(2)]
        assert reports[0]["status"]["tariff"] == 2
        assert [each["value"] for each in reports[1]["readings"]] == [230.5, 4711]


# Services


async def answer(request: ServiceRequest) -> Any:
    """Answer according to the content of the request."""
    match request.value:
        case b"fields":
            return {"sum": 3, "text": "grüße"}
        case b"bytes":
            return b"\xff\x00"
        case b"both":
            return {"sum": 3, "payload": b"\xff\x00"}
        case b"nothing":
            return None
        case b"parts":
            return AnswerPackets([b"one", b"two"])
        case b"error":
            raise ServiceError("no luck")
        case b"silence" | b"leave":
            await asyncio.Event().wait()
    return None


CASES = {
    "fields": "fields",
    "bytes": "bytes",
    "both": "fields and bytes",
    "nothing": "nothing",
    "parts": "two parts",
    "error": "its own error",
    "silence": "no answer in time",
    "leave": "it goes away",
}


async def answers(caller: Calling, provider: ServiceClient) -> dict[str, list[str]]:
    rows: dict[str, list[str]] = {}
    async with requesters(caller) as ask:
        for case, title in CASES.items():
            cells: list[str] = []
            for requester in ask.values():
                timeout_ms = 100 if case == "silence" else 60_000
                caller.gateway.broker.call_s = timeout_ms / 1000  # for protocols that have no timeout of their own
                pending = asyncio.create_task(requester(SERVICE, "call", "", {}, case.encode(), timeout_ms))
                if case == "leave":
                    await until(lambda: caller.gateway.broker.services.open == 1)
                    before = provider.connections
                    for connection in list(caller.gateway.connections.values()):
                        if connection.identity == "provider":
                            connection.abort()
                    cells.append(await pending)
                    await until(lambda before=before: provider.connections > before and provider.connected)
                else:
                    cells.append(await pending)
            rows[title] = cells
    return rows


async def test_every_asker_and_every_provider(tmp_path: Path) -> None:
    seen: list[ServiceRequest] = []

    async def handler(request: ServiceRequest) -> Any:
        seen.append(request)
        return await answer(request)

    async with calling(tmp_path, *DOORS, identities=IDENTITIES) as caller:
        await caller.add_identity("provider", TOKEN)
        async with requesters(caller) as ask:
            columns = list(ask)
            rows = {"nobody provides it": [await each(SERVICE, "call", "", {}, b"x", 1000) for each in ask.values()]}
        providers: dict[str, ServiceClient] = {
            "esnp": EsnpClient(HOST, caller.port("esnp"), "provider", TOKEN),
            "sisnet": SisnetClient(f"ws://{HOST}:{caller.port('sisnet')}", "provider", TOKEN),
        }
        for name, provider in providers.items():
            async with provider:
                await provider.register(SERVICE, handler)
                rows |= {f"{name}: {title}": cells for title, cells in (await answers(caller, provider)).items()}
                seen.clear()
                async with requesters(caller) as ask:
                    for each in ask.values():
                        await each(SERVICE, "call", "", {"a": 1}, b"\xff", 60_000)
                values = [request.value for request in seen]
                assert values == [
                    {"a": 1, "payload": b"\xff"},
                    {"a": 1, "payload": b"\xff"},
                    b'{"a": 1}',
                    {"a": 1, "payload": b"\xff"},
                ], "fields and bytes of the request arrive"
                assert {(request.service, request.op) for request in seen} == {(SERVICE, "call")}
        assert rows["nobody provides it"] == [
            "ERROR Address[20=call,30=magline/17] not found ServiceHandler",
            "ans -1 Address[20=call,30=magline/17] not found ServiceHandler",
            "ERR 7",
            "404 nobody provides the service 'magline/17' with 'call'",
        ]
        for name in providers:
            assert rows[f"{name}: its own error"] == ["ERROR no luck", "ans -1 no luck", "ERR 0", "502 no luck"]
            late = "504 'magline/17' did not answer 'call' within 100 ms"
            assert rows[f"{name}: no answer in time"] == ["ERROR timeout", "ans -1 timeout", "ERR 8", late]
        call = Message(kind=Kind.REQUEST, target=Operation(SERVICE, "call"))
        register = control(Op.REGISTER, fields={"service": SERVICE})
        refusals = [f"- {name} asks no services: {cannot(name, call)}." for name in ("comet", "redis", "apostol")]
        refusals += [f"- {name} provides none: {cannot(name, register)}." for name in ("comet", "magline", "redis")]
        wrong = await caller.call("POST", "/api/services/wirelake/register", {"service": SERVICE})
        refusals.append(f"- HTTP provides none: {wrong.status_code}, {wrong.json()['error']['message']}.")
        publish_on_page("services", table("provider", columns, rows) + "\n" + "\n".join(refusals) + "\n")


async def test_what_wants_no_answer_crosses_too(tmp_path: Path) -> None:
    seen: asyncio.Queue[ServiceRequest] = asyncio.Queue()

    async def handler(request: ServiceRequest) -> Any:
        seen.put_nowait(request)
        return "nobody waits for this"

    async with (
        calling(tmp_path, *DOORS, identities=IDENTITIES) as caller,
        SisnetClient(f"ws://{HOST}:{caller.port('sisnet')}", "sisnet", TOKEN) as provider,
        EsnpClient(HOST, caller.port("esnp"), "esnp", TOKEN) as notifier,
    ):
        await provider.register("notes", handler)
        await notifier.tell("notes/add", {"a": 1})
        async with asyncio.timeout(WAIT_S):
            assert await seen.get() == ServiceRequest("notes", "add", {"a": 1})
        assert await notifier.ask("notes/add") == "nobody waits for this", "and both connections go on"


# Devices


async def test_a_device_is_asked_by_every_door(tmp_path: Path) -> None:
    async def handle(request: DeviceRequest) -> Any:
        if request.data == b"\x01":
            raise DeviceError(4)
        if request.data == b"\x02":
            await asyncio.Event().wait()
        return request.data[::-1]

    identities = [(*identity, "admin") for identity in IDENTITIES]
    async with calling(tmp_path, *DOORS, identities=identities, devices=[("m1", 0, None), ("m2", 0, None)]) as caller:
        rows: dict[str, list[str]] = {}
        async with (
            ApostolDevice(HOST, caller.port("apostol"), "m1", handler=handle, transport="tcp") as device,
            requesters(caller) as ask,
        ):
            await device.report(2, b"here I am")
            for title, serial, fields in (
                ("it answers", "m1", {"type": 130, "data": "0a0b"}),
                ("it answers with an error", "m1", {"type": 130, "data": "01"}),
                ("it does not answer in time", "m1", {"type": 130, "data": "02", "wait_ms": 50}),
                ("it was never heard", "m2", {"type": 130}),
                ("no command", "m1", {"type": 2}),
            ):
                rows[title] = [
                    _timeless(await each("devices", "command", serial, fields, b"", 60_000)) for each in ask.values()
                ]
            columns = list(ask)
        assert rows["it answers"][2] == 'REP {"ok":true,"serial":"m1","type":2,"error":0,"device_time":…,"data":"0b0a"}'
        assert [cell.split()[0] for cell in rows["it does not answer in time"]] == ["ERROR", "ans", "ERR", "504"]
        assert rows["it does not answer in time"][2] == "ERR 8"
        publish_on_page("devices", table("device", columns, rows))


def _timeless(reason: str) -> str:
    return re.sub(r'(device_time"?[:=])\d+', r"\1…", reason)
