"""Reloading the settings of a running gateway."""

import asyncio
import ssl
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cryptography import x509

from gateway.apostol_client import Meter, report
from gateway.certificates import make_certificate
from gateway.comet_client import Phone
from gateway.running_gateway import HOST, Running, running_gateway, until
from wirelake.config import Settings, settings_type
from wirelake.errors import InputError
from wirelake.gateway.reload import Reloaded
from wirelake.log.segments.settings import RetentionLimits
from wirelake.protocols.apostol.constants import SEALED
from wirelake.protocols.comet import frames


def changed(running: Running, **sections: Any) -> Settings:
    now: dict[str, Any] = msgspec.to_builtins(running.gateway.settings)
    for name, values in sections.items():
        now[name] = now[name] | values if isinstance(values, dict) else values
    return msgspec.convert(now, settings_type())


def tls_files(folder: Path, name: str) -> dict[str, str]:
    cert, key = make_certificate(folder, name)
    return {"cert": str(cert), "key": str(key)}


async def certificate_name(port: int) -> str:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    _, writer = await asyncio.open_connection(HOST, port, ssl=context)
    certificate = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    (name,) = x509.load_der_x509_certificate(certificate).subject
    return str(name.value)


async def test_without_a_change_nothing_is_said(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, "comet") as running:
        assert running.gateway.reload(running.gateway.settings) == Reloaded()


async def test_limits_hold_at_once(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, "comet") as running, await Phone.connect(running.port("comet")) as phone:
        assert await phone.ask(frames.Heartbeat()) == frames.Ok()
        new = changed(running, limits={"connections": 1, "failed_logins": 2, "pending_bytes": 4096})
        reloaded = running.gateway.reload(new)
        assert reloaded.kept == []
        assert reloaded.applied == [
            "limits.connections: 20000 → 1",
            "limits.pending_bytes: 1048576 → 4096",
            "limits.failed_logins: 10 → 2",
        ]
        async with await Phone.connect(running.port("comet")):
            await until(lambda: running.gateway.counters.refused["comet", "connections_max"])
        assert running.gateway.logins.failures.failed_max == 2
        assert await phone.ask(frames.Heartbeat()) == frames.Ok(), "who was there stays"


async def test_new_sessions_are_made_with_the_new_settings(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, "comet", identities=[("ann", "t")]) as running:
        port = running.port("comet")
        running.gateway.reload(changed(running, comet={"require_key": True}))
        async with await Phone.connect(port, "ann", "t") as phone:
            phone.send(frames.GetTopicList())
            assert await phone.receive_error() == 5
        running.gateway.reload(changed(running, comet={"require_key": False}, auth={"open": True}))
        async with await Phone.connect(port, "anybody", "at all") as phone:
            assert await phone.ask(frames.GetTopicList()) == frames.TopicList(())


async def test_devices_heard_from_then_on_are_met_with_the_new_settings(tmp_path: Path) -> None:
    key = bytes(range(16))
    async with (
        running_gateway(tmp_path, "apostol", devices=[("1234", 0, key)]) as running,
        await Meter.connect(running.port("apostol")) as meter,
    ):
        assert running.gateway.reload(changed(running, apostol={"require_seal": True})).applied
        (packet,) = report("1234", 1, b"in clear")
        meter.send(packet)
        await meter.receive()
        await running.recorded("frame", 2, protocol="apostol")
        assert not running.records("publish"), "a command in clear is refused now"
        (sealed,) = report("1234", 2, b"sealed", params=SEALED, seal_with=(key, bytes(12)))
        meter.send(sealed)
        await running.recorded("publish")


async def test_the_broker_and_the_sweep_hear_of_it(tmp_path: Path) -> None:
    async with running_gateway(tmp_path) as running:
        gateway = running.gateway
        new = {"slow": "conflate", "resend_s": 7, "expire_s": 9, "devices_topic": "@meters"}
        assert len(gateway.reload(changed(running, broker=new)).applied) == 4
        assert gateway.broker.slow_consumers.conflate
        assert gateway.broker.durable.resend_s == 7
        assert gateway.broker.devices_topic == "@meters"
        assert gateway.sweeper.keep_ms == 9000


