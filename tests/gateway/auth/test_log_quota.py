"""The log quota of peers before the login: beyond it, they are read more slowly, or dropped and counted."""

import asyncio
import os
from collections import Counter
from pathlib import Path

import httpx

from gateway.comet_client import Phone
from gateway.hostile_peers import check_still_served, open_device_socket, wait_for_packets
from gateway.running_gateway import HOST, Running, running_gateway, until
from wirelake.config import LimitsSection
from wirelake.gateway.auth.admission import Admission, LogQuota, Slot
from wirelake.limits import GATEWAY_QUOTA_BURST_S, GATEWAY_QUOTA_WAIT_S, KIB
from wirelake.protocols.apostol.constants import FIRST, LAST
from wirelake.protocols.apostol.frames import Packet
from wirelake.protocols.comet import frames

PHONE = ("phone", "t0ken")
STATUS = bytes.fromhex("a6530c5e010000000400000000029c530c5e")
LITTLE = {"unauthenticated_records": 20}
BURST = int(LITTLE["unauthenticated_records"] / 2 * GATEWAY_QUOTA_BURST_S)  # of one address


def test_a_quota_is_one_for_each_address_and_one_in_all() -> None:
    quota = LogQuota(LimitsSection(**LITTLE), 0.0)
    assert all(quota.admits("a", 10, 0.0) for _ in range(BURST))
    assert not quota.admits("a", 10, 0.0)
    assert all(quota.admits("b", 10, 0.0) for _ in range(BURST))
    assert not quota.admits("c", 10, 0.0), "all of it is used up"
    assert quota.admits("a", 10, 1.0)
    assert quota.admits("c", 10, 1.0)


def test_a_quota_of_bytes() -> None:
    quota = LogQuota(LimitsSection(unauthenticated_log_bytes=200), 0.0)
    assert quota.admits("a", 1000, 0.0)
    assert not quota.admits("a", 1, 0.0)
    assert quota.admits("a", 100, 1.0)
    assert quota.charge("a", 1, 200, 1.0) == 2.0


def test_what_a_login_took_is_given_back() -> None:
    admission = Admission(LimitsSection(**LITTLE), lambda: 0.0)
    for _ in range(10 * BURST):
        slot = admission.enter("a:1")
        assert isinstance(slot, Slot)
        assert slot.charge(2, 100) == 0.0
        slot.authenticate()
        slot.release()
    strangers = 0
    while isinstance(slot := admission.enter("a:1"), Slot):
        slot.release()
        strangers += 1
    assert slot == "unauthenticated_records"
    assert strangers == (BURST + GATEWAY_QUOTA_WAIT_S * 10) // 2
    assert (admission.open, admission.unauthenticated) == (0, 0)


def sums(running: Running) -> tuple[Counter[str], Counter[str]]:
    """Return how many apostol frames the log's counters report as recorded and as dropped."""
    recorded: Counter[str] = Counter()
    dropped: Counter[str] = Counter()
    for row in running.records("counters"):
        for protocols in row["note"]["hours"].values():
            recorded.update(protocols.get("apostol", {}))
        dropped.update(row["note"].get("dropped", {}).get("apostol", {}))
    return recorded, dropped


async def test_garbage_by_udp_fills_no_disk_and_everything_is_counted(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, "apostol", "http", devices=[("1", 6, None)], limits=LITTLE) as running:
        gateway = running.gateway
        transport, device = await open_device_socket(running)
        garbage = strangers = 300
        for number in range(garbage):
            transport.sendto(b"\x00" + os.urandom(200))
            transport.sendto(Packet(1, FIRST | LAST, 6, f"unknown {number}", 1, 0, STATUS).encode())
            await asyncio.sleep(0.001)
        transport.sendto(Packet(1, FIRST | LAST, 6, "1", 1, 0, STATUS).encode())
        await wait_for_packets(device, 1)
        assert gateway.counters.refused["apostol", "unknown_device"] == strangers
        gateway.recorder.counters()
        await running.recorded("counters", 2)
        recorded, dropped = sums(running)
        quarantined, refused = len(running.records("quarantine")), len(running.records("refuse"))
        assert BURST <= quarantined + refused < 2 * BURST + 100
        assert (quarantined + dropped["quarantine"], refused + dropped["refuse"]) == (garbage, strangers)
        assert dropped == Counter({event: count for (_, event), count in gateway.recorder.dropped.items()})
        assert recorded["quarantined"] == quarantined, "what was dropped is not counted as recorded"
        assert recorded["in"] == len(running.records("frame", direction="in", protocol="apostol"))
        async with httpx.AsyncClient() as client:
            metrics = (await client.get(f"http://{HOST}:{running.port('http')}/metrics")).text
        assert f'wirelake_dropped_records_total{{event="refuse",protocol="apostol"}} {dropped["refuse"]}.0' in metrics
        transport.close()
        await asyncio.sleep(0)


async def test_heartbeats_before_the_login_are_read_slowly_and_in_the_end_no_more(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, "comet", identities=[PHONE], limits=LITTLE) as running:
        gateway = running.gateway
        async with await Phone.connect(running.port("comet")) as phone:
            phone.write(frames.Heartbeat().encode() * 10_000)
            await until(lambda: gateway.counters.closed["comet", "unauthenticated_records"] == 1)
        await running.recorded("close")
        heartbeats = len(running.records("frame", direction="in"))
        assert heartbeats == gateway.counters.frames_in["comet"], "what was read is in the log"
        assert heartbeats < 10_000


async def test_connections_that_come_and_go_are_refused_in_the_end(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, "comet", identities=[PHONE], limits=LITTLE) as running:
        gateway = running.gateway
        for _ in range(150):
            _, writer = await asyncio.open_connection(HOST, running.port("comet"))
            writer.close()
        await until(lambda: gateway.counters.refused["comet", "unauthenticated_records"] > 0)
        await until(lambda: not gateway.connections)
        await running.recorded("close", gateway.counters.accepted["comet"])
        assert len(running.records("open")) == gateway.counters.accepted["comet"] < 150


async def test_those_who_log_in_use_up_nothing(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, "comet", identities=[PHONE], limits=LITTLE) as running:
        for _ in range(2 * BURST):
            async with await Phone.connect(running.port("comet"), *PHONE):
                pass
        await check_still_served(running)
        assert not running.gateway.recorder.dropped


async def test_long_garbage_is_bounded_in_bytes(tmp_path: Path) -> None:
    limits = {"unauthenticated_log_bytes": 20 * KIB}
    async with running_gateway(tmp_path, "apostol", devices=[("1", 6, None)], limits=limits) as running:
        transport, device = await open_device_socket(running)
        for _ in range(100):
            transport.sendto(b"\x00" + os.urandom(20 * KIB))
            await asyncio.sleep(0.001)
        transport.sendto(Packet(1, FIRST | LAST, 6, "1", 1, 0, STATUS).encode())
        await wait_for_packets(device, 1)
        quarantined_bytes = sum(len(row["frame"]) for row in running.records("quarantine"))
        assert 0 < quarantined_bytes < 400 * KIB
        assert running.gateway.recorder.dropped_bytes["apostol", "quarantine"] > 1000 * KIB
        transport.close()
        await asyncio.sleep(0)
