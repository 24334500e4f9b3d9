"""What an identity may do to data sets: eve has a role, and the series of alice are closed to her."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.identities import ALICE, EVE, assign
from gateway.protocols.sisdb_tables import DAY
from gateway.redis_client import RedisConnection
from gateway.running_gateway import Running, running_gateway, until
from gateway.sisnet_client import Terminal

GUEST = {
    "read": ["datasets/sisdb/day/eve", "datasets/sisdb/shared/**"],
    "write": ["datasets/sisdb/day/eve", "datasets/sisdb/own/**"],
    "subscribe": ["**"],
}
ROW = [[10, 1.5, "x"]]


@asynccontextmanager
async def two(folder: Path, *listeners: str) -> AsyncIterator[tuple[Running, Terminal, Terminal]]:
    """Run a gateway with records, and yield the terminals of alice and of eve."""
    sisnet = {"data_sets": ["sisdb", "other"]}
    async with running_gateway(
        folder, "sisnet_tcp", *listeners, identities=[ALICE, EVE], roles={"guest": GUEST, "none": {}}, sisnet=sisnet
    ) as running:
        await assign(running, "eve", "guest")
        async with (
            await Terminal.connect(running, *ALICE) as alice,
            await Terminal.connect(running, *EVE) as eve,
        ):
            assert await alice.sisdb("create", sdb="day,shared,secret,empty", fields=DAY) == "ok"
            for key, sdb in (("alice", "day"), ("eve", "day"), ("alice", "shared"), ("alice", "secret")):
                assert await alice.sisdb("set", key=key, sdb=sdb, data=ROW) == "ok"
            assert await alice.sisdb("set", "other", key="eve", sdb="day", data={"time": 1}) == "ok"
            yield running, alice, eve


@pytest.mark.parametrize(
    ("command", "arguments", "refusal"),
    [
        ("get", {"key": "alice", "sdb": "day"}, "read datasets/sisdb/day/alice"),
        ("get", {"key": "eve,alice", "sdb": "day"}, "read datasets/sisdb/day/alice"),
        ("get", {"key": "alice", "sdb": "shared,secret"}, "read datasets/sisdb/secret/alice"),
        ("get", {"key": "alice", "sdb": "secret", "format": "bytes"}, "read datasets/sisdb/secret/alice"),
        ("get", {"key": "none", "sdb": "day"}, "read datasets/sisdb/day/none"),
        ("sub", {"key": "alice", "sdb": "day"}, "read datasets/sisdb/day/alice"),
        ("sub", {"key": "eve,alice", "sdb": "day"}, "read datasets/sisdb/day/alice"),
        ("sub", {"key": "alice", "sdb": "secret", "format": "bytes"}, "read datasets/sisdb/secret/alice"),
        ("set", {"key": "alice", "sdb": "day", "data": ROW}, "write datasets/sisdb/day/alice"),
        ("set", {"key": "eve,alice", "sdb": "day", "data": ROW}, "write datasets/sisdb/day/alice"),
        ("set", {"key": "alice", "sdb": "shared", "data": ROW}, "write datasets/sisdb/shared/alice"),
        ("set", {"key": "eve", "sdb": "new", "data": {"a": 1}}, "write datasets/sisdb/new/eve"),
        ("del", {"key": "alice", "sdb": "day"}, "write datasets/sisdb/day/alice"),
        ("del", {"key": "eve,alice", "sdb": "day"}, "write datasets/sisdb/day/alice"),
        ("create", {"sdb": "new", "fields": DAY}, "write datasets/sisdb/new/*"),
        ("create", {"sdb": "own,day", "fields": DAY}, "write datasets/sisdb/day/*"),
    ],
)
async def test_what_is_named_is_refused(tmp_path: Path, command: str, arguments: dict[str, Any], refusal: str) -> None:
    async with two(tmp_path) as (running, alice, eve):
        answer = await eve.ask("q", service="sisdb", command=command, ask=arguments)
        assert answer == {"ans": -1, "msg": f"access denied: {refusal}"}
        assert await alice.sisdb("get", key="alice,eve", sdb="day") == {"alice.day": ROW, "eve.day": ROW}
        assert await alice.sisdb("tables") == ["day", "empty", "secret", "shared"]
        action, _, target = refusal.partition(" ")
        (row,) = await running.recorded("deny")
        assert (row["identity"], row["note"]) == ("eve", {"action": action, "target": target})


async def test_a_star_stands_for_what_may_be_read(tmp_path: Path) -> None:
    async with two(tmp_path) as (_, alice, eve):
        everything = {"alice.day": ROW, "eve.day": ROW, "alice.shared": ROW, "alice.secret": ROW}
        assert await alice.sisdb("get", key="*", sdb="*") == everything
        assert await eve.sisdb("get", key="*", sdb="*") == {"eve.day": ROW, "alice.shared": ROW}
        assert await eve.sisdb("get", key="*", sdb="day") == {"eve.day": ROW}
        assert await eve.sisdb("get", key="alice", sdb="*") == {"alice.shared": ROW}
        assert await eve.sisdb("get", key="*", sdb="secret") == []
        assert await eve.sisdb("get", "other", key="*", sdb="*") == []
        assert await eve.sisdb("keys") == ["alice", "eve"]
        assert await eve.sisdb("keys", sdb="day") == ["eve"]
        assert await eve.sisdb("keys", sdb="secret") == []
        assert await eve.sisdb("keys", "other") == []
        assert await eve.sisdb("tables") == ["day", "shared"]
        assert await eve.sisdb("tables", sdb="day,secret,empty") == {"day.fields": DAY}
        assert await eve.sisdb("get", key="*", sdb="*", fields=True, count=0) == {
            "eve.day": [],
            "alice.shared": [],
            "day.fields": DAY,
            "shared.fields": DAY,
        }
        assert await eve.sisdb("get", key="*", sdb="secret", fields=True) == "ok", "not even its fields"
        assert await eve.sisdb("del", key="*", sdb="*") == 1, "what may be written: her own"
        assert await alice.sisdb("keys", sdb="day") == ["alice"]


async def test_what_a_role_allows(tmp_path: Path) -> None:
    async with two(tmp_path) as (running, _, eve):
        assert await eve.sisdb("set", key="eve", sdb="day", data=[[20, 2.5, "y"]]) == "ok"
        assert await eve.sisdb("get", key="eve", sdb="day", min=20) == [[20, 2.5, "y"]]
        assert await eve.sisdb("get", key="alice,nobody", sdb="shared") == {"alice.shared": ROW}
        assert await eve.sisdb("create", sdb="own", fields=DAY) == "ok"
        assert await eve.sisdb("set", key="any", sdb="own", data=ROW) == "ok"
        assert await eve.sisdb("get", key="any", sdb="own") == "failed: access denied: read datasets/sisdb/own/any"
        assert await eve.sisdb("del", key="*", sdb="own") == 1
        assert len(await running.recorded("deny")) == 1


async def test_new_records_reach_only_those_who_may_read_them(tmp_path: Path) -> None:
    """Whether they subscribe with a star, to a live topic, or to a pattern of topics."""
    async with two(tmp_path, "redis") as (running, alice, eve), await RedisConnection.connect(running) as redis:
        assert await redis.ask(f"AUTH {EVE[0]} {EVE[1]}") == b"+OK\r\n"
        assert await redis.ask("SUBSCRIBE alice.day") == b"*3\r\n$9\r\nsubscribe\r\n$9\r\nalice.day\r\n:1\r\n"
        assert await redis.ask("PSUBSCRIBE *") == b"*3\r\n$10\r\npsubscribe\r\n$1\r\n*\r\n:2\r\n"
        for terminal in (alice, eve):
            assert await terminal.ask("all", service="sisdb", command="sub", ask={"key": "*", "sdb": "*"}) == {"ans": 0}
        for key, sdb in (("alice", "day"), ("alice", "secret"), ("eve", "day")):
            alice.send_json("w", service="sisdb", command="set", ask={"key": key, "sdb": sdb, "data": [[30, 3.5, key]]})
        received = [await alice.receive() for _ in range(6)]
        pushed = {
            name: {name: [[30, 3.5, name.partition(".")[0]]]} for name in ("alice.day", "alice.secret", "eve.day")
        }
        for name in pushed:
            assert any(name.encode() in each for each in received), "alice may read everything"
        assert await eve.receive_json("all") == {"ans": 5, "msg": pushed["eve.day"]}
        assert await redis.receive() == (
            b'*4\r\n$8\r\npmessage\r\n$1\r\n*\r\n$7\r\neve.day\r\n$16\r\n[[30,3.5,"eve"]]\r\n'
        )
        assert await running.recorded("deny", 0) == []


async def test_a_subscription_ends_with_the_right_to_it(tmp_path: Path) -> None:
    async with two(tmp_path) as (running, alice, eve):
        for terminal in (alice, eve):
            assert await terminal.ask("s", service="sisdb", command="sub", ask={"key": "eve", "sdb": "day"}) == {
                "ans": 0
            }
        subscriptions = running.gateway.builtin_services.records.subscriptions
        await assign(running, "eve", "observer")
        assert len(subscriptions.matching(("sisdb", "eve", "day"))) == 2, "an observer reads everything"
        await assign(running, "eve", "none")
        assert await eve.receive_json("") == {"logout": "access denied: read datasets/sisdb/day/eve"}
        await until(lambda: len(running.gateway.connections) == 1)
        assert len(subscriptions.matching(("sisdb", "eve", "day"))) == 1
        alice.send_json("w", service="sisdb", command="set", ask={"key": "eve", "sdb": "day", "data": [[40, 4.5, "z"]]})
        assert sorted([await alice.receive(), await alice.receive()]) == [
            b's:{"ans":4,"msg":[[40,4.5,"z"]]}',
            b'w:{"ans":0}',
        ]
