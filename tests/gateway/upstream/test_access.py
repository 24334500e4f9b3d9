"""Who may call a service of an upstream: each requester is checked, also one that joins an open request."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from gateway.identities import ALICE, EVE, assign
from gateway.running_gateway import Running, running_gateway, until
from gateway.sisnet_client import Terminal
from gateway.upstream.gateway_pair import GATEWAY, SUB, QuoteService, upstream, wait_until_connected
from wirelake.message import Kind, Message, Operation

GUEST = {"call": ["quotes/get", "math/**"]}
HOLD = {"service": "quotes", "command": "hold", "ask": {"key": "a"}}


@asynccontextmanager
async def relayed(folder: Path) -> AsyncIterator[tuple[Running, QuoteService, Terminal, Terminal]]:
    """Run a gateway and its upstream; yield the first, the service, and the terminals of alice and of eve."""
    async with running_gateway(folder / "back", "sisnet", identities=[GATEWAY]) as back:
        quotes = QuoteService(back)
        sisnet = {"upstreams": [upstream(back.port("sisnet"))]}
        async with running_gateway(
            folder / "front", "sisnet_tcp", identities=[ALICE, EVE], sisnet=sisnet, roles={"guest": GUEST}
        ) as front:
            await assign(front, "eve", "guest")
            await wait_until_connected(front)
            async with await Terminal.connect(front, *ALICE) as alice, await Terminal.connect(front, *EVE) as eve:
                yield front, quotes, alice, eve


async def test_a_request_that_would_join_an_open_one_is_refused(tmp_path: Path) -> None:
    async with relayed(tmp_path) as (_, quotes, alice, eve):
        alice.send_json("a", **HOLD)
        await quotes.wait_for("hold", 1)
        assert await eve.ask("e", **HOLD) == {"ans": -1, "msg": "access denied: call quotes/hold"}
        quotes.answer(price=9)
        assert await alice.receive_json("a") == {"ans": 5, "msg": {"price": 9}}
        allowed = await eve.ask("e", service="quotes", command="get", ask={"key": "a"})
        assert allowed == {"ans": 5, "msg": {"key": "a", "price": 7}}, "what the role allows"


async def test_a_subscription_that_others_have_is_refused_with_what_is_kept_of_it(tmp_path: Path) -> None:
    async with relayed(tmp_path) as (front, quotes, alice, eve):
        assert await alice.ask("a", **SUB) == {"ans": 0}
        await quotes.wait_for("sub", 1)
        quotes.push(1, 2.5)
        assert await alice.receive_json("a") == {"ans": 4, "msg": [[1, 2.5]]}
        assert await eve.ask("e", **SUB) == {"ans": -1, "msg": "access denied: call quotes/sub"}
        quotes.push(2, 2.5)
        assert await alice.receive_json("a") == {"ans": 4, "msg": [[2, 2.5]]}
        assert await eve.ask("p", service="wirelake", command="ping") == {"ans": 0}, "nothing else came"
        assert front.gateway.upstreams.all["back"].coalescer.joined == 0


async def test_a_message_without_a_response_is_refused_too(tmp_path: Path) -> None:
    async with relayed(tmp_path) as (front, quotes, _, _):
        gateway = front.gateway
        (peer,) = [each for each in gateway.connections.values() if each.identity == "eve"]
        event = Message(kind=Kind.EVENT, target=Operation("quotes", "hold"))
        gateway.broker.handle(peer, event, gateway.now_s(), gateway.now_ms())
        (row,) = await front.recorded("deny")
        assert row["note"] == {"action": "call", "target": "quotes/hold"}
        assert quotes.count("hold") == 0


async def test_pushes_end_with_the_right_to_call(tmp_path: Path) -> None:
    async with relayed(tmp_path) as (front, quotes, alice, eve):
        await assign(front, "eve", "member")
        for terminal in (alice, eve):
            assert await terminal.ask("s", **SUB) == {"ans": 0}
        quotes.push(1)
        for terminal in (alice, eve):
            assert await terminal.receive_json("s") == {"ans": 4, "msg": [[1]]}
        await assign(front, "eve", "guest")
        assert await eve.receive_json("") == {"logout": "access denied: call quotes/sub"}
        await until(lambda: len(front.gateway.connections) == 2)
        quotes.push(2)
        assert await alice.receive_json("s") == {"ans": 4, "msg": [[2]]}
        assert quotes.count("unsub") == 0
