"""Who may fetch from where: the right to call `fetch/HOST`."""

from pathlib import Path
from typing import Any

from gateway.fetch.test_fetcher import answer, fetch, redirecting, saying, site
from gateway.identities import assign
from gateway.running_gateway import HOST, running_gateway
from gateway.sisnet_client import IDENTITY, WebTerminal

ROLES = {"local": {"call": [f"fetch/{HOST}"]}, "other": {"call": ["fetch/api.com", "math/*"]}}


async def test_a_role_names_the_hosts(tmp_path: Path) -> None:
    async with site(saying(answer(b"[1]"))) as (there, port):
        url = f"http://{HOST}:{port}/"
        async with (
            running_gateway(tmp_path, "sisnet", identities=[IDENTITY], fetch={"allow": [url]}, roles=ROLES) as running,
            await WebTerminal.connect(running.port("sisnet")) as terminal,
        ):
            fetched = {"ans": 3, "msg": [1]}
            assert await fetch(terminal, url) == fetched, "a member calls everything"
            await assign(running, IDENTITY[0], "other")
            assert await fetch(terminal, url) == {"ans": -1, "msg": f"access denied: call fetch/{HOST}"}
            refused = await fetch(terminal, "http://EXAMPLE.com/", "x")
            assert refused == {"ans": -1, "msg": "access denied: call fetch/example.com"}, "before the list of URLs"
            assert len(there.asked) == 1
            await assign(running, IDENTITY[0], "local")
            assert await fetch(terminal, url) == fetched


async def test_a_redirect_needs_the_right_to_its_host_too(tmp_path: Path) -> None:
    async with site(saying(b"")) as (there, port):
        url, elsewhere = f"http://{HOST}:{port}/", f"http://localhost:{port}/"
        there.serve = redirecting(302, elsewhere)
        settings: dict[str, Any] = {"fetch": {"allow": [url, elsewhere]}, "roles": ROLES}
        async with (
            running_gateway(tmp_path, "sisnet", identities=[IDENTITY], **settings) as running,
            await WebTerminal.connect(running.port("sisnet")) as terminal,
        ):
            assert await fetch(terminal, url, "start") == {"ans": 3, "msg": [1]}
            assert len(there.asked) == 2
            await assign(running, IDENTITY[0], "local")
            refused = await fetch(terminal, url, "start")
            assert refused == {"ans": -1, "msg": "access denied: call fetch/localhost"}
            assert len(there.asked) == 3
            (row,) = await running.recorded("deny")
            assert row["note"] == {"action": "call", "target": "fetch/localhost"}
