"""Who may report for which device."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.apostol_client import Meter, StreamMeter, report
from gateway.devices.station_protocol import Report
from gateway.devices.test_reporting_clients import NORTH, READING, gateway, station
from gateway.identities import assign
from gateway.installed_protocol import installed_protocols
from gateway.running_gateway import running_gateway
from wirelake.protocols.apostol.constants import SEALED

ROLES = {"roles": {"sensors": {"publish": ["@devices/sensor-*"]}, "none": {}}}
KEY, OTHER_KEY = bytes(range(16)), bytes(16)


@pytest.fixture(autouse=True)
def _installed() -> Iterator[None]:
    with installed_protocols({"station": "gateway.devices.station_protocol:PROTOCOL"}):
        yield


async def test_a_station_reports_for_itself_whatever_its_role_and_for_others_by_its_role(tmp_path: Path) -> None:
    async with gateway(tmp_path, **ROLES) as caller:
        await assign(caller, "north", "sensors")
        async with station(caller, *NORTH) as north:
            await north.report(READING, Report("north", 1, 2, door=False), Report("sensor-1", 1, 2, door=False))
        await assign(caller, "north", "none")
        async with station(caller, *NORTH) as north:
            await north.report(READING)
        topics = [row["note"]["topic"] for row in caller.records("publish")]
        assert topics == ["@devices/north", "@devices/north", "@devices/sensor-1", "@devices/north"]
        assert caller.records("deny") == []


@pytest.mark.parametrize("topic", ["@devices", "live", ""])
async def test_a_report_for_another_device_is_not_confirmed_and_changes_nothing(tmp_path: Path, topic: str) -> None:
    async with gateway(tmp_path, broker={"devices_topic": topic}, **ROLES) as caller:
        await assign(caller, "north", "sensors")
        async with station(caller, *NORTH) as north:
            north.send(Report("south", 999, 9, door=False))
            with pytest.raises(EOFError):
                await north.receive()
        (row,) = await caller.recorded("deny")
        assert (row["identity"], row["note"]) == ("north", {"action": "publish", "target": f"{topic}/south"})
        assert "south" not in caller.gateway.broker.devices
        assert "south" not in caller.gateway.broker.devices.latest
        assert caller.records("publish") == []


@pytest.mark.parametrize("kind", [Meter, StreamMeter])
async def test_an_apostol_device_speaks_only_for_its_own_serial(tmp_path: Path, kind: type[Meter]) -> None:
    """One that has a key cannot be spoken for without it, from whatever address or connection."""
    devices = [("mine", 6, OTHER_KEY), ("safe", 6, KEY)]
    apostol = {"require_seal": True}
    async with (
        running_gateway(tmp_path, "apostol", devices=devices, apostol=apostol) as running,
        await kind.connect(running.port("apostol")) as meter,
    ):
        (own,) = report("mine", 1, b"1", device_type=6, params=SEALED, seal_with=(OTHER_KEY, bytes(12)))
        meter.send(own)
        assert (await meter.receive()).serial == "mine"
        await running.recorded("publish")
        for forged in (
            report("safe", 2, b"2", device_type=6, params=SEALED, seal_with=(OTHER_KEY, bytes(12))),
            report("safe", 3, b"3", device_type=6),
            report("nobody", 4, b"4", device_type=6),
        ):
            meter.send(b"".join(forged))
        (own,) = report("mine", 5, b"5", device_type=6, params=SEALED, seal_with=(OTHER_KEY, bytes([1] * 12)))
        meter.send(own)
        rows = await running.recorded("publish", 2)
        assert {(row["note"]["topic"], row["note"]["by"]) for row in rows} == {("@devices/mine", "mine")}
        assert set(running.gateway.broker.devices.latest) == {"mine"}
