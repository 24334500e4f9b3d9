"""What an identity may do to keys and streams by redis: eve has a role, and everything of alice's is closed to her."""

from base64 import b64decode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gateway.http.calling import calling
from gateway.identities import ALICE, EVE, assign
from gateway.redis_client import RedisConnection
from gateway.running_gateway import Running, running_gateway, until
from gateway.sisnet_client import Terminal

GUEST = {
    "read": ["redis/eve/**", "redis/open"],
    "write": ["redis/eve/**"],
    "publish": ["@eve", "eve"],
    "subscribe": ["@eve", "eve"],
}


async def login(running: Running, identity: tuple[str, str]) -> RedisConnection:
    connection = await RedisConnection.connect(running)
    assert await connection.ask(f"AUTH {identity[0]} {identity[1]}") == b"+OK\r\n"
    return connection


@asynccontextmanager
async def two(folder: Path, *listeners: str) -> AsyncIterator[tuple[Running, RedisConnection, RedisConnection]]:
    """Run a gateway with things of alice's, and yield the connections of alice and of eve."""
    async with running_gateway(folder, "redis", *listeners, identities=[ALICE, EVE], roles={"guest": GUEST}) as running:
        await assign(running, "eve", "guest")
        async with await login(running, ALICE) as alice, await login(running, EVE) as eve:
            for command in ("SET secret gold", "SET open bread", "HSET hash f v", "XADD @alice * a 1"):
                assert not (await alice.ask(command)).startswith(b"-")
            assert await eve.ask("SET eve/k mine") == b"+OK\r\n"
            yield running, alice, eve


@pytest.mark.parametrize(
    ("command", "refusal"),
    [
        ("GET secret", "read redis/secret"),
        ("MGET open secret", "read redis/secret"),
        ("STRLEN secret", "read redis/secret"),
        ("EXISTS open secret", "read redis/secret"),
        ("TYPE secret", "read redis/secret"),
        ("TYPE @alice", "read redis/@alice"),
        ("TTL secret", "read redis/secret"),
        ("HGET hash f", "read redis/hash"),
        ("HGETALL hash", "read redis/hash"),
        ("WATCH open secret", "read redis/secret"),
        ("SET secret x", "write redis/secret"),
        ("SET open x", "write redis/open"),
        ("SET secret x GET", "read redis/secret"),
        ("MSET eve/a 1 secret x", "write redis/secret"),
        ("SETEX secret 10 x", "write redis/secret"),
        ("APPEND secret x", "write redis/secret"),
        ("INCR open", "write redis/open"),
        ("GETSET open x", "write redis/open"),
        ("GETDEL secret", "read redis/secret"),
        ("DEL eve/k secret", "write redis/secret"),
        ("UNLINK secret", "write redis/secret"),
        ("EXPIRE secret 1", "write redis/secret"),
        ("PERSIST secret", "write redis/secret"),
        ("HSET hash f x", "write redis/hash"),
        ("HDEL hash f", "write redis/hash"),
        ("XADD @alice * a 2", "publish @alice"),
        ("PUBLISH @alice x", "publish @alice"),
        ("PUBLISH alice x", "publish alice"),
        ("XRANGE @alice - +", "subscribe @alice"),
        ("XREAD STREAMS @eve @alice 0 0", "subscribe @alice"),
        ("XREAD BLOCK 1 STREAMS @alice 0", "subscribe @alice"),
        ("SUBSCRIBE @alice", "subscribe @alice"),
        ("PSUBSCRIBE *", "subscribe *"),
        ("PSUBSCRIBE e*", "subscribe e*"),
    ],
)
async def test_nothing_of_alices_is_read_or_changed(tmp_path: Path, command: str, refusal: str) -> None:
    wanted = f"-NOPERM access denied: {refusal}\r\n".encode()
    async with two(tmp_path) as (running, alice, eve):
        assert await eve.ask(command) == wanted
        if "SUBSCRIBE" not in command and "WATCH" not in command:
            assert await eve.ask("MULTI") == b"+OK\r\n"
            assert await eve.ask(command) == b"+QUEUED\r\n"
            assert await eve.ask("SET eve/queued 1") == b"+QUEUED\r\n"
            assert await eve.ask("EXEC") == b"*2\r\n" + wanted + b"+OK\r\n", "a refusal concerns its command only"
        assert await alice.ask("GET secret") == b"$4\r\ngold\r\n"
        assert await alice.ask("GET open") == b"$5\r\nbread\r\n"
        assert await alice.ask("HGET hash f") == b"$1\r\nv\r\n"
        assert await alice.ask("TTL secret") == b":-1\r\n"
        assert await alice.ask("MGET eve/a eve/k") == b"*2\r\n$-1\r\n$4\r\nmine\r\n", "all keys are checked first"
        assert running.gateway.state.topics.head("@alice") == 1
        action, _, target = refusal.partition(" ")
        (row, *_) = await running.recorded("deny")
        assert (row["identity"], row["note"]) == ("eve", {"action": action, "target": target})


