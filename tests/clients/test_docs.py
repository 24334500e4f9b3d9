"""The programs in docs/clients.md, as they stand there."""

import asyncio
import re
from pathlib import Path
from typing import Any

from gateway.running_gateway import HOST, WAIT_S, running_gateway, until

PAGE = Path(__file__).parent.parent.parent / "docs" / "clients.md"


async def test_the_programs_on_the_page_run(tmp_path: Path) -> None:
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL):
        exec(block, names)  # noqa: S102 (our own page)
    key = bytes(16)
    async with running_gateway(
        tmp_path,
        "comet",
        "apostol",
        "sisnet",
        "magline",
        "esnp",
        identities=[(name, "secret") for name in ("alice", "desk", "box-1", "station-1")],
        devices=[("m-17", 0, key)],
    ) as running:
        phone = asyncio.create_task(names["phone"](HOST, running.port("comet"), "secret"))
        await until(lambda: running.gateway.state.topics.topics_of("alice") == ["@news", "@weather/de"])
        await running.publish("@news", "good morning")
        await running.publish("@weather/de", "good night")
        await asyncio.wait_for(phone, WAIT_S)
        assert running.waiting("alice") == []
        topics = await asyncio.wait_for(names["hasty_phone"](HOST, running.port("comet"), "secret"), WAIT_S)
        assert topics == ["@news", "@weather/de"]
        await asyncio.wait_for(names["meter"](HOST, running.port("apostol"), key), WAIT_S)
        url = f"ws://{HOST}:{running.port('sisnet')}"
        assert await asyncio.wait_for(names["terminal"](url, "secret"), WAIT_S) == {"sum": 6}
        await asyncio.wait_for(names["box"](HOST, running.port("magline"), "secret"), WAIT_S)
        assert running.waiting("box-1") == []
        answers = await asyncio.wait_for(names["station"](HOST, running.port("esnp"), "secret"), WAIT_S)
        assert answers == ({"sum": 3}, {"sum": 7})
        await running.recorded("publish", 7)
