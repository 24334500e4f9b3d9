"""The redis clients of most applications, unchanged, with the calls that they make most: redis-py, node-redis, ioredis.

node-redis and ioredis are installed from npm into a temporary folder, in the versions of `node/package-lock.json`.
"""

import asyncio
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import redis
import redis.asyncio

from gateway.running_gateway import HOST, Running, running_gateway

APP = ("app", "t0ken")
NODE = Path(__file__).parent / "node"
NODE_MAJOR = 20  # the first that both libraries support
INSTALL_S = 300.0
SUITE_S = 120.0  # a whole suite; only a failing test waits so long


@pytest.fixture(scope="session")
def node_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Provide a folder with the suites and the libraries."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        pytest.skip("NOT TESTED: node-redis and ioredis, because node or npm is missing (Node 20 or later has both)")
    version = subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout
    if int(version.lstrip("v").split(".")[0]) < NODE_MAJOR:
        pytest.skip(f"NOT TESTED: node-redis and ioredis, because node is {version.strip()}: {NODE_MAJOR} is needed")
    folder = tmp_path_factory.mktemp("node")
    for file in NODE.iterdir():
        if file.is_file():
            shutil.copy(file, folder)
    words = [npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts"]
    installed = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=INSTALL_S, check=False)
    if installed.returncode:
        pytest.skip(
            f"NOT TESTED: node-redis and ioredis, because npm could not install them: {installed.stderr[-500:]}"
        )
    return folder


async def run_suite(running: Running, folder: Path, suite: str, *words: str) -> None:
    node = shutil.which("node")
    assert node is not None
    pipe = asyncio.subprocess.PIPE
    command = [node, suite, HOST, str(running.port("redis")), *APP, *words]
    process = await asyncio.create_subprocess_exec(*command, cwd=folder, stdout=pipe, stderr=asyncio.subprocess.STDOUT)
    try:
        async with asyncio.timeout(SUITE_S):
            printed, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, printed.decode()
    assert b"done" in printed, printed.decode()


@pytest.mark.parametrize("version", ["2", "3"])
async def test_node_redis(tmp_path: Path, node_folder: Path, version: str) -> None:
    async with running_gateway(tmp_path, "redis", identities=[APP]) as running:
        await run_suite(running, node_folder, "node_redis.mjs", version)


async def test_ioredis(tmp_path: Path, node_folder: Path) -> None:
    async with running_gateway(tmp_path, "redis", identities=[APP]) as running:
        await run_suite(running, node_folder, "ioredis.mjs")


@pytest.mark.filterwarnings("ignore:Call to deprecated:DeprecationWarning")  # SETEX and others, which are still in use
@pytest.mark.parametrize("version", [2, 3])
async def test_redis_py(tmp_path: Path, version: int) -> None:
    async with running_gateway(tmp_path, "redis", identities=[APP]) as running:
        connect: dict[str, Any] = {"username": APP[0], "password": APP[1], "protocol": version}
        client: Any = redis.asyncio.Redis(host=HOST, port=running.port("redis"), decode_responses=True, **connect)
        async with client:
            await strings_and_keys(client)
            await hashes_and_transactions(client)
            await streams(client, version)
            await about_the_connection(client)


async def strings_and_keys(client: Any) -> None:
    assert await client.ping() is True
    assert await client.set("k", "v", ex=100) is True
    assert await client.set("k", "w", nx=True) is None
    assert await client.get("k") == "v"
    assert await client.setex("soon", 100, "over") is True
    assert await client.psetex("sooner", 100_000, "over") is True
    assert await client.persist("soon") is True
    assert await client.ttl("soon") == -1
    assert await client.mset({"a": 1, "b": 2}) is True
    assert await client.mget("a", "b", "none") == ["1", "2", None]
    assert await client.incr("a") == 2
    assert await client.incrby("a", 10) == 12
    assert await client.decr("a") == 11
    assert await client.decrby("a", 5) == 6
    assert await client.append("k", "!") == 2
    assert await client.strlen("k") == 2
    assert await client.getset("k", "new") == "v!"
    assert await client.getdel("k") == "new"
    assert await client.exists("k", "a") == 1
    assert await client.type("a") == "string"
    assert await client.dbsize() == 4
    assert sorted([key async for key in client.scan_iter("soon*", count=1)]) == ["soon", "sooner"]
    assert await client.delete("soon", "sooner") == 2
    with pytest.raises(redis.exceptions.NoPermissionError):
        await client.flushdb()
    with pytest.raises(redis.ResponseError, match="unknown command"):
        await client.lpush("l", "x")


async def hashes_and_transactions(client: Any) -> None:
    assert await client.hset("h", mapping={"f": "1", "g": "2"}) == 2
    assert await client.hget("h", "f") == "1"
    assert await client.hgetall("h") == {"f": "1", "g": "2"}
    assert await client.hmget("h", "g", "none") == ["2", None]
    assert await client.hdel("h", "f") == 1
    assert await client.type("h") == "hash"
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        await client.get("h")
    async with client.pipeline(transaction=True) as pipe:
        assert await pipe.set("t", 1).incr("t").hgetall("h").get("none").execute() == [True, 2, {"g": "2"}, None]
        with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
            await pipe.incr("h").execute()
        await pipe.watch("t")
        await client.set("t", "changed")
        pipe.multi()
        pipe.set("t", "mine")
        with pytest.raises(redis.WatchError):
            await pipe.execute()
    assert await client.get("t") == "changed"


async def streams(client: Any, version: int) -> None:
    first = await client.xadd("@stream", {"title": "hello", "by": "ann"})
    second = await client.xadd("@stream", {"title": "again"})
    wanted = [(first, {"title": "hello", "by": "ann"}), (second, {"title": "again"})]
    assert await client.xrange("@stream") == wanted
    assert await client.xrange("@stream", count=1) == wanted[:1]
    read = await client.xread({"@stream": first}, count=10)
    assert read == ([["@stream", wanted[1:]]] if version == 2 else {"@stream": [wanted[1:]]})
    assert not await client.xread({"@stream": "$"}, block=1)
    waiting = asyncio.create_task(client.xread({"@stream": second}, block=60_000))
    await client.xadd("@stream", {"title": "at last"})
    assert "at last" in str(await waiting)


async def about_the_connection(client: Any) -> None:
    async with client.client() as own:
        assert await own.client_setname("shop") is True
        assert (await own.client_info())["name"] == "shop"
        assert [each["name"] for each in await own.client_list()] == ["shop"]
    assert (await client.info())["redis_mode"] == "standalone"
