"""A box's client against a real gateway."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from gateway.running_gateway import HOST, WAIT_S, Running, running_gateway, until

from wirelake.backoff import Backoff
from wirelake.clients.apostol import ApostolDevice, DeviceRequest
from wirelake.clients.client import ClientOptions
from wirelake.clients.esnp import EsnpClient
from wirelake.clients.magline import MaglineClient
from wirelake.clients.notification import Notification
from wirelake.clients.serving import ServiceError, ServiceRequest
from wirelake.errors import AnswerError, InputError, LostError, RefusedError, StateError, TranslationError
from wirelake.protocols.magline.session import SessionSettings

BOX = ("box", "secret")


def box(running: Running, **options: Any) -> MaglineClient:
    options.setdefault("options", ClientOptions(backoff=Backoff(first_s=0.01, max_s=0.05)))
    return MaglineClient(HOST, running.port("magline"), *BOX, **options)


@asynccontextmanager
async def gateway(folder: Path, *listeners: str, **options: Any) -> AsyncIterator[Running]:
    async with running_gateway(folder, "magline", *listeners, identities=[BOX], **options) as running:
        yield running


def cut(running: Running, protocol: str = "magline") -> None:
    """The network fails."""
    for connection in list(running.gateway.connections.values()):
        if connection.protocol == protocol:
            connection.abort()


async def take(client: MaglineClient, count: int, *, ack: bool = True) -> list[Notification]:
    found: list[Notification] = []
    async with asyncio.timeout(WAIT_S), aclosing(client.notifications(ack=ack)) as notifications:
        async for notification in notifications:
            found.append(notification)
            if len(found) == count:
                if ack:
                    await client.ack(notification.id)
                break
    return found


@pytest.mark.parametrize("little", [False, True])
async def test_publish_receive_and_ack(tmp_path: Path, little: bool) -> None:
    async with gateway(tmp_path) as running, box(running, little=little) as client:
        await client.subscribe("@news", "live")
        published = await client.publish("@news", b"\xff\x00 no text")
        (notification,) = await take(client, 1, ack=False)
        assert (notification.id, notification.topic, notification.content) == (published, "@news", b"\xff\x00 no text")
        assert [each.id for each in running.waiting("box")] == [published]
        await client.ack(published)
        assert running.waiting("box") == []
        assert await client.publish("live", "only now") == ""
        assert (await client.next_notification(WAIT_S)).text == "only now"
        await client.unsubscribe("@news", "live")
        await client.publish("@news", "not received")
        assert running.waiting("box") == []
        await client.ping()


async def test_what_is_taken_is_acked_when_the_next_is_requested(tmp_path: Path) -> None:
    async with gateway(tmp_path) as running:
        async with box(running) as client:
            await client.subscribe("@news")
            for number in range(50):
                await running.publish("@news", str(number))
            taken = await take(client, 50)
            assert [each.text for each in taken] == [str(number) for number in range(50)]
            await until(lambda: running.waiting("box") == [])
            await running.publish("@news", "unfinished")
            async with aclosing(client.notifications()) as notifications:
                assert (await anext(notifications)).text == "unfinished"
        assert [each.content for each in running.waiting("box")] == [b"unfinished"], "its work was not finished"


async def test_services_are_called_by_number(tmp_path: Path) -> None:
    async def handler(request: ServiceRequest) -> Any:
        assert (request.service, request.op) == ("magline/17", "call")
        if request.value == b"refuse":
            raise ServiceError("not today")
        return request.value[::-1] if request.value else None

    async with (
        gateway(tmp_path, "esnp") as running,
        EsnpClient(HOST, running.port("esnp"), *BOX) as provider,
        box(running) as client,
    ):
        await provider.register("magline/17", handler)
        assert await client.call(17, b"\x00\xff!") == b"!\xff\x00"
        assert await client.call(17) == b""
        with pytest.raises(AnswerError) as failed:
            await client.call(17, b"refuse")
        assert failed.value.code == 0
        with pytest.raises(AnswerError) as missing:
            await client.call(18)
        assert missing.value.code == 7
        with pytest.raises(InputError, match="reserved for the gateway"):
            await client.call(15)
        with pytest.raises(TranslationError, match="limit"):
            await client.call(17, bytes(1024 * 1024))
        assert await client.call(17, b"on") == b"no", "and goes on"


async def test_a_device_is_commanded(tmp_path: Path) -> None:
    async def answer(request: DeviceRequest) -> bytes:
        return request.data[::-1]

    async with (
        gateway(tmp_path, "apostol", devices=[("m1", 0, None)]) as running,
        ApostolDevice(HOST, running.port("apostol"), "m1", handler=answer) as device,
        box(running) as client,
    ):
        await running.assign(BOX[0], "admin")
        with pytest.raises(AnswerError) as absent:
            await client.command("m2", 0x82)
        assert absent.value.code == 7
        await device.report(2, b"hello")
        response = await client.command("m1", 0x82, b"\x01\x02")
        assert (response["serial"], response["type"], response["error"], response["data"]) == ("m1", 2, 0, "0201")
        with pytest.raises(AnswerError) as wrong:
            await client.command("m1", 2)
        assert wrong.value.code == 2


async def test_a_lost_connection_is_resumed(tmp_path: Path) -> None:
    async with gateway(tmp_path) as running, box(running) as client:
        await client.subscribe("@news", "live")
        assert (client.connections, client.resumed) == (1, 0)
        cut(running)
        await running.publish("@news", "while away")
        assert [each.text for each in await take(client, 1)] == ["while away"]
        assert (client.connections, client.resumed) == (2, 1)
        await running.publish("live", "still subscribed")
        assert (await client.next_notification(WAIT_S)).text == "still subscribed"
        logins = [row["note"].get("resumed", False) for row in await running.recorded("login", 2)]
        assert logins == [False, True]


async def test_a_gateway_that_comes_back_knows_no_session_and_is_logged_in_to_anew(tmp_path: Path) -> None:
    async with gateway(tmp_path) as running:
        port = running.port("magline")
        client = box(running)
        await client.open()
        await client.subscribe("@news", "live")
        pinned = client.server_public
    await until(lambda: not client.connected)
    async with gateway(tmp_path, ports={"magline": port}) as running:
        await client.ping()
        assert (client.connections, client.resumed) == (2, 0)
        assert client.server_public == pinned
        for topic in ("@news", "live"):
            await running.publish(topic, topic)
        assert sorted(each.text for each in await take(client, 2, ack=False)) == ["@news", "live"]
        await client.close()


async def test_acks_outlive_a_lost_connection(tmp_path: Path) -> None:
    async with gateway(tmp_path) as running, box(running) as client:
        await client.subscribe("@news")
        for number in range(5):
            await running.publish("@news", str(number))
        found: dict[str, str] = {}
        async with asyncio.timeout(WAIT_S), aclosing(client.notifications()) as notifications:
            async for notification in notifications:
                found[notification.id] = notification.text  # what was not acked yet comes again
                if notification.text == "2" and client.connections == 1:
                    cut(running)
                if notification.text == "4":
                    await running.publish("@news", "last")
                if notification.text == "last":
                    break
        assert list(found.values())[:5] == [str(number) for number in range(5)]
        await until(lambda: {each.content for each in running.waiting("box")} == {b"last"})


async def test_new_keys(tmp_path: Path) -> None:
    async with gateway(tmp_path) as running, box(running) as client:
        await client.subscribe("@news")
        requests = [asyncio.create_task(client.publish("@news", str(number))) for number in range(3)]
        await client.rekey()
        assert all(await asyncio.gather(*requests))
        assert sorted(each.text for each in await take(client, 3)) == ["0", "1", "2"]
        assert client.connections == 1
        client.drop()
        await client.ping()
        assert (client.connections, client.resumed) == (2, 1), "the session of the new keys"


async def test_the_servers_key_is_pinned(tmp_path: Path) -> None:
    async with gateway(tmp_path) as running:
        async with box(running) as client:
            pinned = client.server_public
        async with box(running, pinned=pinned) as client:
            await client.ping()
        with pytest.raises(RefusedError, match="not the pinned one"):
            await box(running, pinned=os.urandom(32)).open()
        await until(lambda: not running.gateway.connections)
        assert running.gateway.counters.accepted["magline"] == 3, "it does not call again"


async def test_who_is_refused_or_replaced_stays_away(tmp_path: Path) -> None:
    async with gateway(tmp_path) as running:
        for user, token in (("box", "wrong"), ("nobody", "secret")):
            with pytest.raises(RefusedError) as refused:
                await MaglineClient(HOST, running.port("magline"), user, token).open()
            assert refused.value.code == 6
        async with box(running) as first:
            taking = asyncio.create_task(first.next_notification())
            second = box(running)
            second._session_to_resume = first._session_to_resume
            await second.open()
            with pytest.raises(RefusedError, match="FIN 5"):
                await asyncio.wait_for(taking, WAIT_S)
            assert second.resumed == 1
            await second.close()


async def test_open_requests_fail_when_the_connection_is_lost(tmp_path: Path) -> None:
    async def never(_: ServiceRequest) -> Any:
        await asyncio.Event().wait()

    async with (
        gateway(tmp_path, "esnp") as running,
        EsnpClient(HOST, running.port("esnp"), *BOX) as provider,
        box(running) as client,
    ):
        await provider.register("magline/17", never)
        request = asyncio.create_task(client.call(17))
        await until(lambda: running.gateway.broker.services.open == 1)
        cut(running)
        with pytest.raises(LostError):
            await asyncio.wait_for(request, WAIT_S)
        await client.ping()
    with pytest.raises(StateError):
        await client.ping()


async def test_pings_keep_the_connection(tmp_path: Path) -> None:
    async with (
        gateway(tmp_path, magline={"idle_s": 1.0}) as running,
        box(running, settings=SessionSettings(ping_s=0.05)) as client,
    ):
        await running.recorded("frame", 27, protocol="magline", direction="in")
        assert client.connections == 1
