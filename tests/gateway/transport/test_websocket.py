"""sisnet over WebSocket, with the client of the websockets library."""

import asyncio
import json
from pathlib import Path

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from gateway.running_gateway import HOST, WAIT_S, running_gateway
from gateway.sisnet_client import IDENTITY, ask_over, log_in, receive_from, receive_until_closed, websocket_url
from wirelake.clients.comet import CometClient

PHONE = ("phone", "t0ken")


async def test_a_browser_and_a_phone_on_one_topic(tmp_path: Path) -> None:
    async with (
        running_gateway(tmp_path, "sisnet", "comet", identities=[IDENTITY, PHONE]) as running,
        connect(websocket_url(running)) as socket,
        CometClient(HOST, running.port("comet"), *PHONE) as phone,
    ):
        await log_in(socket)
        await phone.subscribe("@news")
        assert (await ask_over(socket, "s1", service="wirelake", command="subscribe", ask={"topic": "@news"}))[
            "ans"
        ] == 0
        request = {"topic": "@news", "content": "from the browser"}
        await socket.send(f"p1:{json.dumps({'service': 'wirelake', 'command': 'publish', 'ask': request})}")
        async with asyncio.timeout(WAIT_S):
            received = [str(await socket.recv()), str(await socket.recv())]
            notification = await phone.next_notification()
        assert notification.content == b"from the browser"
        assert any(message.startswith("s1:") and "from the browser" in message for message in received)
        assert any(message.startswith("p1:") for message in received)
        frames = await running.recorded("frame", 3, protocol="sisnet", direction="in")
        assert frames[0]["frame"].startswith(b"in:{"), "the log has the message, not its WebSocket frame"


async def test_a_topics_last_value_greets_whoever_subscribes_later(tmp_path: Path) -> None:
    async with (
        running_gateway(tmp_path, "sisnet", "comet", "http", identities=[IDENTITY, PHONE]) as running,
        connect(websocket_url(running)) as socket,
        CometClient(HOST, running.port("comet"), *PHONE) as phone,
        httpx.AsyncClient(timeout=WAIT_S) as web,
    ):
        headers = {"Authorization": f"Bearer {running.gateway.keys.admin_token()}"}
        url = f"http://{HOST}:{running.port('http')}/api/topics/%40price/notifications"
        for content, retain in (("1", True), ("2", True), ("3", False)):
            answer = await web.post(url, json={"content": content, "retain": retain}, headers=headers)
            assert answer.status_code == 201
        await log_in(socket)
        assert (await ask_over(socket, "s1", service="wirelake", command="subscribe", ask={"topic": "@price"}))[
            "ans"
        ] == 0
        assert (await receive_from(socket, "s1"))["msg"]["content"] == "2"
        await phone.subscribe("@price")
        async with asyncio.timeout(WAIT_S):
            assert (await phone.next_notification()).content == b"2"
        await web.post(url, json={"content": "4"}, headers=headers)
        assert (await receive_from(socket, "s1"))["msg"]["content"] == "4"


async def test_messages_in_pieces_pings_and_binary_ones(tmp_path: Path) -> None:
    async with (
        running_gateway(tmp_path, "sisnet", identities=[IDENTITY]) as running,
        connect(websocket_url(running)) as socket,
    ):
        await socket.send(
            ["in:{", '"command":"login",', f'"ask":{json.dumps({"name": "terminal", "password": "t0ken"})}}}']
        )
        assert (await receive_from(socket, "in"))["ans"] == 0
        async with asyncio.timeout(WAIT_S):
            await (await socket.ping())
        await socket.send(b'b1:{"service":"wirelake","command":"ping"}')
        assert (await receive_from(socket, "b1"))["ans"] == 0


async def test_goodbye_is_1001_and_a_wrong_login_is_told(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, "sisnet", identities=[IDENTITY]) as running:
        async with connect(websocket_url(running)) as wrong:
            answer = await ask_over(wrong, "in", command="login", ask={"name": "terminal", "password": "no"})
            assert answer["ans"] == -1
        socket = await connect(websocket_url(running))
        await log_in(socket)
    with pytest.raises(ConnectionClosed) as caught:
        await receive_until_closed(socket)
    assert caught.value.rcvd is not None
    assert caught.value.rcvd.code == 1001


async def test_what_is_no_websocket_is_refused(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, "sisnet") as running:
        async with httpx.AsyncClient() as client:
            answer = await client.get(f"http://{HOST}:{running.port('sisnet')}/", timeout=WAIT_S)
        assert answer.status_code == 426
        reader, writer = await asyncio.open_connection(HOST, running.port("sisnet"))
        writer.write(b"\x00\x01\x02 nonsense\r\n\r\n")
        async with asyncio.timeout(WAIT_S):
            await reader.read(-1)
        writer.close()
        assert running.gateway.counters.connections["sisnet"] == 0


async def test_bytes_that_are_no_message_are_kept_in_quarantine(tmp_path: Path) -> None:
    async with (
        running_gateway(tmp_path, "sisnet", identities=[IDENTITY]) as running,
        connect(websocket_url(running)) as socket,
    ):
        await socket.send(b"no colon at all")
        with pytest.raises(ConnectionClosed):
            await receive_until_closed(socket)
        (quarantined,) = await running.recorded("fault", 1)
        assert quarantined["frame"] == b"no colon at all"


async def test_more_than_one_turns_worth_at_once_is_answered_in_order(tmp_path: Path) -> None:
    count = 3000
    async with (
        running_gateway(tmp_path, "sisnet", identities=[IDENTITY]) as running,
        connect(websocket_url(running), max_queue=None) as socket,
    ):
        await log_in(socket)
        for number in range(count):
            await socket.send(f'n{number}:{{"service":"wirelake","command":"ping","lnk":"{"x" * 80}"}}')
        async with asyncio.timeout(WAIT_S):
            answers = [str(await socket.recv()) for _ in range(count)]
        assert [answer.partition(":")[0] for answer in answers] == [f"n{number}" for number in range(count)]
