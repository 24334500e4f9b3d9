"""An upstream that is a process of its own: killed without a word, started again, and nobody had to do anything."""

import signal
from pathlib import Path

from cli.serving import free_ports, serving

from gateway.running import HOST, running_gateway, until
from gateway.web_terminal import IDENTITY, WebTerminal

TABLE = {"key": "sh600600", "sdb": "info"}
FIELDS = [["time", "U", 8, 1], ["newp", "F", 8, 1]]
OPEN = "[auth]\nopen = true\n"


async def store(port: int, time: int, price: float) -> None:
    """Directly into the upstream's data set."""
    async with await WebTerminal.call(port) as writer:
        created = await writer.ask("c", service="sisdb", command="create", ask={**TABLE, "fields": FIELDS})
        assert created["ans"] == 0
        row = {**TABLE, "data": [{"time": time, "newp": price}]}
        assert (await writer.ask("w", service="sisdb", command="set", ask=row))["ans"] >= 0


async def test_a_killed_upstream_gets_its_subscriptions_back(tmp_path: Path) -> None:
    ports = dict(zip(("sisnet", "sisnet_tcp"), free_ports(2), strict=True))
    url = f"tcp://{HOST}:{ports['sisnet_tcp']}"
    settings = {"upstreams": [{"name": "back", "url": url, "services": ["sisdb"], "user": "front"}]}
    front_folder, back_folder = tmp_path / "front", tmp_path / "back"
    back_folder.mkdir()
    async with running_gateway(front_folder, "sisnet", identities=[IDENTITY], sisnet=settings) as front:
        there = front.gateway.upstreams.all["back"]
        with serving(back_folder, "sisnet", "sisnet_tcp", text=OPEN, ports=ports) as back:
            await until(lambda: there.ready)
            async with await WebTerminal.call(front.port("sisnet")) as terminal:
                assert await terminal.ask("s", service="sisdb", command="sub", ask=TABLE) == {"ans": 0}
                await store(ports["sisnet"], 1, 9.5)
                assert await terminal.hear("s") == {"ans": 4, "msg": [[1, 9.5]]}
                before = there.id
                back.end(signal.SIGKILL)
                await until(lambda: not there.ready)
                assert (await terminal.ask("g", service="sisdb", command="get", ask=TABLE))["ans"] == -1
                with serving(back_folder, "sisnet", "sisnet_tcp", text=OPEN, ports=ports):
                    await until(lambda: there.ready)
                    assert there.id != before
                    await front.recorded("frame", 2, session=there.id, direction="in")  # the login, and the sub
                    await store(ports["sisnet"], 2, 10.5)
                    assert await terminal.hear("s") == {"ans": 4, "msg": [[2, 10.5]]}
                    answer = await terminal.ask("g", service="sisdb", command="get", ask=TABLE)
                    assert answer == {"ans": 4, "msg": [[1, 9.5], [2, 10.5]]}
        asked = [row["frame"] for row in front.records("frame", identity="back", direction="out")]
        assert sum(b'"command": "sub"' in frame for frame in asked) == 2