async def test_what_is_her_own_is_open_and_so_is_everything_to_a_member(tmp_path: Path) -> None:
    async with two(tmp_path) as (running, alice, eve):
        for connection in (eve, alice):
            for command, answer in (
                ("SET eve/n 1", b"+OK\r\n"),
                ("INCR eve/n", b":2\r\n"),
                ("GETSET eve/n 5", b"$1\r\n2\r\n"),
                ("MGET eve/n open", b"*2\r\n$1\r\n5\r\n$5\r\nbread\r\n"),
                ("HSET eve/h a 1", b":1\r\n"),
                ("DEL eve/n eve/h", b":2\r\n"),
                ("PUBLISH eve x", b":0\r\n"),
            ):
                assert await connection.ask(command) == answer, command
        assert await eve.ask("XADD @eve * a 1") == b"$3\r\n1-0\r\n"
        assert (await eve.ask("XRANGE @eve - +")).startswith(b"*1\r\n*2\r\n$3\r\n1-0\r\n")
        assert await alice.ask("TYPE @eve") == b"+stream\r\n"
        assert await running.recorded("deny", 0) == []


async def test_lists_and_counts_show_only_what_may_be_read(tmp_path: Path) -> None:
    async with two(tmp_path) as (_, alice, eve):
        assert sorted(await eve.ask_plain("KEYS *")) == [b"eve/k", b"open"]  # type: ignore[call-overload]
        assert await eve.ask_plain("KEYS s*") == []
        assert await eve.ask_plain("SCAN 0 COUNT 1000") == [b"0", [b"open", b"eve/k"]]
        assert await eve.ask_plain("SCAN 0 COUNT 1000 TYPE hash") == [b"0", []]
        assert await eve.ask("DBSIZE") == b":2\r\n"
        assert await alice.ask("DBSIZE") == b":4\r\n"
        assert b"used_memory" not in await eve.ask("INFO")
        assert b"db0:keys" not in await eve.ask("INFO")
        assert b"db0:keys=4," in await alice.ask("INFO")
        assert await eve.ask("MULTI") == b"+OK\r\n"
        for command in ("KEYS s*", "DBSIZE", "SCAN 0 MATCH hash"):
            assert await eve.ask(command) == b"+QUEUED\r\n"
        assert await eve.ask("EXEC") == b"*3\r\n*0\r\n:2\r\n*2\r\n$1\r\n0\r\n*0\r\n"


async def test_whoami_and_what_stays_the_admins(tmp_path: Path) -> None:
    async with two(tmp_path) as (_, alice, eve):
        assert await eve.ask("ACL WHOAMI") == b"$3\r\neve\r\n"
        assert await alice.ask("acl whoami") == b"$5\r\nalice\r\n"
        assert await eve.ask("ACL LIST") == b"-ERR unknown subcommand 'LIST'. Try ACL HELP.\r\n"
        assert await eve.ask("ACL WHOAMI x") == b"-ERR wrong number of arguments for 'acl|whoami' command\r\n"
        for connection in (alice, eve):
            assert (await connection.ask("FLUSHDB")).startswith(b"-NOPERM ")
        assert await alice.ask("DBSIZE") == b":4\r\n"


async def test_an_xread_that_waits_is_refused_once_the_role_is_gone(tmp_path: Path) -> None:
    async with two(tmp_path) as (running, alice, eve):
        eve.send(b"XREAD", b"BLOCK", b"0", b"STREAMS", b"@eve", b"$")
        await until(lambda: running.gateway.broker.durable.readers)
        await assign(running, "eve", "observer")
        assert await alice.ask("XADD @eve * a 1") == b"$3\r\n1-0\r\n"
        assert b"1-0" in await eve.receive(), "an observer reads every topic"
        eve.send(b"XREAD", b"BLOCK", b"0", b"STREAMS", b"@alice", b"$")
        await until(lambda: running.gateway.broker.durable.readers)
        await assign(running, "eve", "guest")
        assert await alice.ask("XADD @alice * a 2") == b"$3\r\n2-0\r\n"
        assert await eve.receive() == b"-NOPERM access denied: subscribe @alice\r\n"


async def test_the_service_checks_callers_of_other_protocols_too(tmp_path: Path) -> None:
    async with two(tmp_path, "sisnet_tcp") as (running, _, _), await Terminal.connect(running, *EVE) as terminal:
        answer = await terminal.ask("q", service="redis", command="get", ask={"args": ["secret"]})
        assert answer == {"ans": -1, "msg": "access denied: read redis/secret"}
        answer = await terminal.ask("q", service="redis", command="keys", ask={"args": ["*"]})
        assert [b64decode(key) for key in answer["msg"]["value"]] == [b"open", b"eve/k"]
        terminal.send(b"n:RGET secret")
        assert await terminal.receive() == b"n:R-NOPERM access denied: read redis/secret\r\n"


async def test_by_http_too_and_the_admin_may_do_everything(tmp_path: Path) -> None:
    async with calling(tmp_path, identities=[ALICE, EVE], roles={"guest": GUEST}) as caller:
        await assign(caller, "eve", "guest")
        body = {"args": ["secret", "gold"]}
        assert (await caller.call("POST", "/api/services/redis/set", body)).status_code == 200
        path, body = "/api/services/redis/get", {"args": ["secret"]}
        message = await caller.refused(403, "forbidden", "POST", path, body, bearer=":".join(EVE))
        assert message == "access denied: read redis/secret"
