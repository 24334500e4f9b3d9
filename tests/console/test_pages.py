"""Render every page without a browser."""

import re
from pathlib import Path
from typing import Final

from gateway.http.calling import BOB, calling

from wirelake.console.page import ADMINS, SEEN
from wirelake.console.pages import PAGES

NAMES: Final = {"topic": "%40news", "serial": "meter-1"}
PATHS: Final = {"/console/{name}": "/console/style.css", "/identities/{name}": "/identities/bob"}
STREAM: Final = "/console/live"


async def test_every_page_is_served(tmp_path: Path) -> None:
    async with calling(tmp_path, identities=[BOB], devices=[("meter-1", 6, None)]) as caller:
        for route in PAGES:
            if route.method != "GET" or route.path == STREAM:
                continue
            path = PATHS.get(route.path) or re.sub(r"\{(\w+)\}", lambda name: NAMES[name[1]], route.path)
            response = await caller.call("GET", path)
            assert response.status_code == 200, path
            if "html" in response.headers["content-type"]:
                assert "content-security-policy" in response.headers
            seen = await caller.call("GET", path, bearer=":".join(BOB))
            assert seen.status_code == (403 if route.path in {*ADMINS, *SEEN} else 200), path


async def test_a_snapshot_is_streamed(tmp_path: Path) -> None:
    async with calling(tmp_path) as caller:
        headers = {"authorization": f"Bearer {caller.admin_token}"}
        async with caller.client.stream("GET", STREAM, headers=headers) as response:
            assert response.headers["content-type"].startswith("text/event-stream")
            assert (await anext(response.aiter_lines())).startswith('data: {"at_ms":')
