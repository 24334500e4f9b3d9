"""Every action in every protocol that has it, once allowed and once refused, over real sockets.

A refusal is checked as it is on the wire, in the metrics, and in the log.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from gateway.comet_client import Phone
from gateway.esnp_client import Station, data_lines, to
from gateway.http.calling import Calling, calling
from gateway.magline_client import Box
from gateway.redis_client import RedisConnection
from gateway.running_gateway import HOST, WAIT_S
from gateway.sisnet_client import Terminal
from wirelake.clients.apostol import ApostolDevice
from wirelake.clients.esnp import EsnpClient
from wirelake.clients.serving import ServiceRequest
from wirelake.protocols.comet import frames as comet
from wirelake.protocols.magline import frames as magline
from wirelake.roles import Action

ANN = ("ann", "t0ken")
PROVIDER = ("provider", "t0ken")
LISTENERS = ("comet", "magline", "apostol", "esnp", "sisnet_tcp", "redis")
# What ann may do, and nothing else. Every target that is refused differs from it in the last letter only.
LIMITED = {
    "publish": ["@news/a", "live/a"],
    "subscribe": ["@news/a", "live/a", "quotes.**"],
    "call": ["magline/17/call"],
    "provide": ["clock-a"],
    "command": ["meter-a"],
    "read": ["redis/a", "datasets/sisdb/**"],
    "write": ["redis/a"],
    "query": ["silver.messages"],
    "see": ["ledger"],
}
SERVICES = ("magline/17", "magline/18")
DEVICES = ("meter-a", "meter-b")


async def echo(request: ServiceRequest) -> Any:
    return request.value


@asynccontextmanager
async def limited_gateway(folder: Path, **settings: Any) -> AsyncIterator[Calling]:
    """Run a gateway with services, devices and the identity ann, whose role is `limited`."""
    settings = {"roles": {"limited": LIMITED}, "devices": [(serial, 0, None) for serial in DEVICES], **settings}
    identities = [(*ANN, "limited"), PROVIDER]
    async with (
        calling(folder, *LISTENERS, identities=identities, **settings) as caller,
        EsnpClient(HOST, caller.port("esnp"), *PROVIDER) as provider,
        ApostolDevice(HOST, caller.port("apostol"), DEVICES[0], handler=_answer, transport="tcp") as first,
        ApostolDevice(HOST, caller.port("apostol"), DEVICES[1], handler=_answer, transport="tcp") as second,
    ):
        for service in SERVICES:
            await provider.register(service, echo)
        for device in (first, second):
            await device.report(2, b"here I am")
        yield caller


async def _answer(_request: Any) -> bytes:
    return b"done"


# ── attempts: each returns the error that the gateway answers, as it is on the wire, or nothing

Attempt = Callable[[Calling, str], Awaitable[object]]


async def comet_subscribe(caller: Calling, topic: str) -> bytes:
    async with await Phone.connect(caller.port("comet"), *ANN) as phone:
        frame = await phone.ask(comet.Subscribe((topic,)))
        return frame.encode() if isinstance(frame, comet.Error) else b""


async def _magline(caller: Calling, business: int, data: bytes) -> object:
    async with await Box.connect(caller, *ANN) as box:
        request = box.req(business, data)
        box.send(request)
        frame = await box.receive()
        if isinstance(frame, magline.Err):
            assert (frame.business_cmd, frame.seq) == (business, request.seq)
            return f"ERR {frame.error_number}"
        assert isinstance(frame, magline.Rep), frame
        return ""


async def magline_publish(caller: Calling, topic: str) -> object:
    return await _magline(caller, 4, json.dumps({"topic": topic, "content": "x"}).encode())


async def magline_subscribe(caller: Calling, topic: str) -> object:
    return await _magline(caller, 2, json.dumps({"topics": [topic]}).encode())


async def magline_call(caller: Calling, target: str) -> object:
    return await _magline(caller, int(target.split("/")[1]), b"x")


async def magline_command(caller: Calling, serial: str) -> object:
    return await _magline(caller, 7, json.dumps({"serial": serial, "type": 130}).encode())


async def _esnp(caller: Calling, service: str, op: str, /, **data: Any) -> object:
    async with await Station.connect(caller.port("esnp"), *ANN) as station:
        message = await station.ask(*to(service, op), *data_lines(**data))
        return "" if message.error is None else f"ERROR {message.error}"


async def esnp_publish(caller: Calling, topic: str) -> object:
    return await _esnp(caller, "wirelake", "publish", topic=topic, content="x")


async def esnp_subscribe(caller: Calling, topic: str) -> object:
    return await _esnp(caller, "wirelake", "subscribe", topic=topic)


async def esnp_call(caller: Calling, target: str) -> object:
    service, _, op = target.rpartition("/")
    return await _esnp(caller, service, op)


async def esnp_provide(caller: Calling, service: str) -> object:
    return await _esnp(caller, "wirelake", "register", service=service)


async def esnp_command(caller: Calling, serial: str) -> object:
    return await _esnp(caller, "devices", "command", serial=serial, type=130)


async def _sisnet(caller: Calling, service: str, command: str, /, **ask: Any) -> bytes:
    async with await Terminal.connect(caller, *ANN) as terminal:
        terminal.send_json("q", service=service, command=command, ask=ask)
        answer = await terminal.receive()
        return b"" if b'"ans":-' not in answer else answer


async def sisnet_publish(caller: Calling, topic: str) -> object:
    return await _sisnet(caller, "wirelake", "publish", topic=topic, content="x")


async def sisnet_subscribe(caller: Calling, topic: str) -> object:
    return await _sisnet(caller, "wirelake", "subscribe", topic=topic)


async def sisnet_call(caller: Calling, target: str) -> object:
    service, _, op = target.rpartition("/")
    return await _sisnet(caller, service, op)


async def sisnet_provide(caller: Calling, service: str) -> object:
    return await _sisnet(caller, "wirelake", "register", service=service)


async def sisnet_command(caller: Calling, serial: str) -> object:
    return await _sisnet(caller, "devices", "command", serial=serial, type=130)


@asynccontextmanager
async def redis_client(caller: Calling) -> AsyncIterator[RedisConnection]:
    async with await RedisConnection.connect(caller) as connection:
        assert await connection.ask(f"AUTH {ANN[0]} {ANN[1]}") == b"+OK\r\n"
        yield connection


async def _redis(caller: Calling, command: str) -> bytes:
    async with redis_client(caller) as connection:
        answer = await connection.ask(command)
        return answer if answer.startswith(b"-") else b""


async def redis_publish(caller: Calling, topic: str) -> object:
    return await _redis(caller, f"PUBLISH {topic} x")


async def redis_subscribe(caller: Calling, topic: str) -> object:
    return await _redis(caller, f"SUBSCRIBE {topic}")


async def redis_psubscribe(caller: Calling, pattern: str) -> object:
    return await _redis(caller, f"PSUBSCRIBE {pattern}")


async def _http(caller: Calling, path: str, body: Any) -> object:
    response = await caller.call("POST", path, body, bearer=":".join(ANN))
    return "" if response.is_success else (response.status_code, response.json())


async def http_publish(caller: Calling, topic: str) -> object:
    return await _http(caller, f"/api/topics/{quote(topic, safe='')}/notifications", {"content": "x"})


async def http_subscribe(caller: Calling, topic: str) -> object:
    headers = {"authorization": f"Bearer {':'.join(ANN)}"}
    path = f"/api/subscribe?topic={quote(topic, safe='')}"
    async with caller.client.stream("GET", path, headers=headers) as response:
        if response.is_success:
            return ""
        return response.status_code, json.loads(await response.aread())


async def http_call(caller: Calling, target: str) -> object:
    service, _, op = target.rpartition("/")
    return await _http(caller, f"/api/services/{quote(service, safe='')}/{op}", {})


async def http_command(caller: Calling, serial: str) -> object:
    return await _http(caller, f"/api/devices/{serial}/commands", {"type": 130})


async def redis_read(caller: Calling, target: str) -> object:
    return await _redis(caller, f"GET {target.removeprefix('redis/')}")


async def redis_write(caller: Calling, target: str) -> object:
    return await _redis(caller, f"SET {target.removeprefix('redis/')} x")


async def sisnet_read(caller: Calling, target: str) -> object:
    return await _sisnet(caller, "redis", "get", args=[target.removeprefix("redis/")])


async def http_read(caller: Calling, target: str) -> object:
    return await _http(caller, "/api/services/redis/get", {"args": [target.removeprefix("redis/")]})


async def http_query(caller: Calling, table: str) -> object:
    return await _http(caller, "/api/lake/query", {"sql": f"SELECT * FROM {table}"})


async def http_see(caller: Calling, page: str) -> object:
    response = await caller.call("GET", f"/api/{page}", bearer=":".join(ANN))
    return "" if response.is_success else (response.status_code, response.json())


# ── what a refusal is on each wire

Refusal = Callable[[str], object]
REFUSALS: dict[str, Refusal] = {
    "comet": lambda text: comet.Error(7, text).encode(),
    "magline": lambda _text: "ERR 11",
    "esnp": lambda text: f"ERROR {text}",
    "sisnet": lambda text: b'q:{"ans":-1,"msg":"%s"}' % text.encode(),
    "redis": lambda text: b"-NOPERM %s\r\n" % text.encode(),
    "http": lambda text: (403, {"error": {"code": "forbidden", "message": text}}),
}

TOPICS = [("@news/a", "@news/b"), ("live/a", "live/b")]
CASES: list[tuple[Action, str, Attempt, str, str]] = [
    *((Action.PUBLISH, "magline", magline_publish, *names) for names in TOPICS),
    *((Action.PUBLISH, "esnp", esnp_publish, *names) for names in TOPICS),
    *((Action.PUBLISH, "sisnet", sisnet_publish, *names) for names in TOPICS),
    *((Action.PUBLISH, "redis", redis_publish, *names) for names in TOPICS),
    *((Action.PUBLISH, "http", http_publish, *names) for names in TOPICS),
    (Action.SUBSCRIBE, "comet", comet_subscribe, *TOPICS[0]),  # comet has no live topics
    *((Action.SUBSCRIBE, "magline", magline_subscribe, *names) for names in TOPICS),
    *((Action.SUBSCRIBE, "esnp", esnp_subscribe, *names) for names in TOPICS),
    *((Action.SUBSCRIBE, "sisnet", sisnet_subscribe, *names) for names in TOPICS),
    *((Action.SUBSCRIBE, "redis", redis_subscribe, *names) for names in TOPICS),
    (Action.SUBSCRIBE, "redis", redis_psubscribe, "quotes.*", "quote*"),
    *((Action.SUBSCRIBE, "http", http_subscribe, *names) for names in TOPICS),
    (Action.CALL, "magline", magline_call, "magline/17/call", "magline/18/call"),
    (Action.CALL, "esnp", esnp_call, "magline/17/call", "magline/18/call"),
    (Action.CALL, "sisnet", sisnet_call, "magline/17/call", "magline/17/cell"),
    (Action.CALL, "http", http_call, "magline/17/call", "magline/17/cell"),
    (Action.PROVIDE, "esnp", esnp_provide, "clock-a", "clock-b"),
    (Action.PROVIDE, "sisnet", sisnet_provide, "clock-a", "clock-b"),
    (Action.COMMAND, "magline", magline_command, "meter-a", "meter-b"),
    (Action.COMMAND, "esnp", esnp_command, "meter-a", "meter-b"),
    (Action.COMMAND, "sisnet", sisnet_command, "meter-a", "meter-b"),
    (Action.COMMAND, "http", http_command, "meter-a", "meter-b"),
    (Action.READ, "redis", redis_read, "redis/a", "redis/b"),
    (Action.READ, "sisnet", sisnet_read, "redis/a", "redis/b"),
    (Action.READ, "http", http_read, "redis/a", "redis/b"),
    (Action.WRITE, "redis", redis_write, "redis/a", "redis/b"),
    (Action.QUERY, "http", http_query, "silver.messages", "silver.calls"),
    (Action.SEE, "http", http_see, "ledger", "log"),
    (Action.COMMAND, "magline", magline_command, "meter-a", "*"),
    (Action.COMMAND, "esnp", esnp_command, "meter-a", "*"),
    (Action.COMMAND, "sisnet", sisnet_command, "meter-a", "*"),
    (Action.COMMAND, "http", http_command, "meter-a", "*"),
]


@pytest.mark.parametrize(
    ("action", "protocol", "attempt", "allowed", "refused"),
    CASES,
    ids=[f"{action}-{attempt.__name__}-{refused}" for action, _, attempt, _, refused in CASES],
)
async def test_what_is_not_allowed_is_refused_counted_and_recorded(
    tmp_path: Path, action: Action, protocol: str, attempt: Attempt, allowed: str, refused: str
) -> None:
    async with limited_gateway(tmp_path) as caller:
        assert await attempt(caller, allowed) in ("", b"")
        assert await denials(caller) == {}
        assert caller.records("deny") == []

        assert await attempt(caller, refused) == REFUSALS[protocol](f"access denied: {action} {refused}")
        assert await denials(caller) == {("ann", action): 1}
        (row,) = await caller.recorded("deny")
        assert (row["identity"], row["protocol"], row["note"]) == (
            "ann",
            protocol,
            {"action": action, "target": refused},
        )
        assert row["peer"].startswith(f"{HOST}:")
        assert row["session"]


async def denials(caller: Calling) -> dict[tuple[str, str], int]:
    """Return the refusals that /metrics counts, by identity and action."""
    prefix = "wirelake_denied_total{"
    counted = {}
    for line in (await caller.call("GET", "/metrics")).text.splitlines():
        if line.startswith(prefix):
            labels, _, value = line.removeprefix(prefix).rpartition("} ")
            found = dict(label.split("=") for label in labels.split(","))
            counted[found["identity"].strip('"'), found["action"].strip('"')] = int(float(value))
    return counted


def published_topics(caller: Calling) -> set[str]:
    return {row["note"]["topic"] for row in caller.records("publish")}


async def test_what_is_refused_has_no_effect(tmp_path: Path) -> None:
    async with limited_gateway(tmp_path) as caller, redis_client(caller) as subscriber:
        for topic in ("@news/b", "live/b"):
            for publish in (magline_publish, esnp_publish, sisnet_publish, redis_publish, http_publish):
                await publish(caller, topic)
        await esnp_provide(caller, "clock-b")
        for subscribe in (comet_subscribe, magline_subscribe, esnp_subscribe, sisnet_subscribe, redis_subscribe):
            await subscribe(caller, "@news/b")
        state, broker = caller.gateway.state, caller.gateway.broker
        assert published_topics(caller) == {"@devices/meter-a", "@devices/meter-b"}, "their own reports only"
        assert "clock-b" not in broker.services.names()
        assert state.topics.topics_of("ann") == []
        subscriber.send(b"SUBSCRIBE", b"live/a", b"live/b")
        assert await subscriber.receive() == b"-NOPERM access denied: subscribe live/b\r\n", "all or nothing"
        assert not broker.live.has_subscribers("live/a")


@pytest.mark.parametrize("topic", ["@news/b", "live/b"])
async def test_each_publish_of_a_pipeline_is_refused(tmp_path: Path, topic: str) -> None:
    async with limited_gateway(tmp_path) as caller, redis_client(caller) as publisher:
        publisher.write(b"*3\r\n$7\r\nPUBLISH\r\n$%d\r\n%s\r\n$1\r\nx\r\n" % (len(topic), topic.encode()) * 50)
        for _ in range(50):
            assert await publisher.receive() == b"-NOPERM access denied: publish %s\r\n" % topic.encode()
        assert published_topics(caller) == {"@devices/meter-a", "@devices/meter-b"}, "their own reports only"
        assert await denials(caller) == {("ann", "publish"): 50}


async def test_a_service_of_another_identity_takes_a_role_that_names_it(tmp_path: Path) -> None:
    roles = {"limited": {"provide": ["magline/17"]}}
    async with limited_gateway(tmp_path, roles=roles) as caller:
        assert await esnp_provide(caller, "magline/17") == ""
        assert await esnp_provide(caller, "magline/18") == "ERROR access denied: provide magline/18"
        await caller.assign("ann", "member")
        assert await esnp_provide(caller, "magline/17") == "ERROR access denied: provide magline/17"
        assert await esnp_provide(caller, "clock-a") == "", "nobody provides it"


async def test_a_changed_role_counts_at_once_and_closes_what_it_forbids(tmp_path: Path) -> None:
    async with (
        limited_gateway(tmp_path) as caller,
        await Phone.connect(caller.port("comet"), *ANN) as phone,
        redis_client(caller) as follower,
        redis_client(caller) as bystander,
    ):
        await phone.ask(comet.Subscribe(("@news/a",)))
        follower.send(b"SUBSCRIBE", b"live/a")
        await follower.receive()
        await caller.publish("@news/a", "first")
        assert (await phone.receive_message()).content == b"first"
        await caller.assign("ann", "observer")
        assert await bystander.ask("PUBLISH live/a x") == b"-NOPERM access denied: publish live/a\r\n"
        assert follower_is_open(caller) == 2, "an observer may still subscribe"

        response = await caller.call("PUT", "/api/identities/ann/roles", {"roles": []})
        assert response.status_code == 204
        assert await bystander.ask("PUBLISH live/z x") == b":0\r\n", "a member may publish everywhere"


def follower_is_open(caller: Calling) -> int:
    return sum(1 for each in caller.gateway.connections.values() if caller.gateway.broker.topics_of(each))


async def test_a_session_whose_subscription_is_revoked_is_closed_with_the_reason(tmp_path: Path) -> None:
    roles = {"limited": LIMITED, "mute": {"publish": ["**"]}}
    async with limited_gateway(tmp_path, roles=roles) as caller:
        async with await Phone.connect(caller.port("comet"), *ANN) as phone, redis_client(caller) as bystander:
            await phone.ask(comet.Subscribe(("@news/a",)))
            await caller.assign("ann", "mute")
            assert await phone.receive() == comet.Error(7, "access denied: subscribe @news/a")
            assert await phone.receive() is None
            (row,) = [row for row in await caller.recorded("close", protocol="comet") if row["identity"] == "ann"]
            assert row["note"]["reason"] == "access_denied"
            assert await bystander.ask("PING") == b"+PONG\r\n", "its other session goes on"
        (row,) = await caller.recorded("deny")
        assert row["note"] == {"action": "subscribe", "target": "@news/a"}

        await caller.publish("@news/a", "meanwhile")
        async with await Phone.connect(caller.port("comet"), *ANN) as phone:
            assert await phone.fetch_backlog() == (), "it is kept, but not sent"
        await caller.assign("ann", "limited")
        async with await Phone.connect(caller.port("comet"), *ANN) as phone:
            assert [message.content for message in await phone.fetch_backlog()] == [b"meanwhile"]


async def test_the_admin_token_may_do_everything(tmp_path: Path) -> None:
    async with limited_gateway(tmp_path) as caller:
        assert (await caller.call("POST", "/api/topics/%40news%2Fb/notifications", {"content": "x"})).status_code == 201
        assert (await caller.call("POST", "/api/services/magline%2F18/call", {})).status_code == 200
        assert (await caller.call("POST", "/api/devices/meter-b/commands", {"type": 130})).status_code == 200
        assert (await caller.call("POST", "/api/devices/*/commands", {"type": 130})).json()["answered"] == 2
        assert await denials(caller) == {}


async def test_a_member_commands_no_device_and_takes_over_no_service(tmp_path: Path) -> None:
    async with limited_gateway(tmp_path) as caller:
        await caller.assign("ann")
        assert await esnp_publish(caller, "@any") == ""
        assert await esnp_call(caller, "magline/18/call") == ""
        assert await http_command(caller, "meter-a") == REFUSALS["http"]("access denied: command meter-a")
        assert await esnp_command(caller, "*") == "ERROR access denied: command *"
        async with asyncio.timeout(WAIT_S):
            assert await denials(caller) == {("ann", "command"): 2}
