"""Tables of a data set for the tests of sisdb."""

from typing import Any

from gateway.running_gateway import Running
from gateway.sisnet_client import Terminal

OPEN: dict[str, Any] = {"auth": {"open": True}}
DAY = [["time", "I", 8, 1], ["open", "F", 8, 1], ["name", "C", 8, 1]]


async def connect_terminal(running: Running) -> Terminal:
    return await Terminal.connect(running, "terminal", "t0ken")


async def fill_tables(terminal: Terminal) -> None:
    """Create two tables with a layout, and store records of three keys."""
    assert await terminal.sisdb("create", key="a", sdb="day,min", fields=DAY) == "ok"
    for place, key in enumerate("abc"):
        rows = [[time, time + place / 10, key] for time in (30, 10, 20)]
        assert await terminal.sisdb("set", key=key, sdb="day", data=rows) == "ok"
    assert await terminal.sisdb("set", key="a", sdb="min", data={"time": 1, "open": 2.5, "name": "ä"}) == "ok"
