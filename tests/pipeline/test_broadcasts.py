"""Test broadcasts from and to devices, from sockets to the last table: they are decoded, and the ledger balances."""

import asyncio
from pathlib import Path

import polars
from gateway.apostol_client import Meter, StreamMeter, report
from gateway.running_gateway import running_gateway
from pyspark.sql import SparkSession

from pipeline.checking import check_tables, rows_of
from wirelake.pipeline.job import Job, JobSettings

READINGS = bytes.fromhex("01 07 02 d700")  # one of type 7: 215
FLEET = 12


async def spoken(folder: Path) -> None:
    """Let m0 broadcast readings, an unknown device try to, and the gateway broadcast to all devices at once."""
    serials = [f"m{number}" for number in range(FLEET)]
    devices = [(serial, 6, None) for serial in serials]
    async with running_gateway(folder, "apostol", devices=devices) as running:
        port = running.port("apostol")
        async with await StreamMeter.connect(port) as meter, await Meter.connect(port) as stranger:
            for serial in reversed(serials):
                meter.send(report(serial, 1, b"hello", device_type=6)[0])
                await meter.receive()
            first, second = report("", 2, READINGS, command_type=4, device_type=0xFF, data_bytes=8)
            (unfinished, _) = report("", 3, READINGS, command_type=4, device_type=0xFF, data_bytes=8)
            for packet in (second, first, first, unfinished):
                meter.send(packet)
                await meter.receive()
            stranger.send(first)
            await running.recorded("refuse")
            for peer in running.gateway.devices.peers.values():  # what is a matter of chance, one in 256
                peer.session._next_no = 77  # type: ignore[attr-defined]
            outcome = await running.broadcast(0x82, b"all", wait_ms=50)
            assert (outcome["devices"], outcome["answered"]) == (FLEET, 0)


def test_broadcasts_are_decoded_and_the_ledger_balances(spark: SparkSession, tmp_path: Path) -> None:
    asyncio.run(spoken(tmp_path))
    data = tmp_path / "data"
    Job(spark, data, JobSettings(once=True), gold=True).run()
    check_tables(data)
    commands = rows_of(data, "silver.device_commands").filter(polars.col("device_type") == 255)
    received = commands.filter(polars.col("direction") == "in").sort("command_no")
    assert received.select("serial", "command_no", "command_type").rows() == [("m0", 2, 4), ("m0", 3, None)]
    assert received["state"][0] == "complete"
    sent = commands.filter(polars.col("direction") == "out")
    assert sorted(sent["serial"]) == sorted(f"m{number}" for number in range(FLEET))
    assert set(sent["command_no"]) == {77}
    assert rows_of(data, "silver.readings").select("serial", "type", "value").rows() == [("m0", 7, 215.0)]
    latest = rows_of(data, "gold.device_latest").filter(polars.col("serial") == "m0")
    assert latest.select("device_type", "readings").rows() == [(6, '{"7":215.0}')]
    messages = rows_of(data, "silver.messages").filter(polars.col("protocol") == "apostol")
    assert len(messages.filter((polars.col("direction") == "in") & (polars.col("identity") == "m0"))) == 5
    ledger = rows_of(data, "gold.ledger")
    assert set(ledger["balanced"]) == {True}, ledger["why"].to_list()
