"""RESP commands inside sisnet messages: redis commands, answered in RESP under the message's name."""

from pathlib import Path

from gateway.running_gateway import running_gateway
from gateway.sisnet_client import Terminal
from wirelake.protocols.redis.frames import Command

STORY: list[tuple[bytes, bytes]] = [
    (b"PING", b"+PONG\r\n"),
    (b"PING hi\r\n", b"$2\r\nhi\r\n"),
    (b"ECHO hi", b"$2\r\nhi\r\n"),
    (b"SELECT 0", b"+OK\r\n"),
    (b"SELECT 1", b"-ERR DB index is out of range\r\n"),
    (b"CLIENT SETNAME me", b"+OK\r\n"),
    (b"CLIENT GETNAME", b"$2\r\nme\r\n"),
    (b"COMMAND COUNT", b":57\r\n"),
    (b"QUIT", b"+OK\r\n"),
    (b"SET k 'a b' EX 100", b"+OK\r\n"),
    (b"GET k", b"$3\r\na b\r\n"),
    (b"TTL k", b":100\r\n"),
    (b"MGET k none", b"*2\r\n$3\r\na b\r\n$-1\r\n"),
    (b"DEL k", b":1\r\n"),
    (b"GET k", b"$-1\r\n"),
    (b"PUBLISH nobody x", b":0\r\n"),
    # Refusals
    (b"", b"-ERR Protocol error: "),
    (b"*0\r\n", b"-ERR no command\r\n"),
    (b"FLY", b"-ERR unknown command 'FLY'"),
    (b"POST / HTTP/1.1", b"-ERR unknown command 'POST'"),
    (b"GET", b"-ERR wrong number of arguments for 'get' command\r\n"),
    (b"SET k v NX XX", b"-ERR syntax error\r\n"),
    (b"AUTH x", b"-ERR the sisnet connection is logged in already\r\n"),
    (b"HELLO 3 AUTH a b", b"-ERR the sisnet connection is logged in already\r\n"),
    (b"HELLO 4", b"-NOPROTO"),
    (b"RESET", b"-ERR a sisnet connection is not reset\r\n"),
    (b"*1\r\n$-1\r\n", b"-ERR Protocol error: invalid bulk length"),
    (b"*1\r\n$4\r\nPING\r\nSET k v\r\n", b"-ERR Protocol error: "),
    (b"*2\r\n$9\r\nSUBSCRIBE\r\n$1\r\n\xff\r\n", b"-ERR channel names and patterns are UTF-8 text here\r\n"),
    (b"EXISTS k", b":0\r\n"),
    (b"HELLO 3", b"%7\r\n"),
    (b"GET k", b"_\r\n"),
    (b"HELLO 2", b"*14\r\n"),
    (b"GET k", b"$-1\r\n"),
]


async def ask(terminal: Terminal, name: bytes, command: bytes) -> bytes:
    terminal.send(name + b":R" + command)
    answer = await terminal.receive()
    assert answer.startswith(name + b":R"), answer
    return answer.removeprefix(name + b":R")


async def test_every_command_and_refusal(tmp_path: Path) -> None:
    async with (
        running_gateway(tmp_path, "sisnet_tcp", identities=[("x", "y")]) as running,
        await Terminal.connect(running) as stranger,
        await Terminal.connect(running, "x", "y") as terminal,
    ):
        assert await ask(stranger, b"n", b"SET k v") == b"-ERR log in first\r\n"
        for command, wanted in STORY:
            assert (await ask(terminal, b"n", command)).startswith(wanted), command
        binary = Command((b"SET", b"\xff\x00", b"\r\n")).encode()
        assert await ask(terminal, b"", binary) == b"+OK\r\n", "under an empty name too"
        assert await ask(terminal, b"n", Command((b"GET", b"\xff\x00")).encode()) == b"$2\r\n\r\n\r\n"
        assert await ask(terminal, b"n", b"DBSIZE") == b":1\r\n", "what a stranger asked was not done"


async def test_subscriptions_are_pushed_in_resp_under_their_own_names(tmp_path: Path) -> None:
    async with (
        running_gateway(tmp_path, "sisnet_tcp", auth={"open": True}) as running,
        await Terminal.connect(running, "x", "y") as terminal,
        await Terminal.connect(running, "x", "y") as other,
    ):
        assert await ask(terminal, b"s", b"SUBSCRIBE a b") == (
            b"*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n*3\r\n$9\r\nsubscribe\r\n$1\r\nb\r\n:2\r\n"
        )
        assert await ask(terminal, b"p", b"PSUBSCRIBE pr*") == b"*3\r\n$10\r\npsubscribe\r\n$3\r\npr*\r\n:3\r\n"
        assert await ask(other, b"n", b"PUBLISH b 1") == b":1\r\n"
        assert await terminal.receive() == b"s:R*3\r\n$7\r\nmessage\r\n$1\r\nb\r\n$1\r\n1\r\n"
        assert await ask(other, b"n", b"PUBLISH price 2") == b":1\r\n"
        assert await terminal.receive() == b"p:R*4\r\n$8\r\npmessage\r\n$3\r\npr*\r\n$5\r\nprice\r\n$1\r\n2\r\n"
        assert (await ask(terminal, b"h", b"HELLO 3")).startswith(b"%7")
        await running.publish("a", b"3")
        assert await terminal.receive() == b"s:R>3\r\n$7\r\nmessage\r\n$1\r\na\r\n$1\r\n3\r\n"
        assert await ask(terminal, b"u", b"UNSUBSCRIBE a") == b">3\r\n$11\r\nunsubscribe\r\n$1\r\na\r\n:2\r\n"
        assert await ask(terminal, b"u", b"PUNSUBSCRIBE") == b">3\r\n$12\r\npunsubscribe\r\n$3\r\npr*\r\n:1\r\n"
        assert await ask(terminal, b"u", b"PUNSUBSCRIBE") == b">3\r\n$12\r\npunsubscribe\r\n_\r\n:1\r\n"
        for topic, reached in ((b"a", 0), (b"price", 0), (b"b", 1)):
            assert await ask(other, b"n", b"PUBLISH " + topic + b" 4") == b":%d\r\n" % reached
        assert await terminal.receive() == b"s:R>3\r\n$7\r\nmessage\r\n$1\r\nb\r\n$1\r\n4\r\n"
        assert await ask(terminal, b"d", b"SUBSCRIBE @kept") == b">3\r\n$9\r\nsubscribe\r\n$5\r\n@kept\r\n:2\r\n"
        await running.publish("@kept", b"5")
        assert await terminal.receive() == b"d:R>3\r\n$7\r\nmessage\r\n$5\r\n@kept\r\n$1\r\n5\r\n"
