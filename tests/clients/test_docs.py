"""The programs in docs/clients.md, as they stand there."""

import asyncio
import re
from pathlib import Path
from typing import Any

from gateway.running import HOST, WAIT_S, running_gateway, until

PAGE = Path(__file__).parent.parent.parent / "docs" / "clients.md"


def test_the_programs_on_the_page_run(tmp_path: Path) -> None:
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL):
        exec(block, names)  # noqa: S102 (our own page)

    async def work() -> None:
        key = bytes(16)
        async with running_gateway(
            tmp_path, "comet", "apostol", identities=[("alice", "secret")], devices=[("m-17", 0, key)]
        ) as running:
            phone = asyncio.create_task(names["phone"](HOST, running.port("comet"), "secret"))
            await until(lambda: running.gateway.state.topics.subscribed("alice") == ["@news", "@weather/de"])
            await running.publish("@news", "good morning")
            await running.publish("@weather/de", "good night")
            await asyncio.wait_for(phone, WAIT_S)
            assert running.waiting("alice") == []
            await asyncio.wait_for(names["meter"](HOST, running.port("apostol"), key), WAIT_S)
            await running.recorded("publish", 5)

    asyncio.run(work())