async def test_what_takes_a_restart_is_named_and_left_as_it_is(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, "comet") as running:
        before = running.gateway.settings
        new = changed(running, data="elsewhere", listen={"comet": "off"}, log={"segment_mb": 1}, auth={"open": True})
        reloaded = running.gateway.reload(new)
        assert [change.partition(":")[0] for change in reloaded.kept] == ["data", "listen.comet", "log.segment_mb"]
        assert reloaded.applied == ["auth.open: False → True"]
        after = running.gateway.settings
        assert (after.data, after.listen, after.log) == (before.data, before.listen, before.log)
        assert after.auth.open
        assert running.gateway.reload(new).kept == reloaded.kept, "it is said again until it is done"


async def test_credentials_of_the_lake_are_not_said(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, "comet") as running:
        lake = {"url": "s3://bucket", "options": {"aws_secret_access_key": "hidden"}}
        reloaded = running.gateway.reload(changed(running, lake=lake))
        assert reloaded.kept == ["lake.url:  → s3://bucket", "lake.options.aws_secret_access_key: changed"]
        assert running.gateway.settings.lake.url == ""


async def test_tls_files_are_read_again(tmp_path: Path) -> None:
    tls = tls_files(tmp_path / "tls", "first")
    async with running_gateway(tmp_path, "comet", "http", tls=tls) as running:
        assert await certificate_name(running.port("comet")) == "first"
        tls_files(tmp_path / "tls", "second")
        reloaded = running.gateway.reload(running.gateway.settings)
        assert (reloaded.tls, reloaded.applied, reloaded.kept) == (True, [], [])
        for listener in ("comet", "http"):
            assert await certificate_name(running.port(listener)) == "second"
        elsewhere = tls_files(tmp_path / "other", "third")
        assert len(running.gateway.reload(changed(running, tls=elsewhere)).applied) == 2
        assert await certificate_name(running.port("comet")) == "third"


async def test_files_that_cannot_be_used_change_nothing(tmp_path: Path) -> None:
    tls = tls_files(tmp_path / "tls", "first")
    async with running_gateway(tmp_path, "comet", tls=tls) as running:
        other = tls_files(tmp_path / "other", "second")
        mixed = {"cert": tls["cert"], "key": other["key"]}
        with pytest.raises(InputError, match=r"cannot use the files in \[tls\]"):
            running.gateway.reload(changed(running, tls=mixed, limits={"connections": 1}))
        assert running.gateway.admission.unauthenticated_max > 1
        assert await certificate_name(running.port("comet")) == "first"


async def test_tls_is_neither_begun_nor_ended_by_a_reload(tmp_path: Path) -> None:
    tls = tls_files(tmp_path / "tls", "first")
    async with running_gateway(tmp_path, "comet") as running:
        reloaded = running.gateway.reload(changed(running, tls=tls))
        assert [change.partition(":")[0] for change in reloaded.kept] == ["tls.cert", "tls.key"]
        assert running.gateway.settings.tls.cert == ""


async def test_limits_of_the_log_hold_at_once(tmp_path: Path) -> None:
    async with running_gateway(tmp_path) as running:
        log = {"keep_days": 1, "keep_bytes": 10**9, "disk_bytes_max": 2 * 10**9, "fsync": False}
        reloaded = running.gateway.reload(changed(running, log=log))
        assert reloaded.applied == [
            "log.keep_days: 30 → 1",
            "log.keep_bytes: 0 → 1000000000",
            "log.disk_bytes_max: 0 → 2000000000",
        ]
        assert reloaded.kept == ["log.fsync: True → False"]
        assert running.gateway.log.retention_limits == RetentionLimits(1.0, 10**9, 2 * 10**9)
        assert running.gateway.settings.log.fsync
        before = running.gateway.settings
        small = changed(running, log={"segment_mb": 1, "keep_bytes": 0, "disk_bytes_max": 4 * 1024 * 1024})
        with pytest.raises(InputError, match=r"below 3 segments of log\.segment_mb = 64"):
            running.gateway.reload(small)  # the size of segments takes a restart
        assert running.gateway.settings == before
