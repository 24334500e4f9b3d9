"""esnp over real sockets: messages that name a host or a group, with their bytes on the wire."""

import asyncio
import socket
from pathlib import Path

import pytest
from clients.test_esnp import echo

from gateway.esnp_client import Station, connect_station, data_lines, esnp_gateway, service_provider, to, values
from gateway.running_gateway import WAIT_S, Running, running_gateway
from wirelake.clients.esnp import EsnpClient
from wirelake.clients.sisnet import SisnetClient
from wirelake.errors import AnswerError
from wirelake.limits import BROKER_GROUPS_PER_SERVICE_MAX
from wirelake.protocols.esnp import lines

HOST, GROUP = 40, 50

# FLAG 4; ADDRESS 20 = add, 30 = sums; then a host or a group; MESSAGE_ID 1; the end.
ASKED = "1e00000108" + "170000052806616464" + "170000063c0873756d73"
NUMBER_AND_END = "1100000800000000000000010000" + "0000"
TO_GROUP_RED = ASKED + "170000056406726564" + NUMBER_AND_END
TO_HOST_FAR = ASKED + "170000055006666172" + NUMBER_AND_END
# FLAG 3, FLAG 4, SOURCE_MESSAGE_ID 1; then ERROR and the end.
ANSWER = "1e00000106" + "1e00000108" + "120000080000000000000001"


def error(text: str) -> bytes:
    return bytes.fromhex(ANSWER) + b"\x1d" + len(text).to_bytes(3, "big") + text.encode() + bytes(4)


async def exchange(caller: Station, wire: str) -> bytes:
    caller.write(bytes.fromhex(wire))
    return (await caller.receive_message()).encode()


async def registered(running: Running, user: str, group: str) -> Station:
    provider = await connect_station(running, user)
    assert (await provider.ask_gateway("register", service="sums", group=group)).error is None
    return provider


async def test_a_group_that_nobody_registered_for_is_named_in_the_error(tmp_path: Path) -> None:
    async with (
        esnp_gateway(tmp_path) as running,
        service_provider(running, "sums"),
        await connect_station(running) as requester,
    ):
        response = await exchange(requester, TO_GROUP_RED)
        assert response == error("Address[20=add,30=sums,50=red] not found ServiceHandler")


async def test_a_group_is_served_by_those_who_registered_for_it(tmp_path: Path) -> None:
    async with (
        esnp_gateway(tmp_path) as running,
        await registered(running, "p", "red") as first,
        await registered(running, "p", "blue") as other,
        await registered(running, "p", "red") as second,
        await connect_station(running) as requester,
    ):
        for provider in (first, second, first):
            requester.write(bytes.fromhex(TO_GROUP_RED))
            request = await provider.receive_message()
            assert request.addresses == ((20, "add"), (30, "sums"), (GROUP, "red")), "the group goes on as it came"
            provider.answer(request)
            assert (await requester.receive_message()).encode() == bytes.fromhex(ANSWER + "00000000")
        for provider in (first, other, second):  # without a group, any provider of the service
            requester.send(*to("sums", "add", number=1), lines.address_line(GROUP, "_"))
            provider.answer(await provider.receive_message())
            assert (await requester.receive_message()).error is None


async def test_groups_are_left_one_by_one_or_all_at_once(tmp_path: Path) -> None:
    async with (
        esnp_gateway(tmp_path) as running,
        await registered(running, "p", "red") as provider,
        await connect_station(running) as requester,
    ):
        assert (await provider.ask_gateway("register", service="sums", group="blue")).error is None
        assert (await provider.ask_gateway("unregister", service="sums", group="red")).error is None
        assert await exchange(requester, TO_GROUP_RED) == error(
            "Address[20=add,30=sums,50=red] not found ServiceHandler"
        )
        requester.send(*to("sums", "add"), lines.address_line(GROUP, "blue"))
        provider.answer(await provider.receive_message())
        assert (await requester.receive_message()).error is None
        assert (await provider.ask_gateway("unregister", service="sums")).error is None
        for group in ("blue", "_"):
            response = await requester.ask(*to("sums", "add"), lines.address_line(GROUP, group))
            assert response.error is not None
            assert response.error.endswith("not found ServiceHandler")
        assert running.gateway.broker.services.names() == {}


async def test_a_session_provides_a_service_in_a_limited_number_of_groups(tmp_path: Path) -> None:
    async with esnp_gateway(tmp_path) as running, await connect_station(running) as provider:
        for number in range(BROKER_GROUPS_PER_SERVICE_MAX):
            assert (await provider.ask_gateway("register", service="sums", group=f"g{number}")).error is None
        response = await provider.ask_gateway("register", service="sums", group="one more")
        assert response.error == f"a session provides a service in at most {BROKER_GROUPS_PER_SERVICE_MAX} groups"


@pytest.mark.parametrize("group", [7, ["red"], "x" * 257])
async def test_a_group_is_a_text(tmp_path: Path, group: object) -> None:
    async with esnp_gateway(tmp_path) as running, await connect_station(running) as provider:
        response = await provider.ask_gateway("register", service="sums", group=group)
        assert response.error is not None
        assert "group is" in response.error


async def test_another_host_is_named_in_the_error(tmp_path: Path) -> None:
    async with esnp_gateway(tmp_path) as running, service_provider(running, "sums") as provider:
        text = "Address[20=add,30=sums,40=far] not found: host 'far' is not this node"
        async with await connect_station(running) as requester:
            assert await exchange(requester, TO_HOST_FAR) == error(text)
            for service, op in (("wirelake", "ping"), ("wirelake", "publish"), ("sisdb", "keys")):
                response = await requester.ask(*to(service, op), lines.address_line(HOST, "far"))
                assert response.error == f"Address[20={op},30={service},40=far] not found: host 'far' is not this node"
            requester.send(*to("sums", "note", flag=6), lines.address_line(HOST, "far"))
            assert (await requester.ask_gateway("ping")).error is None, "a one-way message is not answered"
        async with await Station.connect(running.port("esnp")) as stranger:
            assert await exchange(stranger, TO_HOST_FAR) == error(text)
        assert (await provider.ask_gateway("ping")).error is None, "none of it reached the provider"


@pytest.mark.parametrize("host", ["_", "local", "localhost", "LOCALHOST", "127.0.0.1", "edge-7", socket.gethostname()])
async def test_names_of_this_node_are_served_here(tmp_path: Path, host: str) -> None:
    async with (
        esnp_gateway(tmp_path, esnp={"hosts": ["Edge-7"]}) as running,
        service_provider(running, "sums") as provider,
        await connect_station(running) as requester,
    ):
        requester.send(*to("sums", "add", number=1), lines.address_line(HOST, host), *data_lines(a=1))
        request = await provider.receive_message()
        assert values(request) == {"a": 1}
        provider.answer(request)
        assert (await requester.receive_message()).error is None
        response = await requester.ask(*to("wirelake", "ping"), lines.address_line(HOST, host))
        assert response.error is None


async def test_the_gateway_itself_is_in_no_group(tmp_path: Path) -> None:
    async with esnp_gateway(tmp_path) as running, await connect_station(running) as requester:
        for service, op in (("wirelake", "ping"), ("sisdb", "tables")):
            response = await requester.ask(*to(service, op), lines.address_line(GROUP, "red"))
            assert response.error == f"Address[20={op},30={service},50=red] not found ServiceHandler"
        assert (await requester.ask(*to("sisdb", "tables"))).error is None


async def test_urls_name_hosts_and_groups_and_a_provider_keeps_its_group(tmp_path: Path) -> None:
    """Check it also after the provider's connection is lost."""
    async with esnp_gateway(tmp_path) as running:
        port = running.port("esnp")
        async with (
            EsnpClient("127.0.0.1", port, "p", "") as provider,
            EsnpClient("127.0.0.1", port, "a", "") as requester,
        ):
            await provider.register("echo", echo, group="red")
            assert await requester.ask("esnp://_/echo/say?g=red", {"a": 1}) == {"a": 1}
            assert await requester.ask("esnp://localhost/echo/say", {"a": 2}) == {"a": 2}
            with pytest.raises(AnswerError, match="50=blue"):
                await requester.ask("esnp://_/echo/say?g=blue")
            with pytest.raises(AnswerError, match="host 'far' is not this node"):
                await requester.ask("esnp://far/echo/say?g=red")
            (lost,) = [each for each in running.gateway.connections.values() if each.identity == "p"]
            lost.abort()
            async with asyncio.timeout(WAIT_S):
                while True:
                    try:
                        assert await requester.ask("esnp://_/echo/say?g=red", {"a": 3}) == {"a": 3}
                        break
                    except AnswerError:
                        await asyncio.sleep(0.01)


async def test_a_sisnet_provider_registers_for_a_group_too(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, "esnp", "sisnet_tcp", auth={"open": True}) as running:
        desk = SisnetClient(f"tcp://127.0.0.1:{running.port('sisnet_tcp')}", "desk", "")
        async with desk, EsnpClient("127.0.0.1", running.port("esnp"), "a", "") as requester:
            await desk.register("echo", echo, group="red")
            assert await requester.ask("esnp://_/echo/say?g=red", {"a": 1}) == {"a": 1}
            with pytest.raises(AnswerError, match="50=blue"):
                await requester.ask("esnp://_/echo/say?g=blue")
