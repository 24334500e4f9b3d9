"""Tokens expire, are rotated and revoked; sessions, cookies and resumption follow."""

import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from msgspec import Struct

from gateway.comet_client import Phone
from gateway.esnp_client import Station
from gateway.http.calling import Calling, calling
from gateway.magline_client import Box
from gateway.redis_client import RedisConnection
from gateway.running_gateway import Running, until
from gateway.sisnet_client import Terminal
from wirelake.clock import SteadyClock
from wirelake.errors import FullError
from wirelake.limits import STATE_TOKENS_PER_IDENTITY_MAX
from wirelake.message import Credentials
from wirelake.protocols.comet import frames
from wirelake.protocols.magline import frames as magline
from wirelake.protocols.text import write_json
from wirelake.state.tokens import new_token

NAME = "ann"
HOUR_S = 3600.0
PATIENT = {"failed_logins": 100_000}
LISTENERS = ("comet", "magline", "esnp", "sisnet_tcp", "redis")
FORM = {"content-type": "application/x-www-form-urlencoded", "sec-fetch-site": "same-origin"}


class Clock(SteadyClock):
    """A clock that a test moves on."""

    def __init__(self) -> None:
        self.skipped_ns = 0
        super().__init__(lambda: time.time_ns() + self.skipped_ns, lambda: time.monotonic_ns() + self.skipped_ns)

    def skip(self, seconds: float) -> None:
        self.skipped_ns += int(seconds * 1e9)


async def comet_login(running: Running, token: str) -> object:
    async with await Phone.connect(running.port("comet")) as phone:
        return await phone.ask(frames.Auth(NAME, token))


async def magline_login(running: Running, token: str) -> object:
    async with await Box.connect(running) as box:
        await box.handshake()
        box.send(box.req(1, write_json({"user": NAME, "token": token})))
        answer = await box.receive()
        return answer.error_number if isinstance(answer, magline.Err) else None


async def esnp_login(running: Running, token: str) -> object:
    async with await Station.connect(running.port("esnp")) as station:
        return (await station.ask_gateway("login", user=NAME, token=token)).error


async def sisnet_login(running: Running, token: str) -> object:
    async with await Terminal.connect(running) as terminal:
        return await terminal.ask("in", command="login", ask={"name": NAME, "password": token})


async def redis_login(running: Running, token: str) -> object:
    async with await RedisConnection.connect(running) as connection:
        return await connection.ask(f"AUTH {NAME} {token}")


async def http_login(running: Running, token: str) -> object:
    assert isinstance(running, Calling)
    response = await running.call("GET", "/api/identities/ann/tokens", bearer=f"{NAME}:{token}")
    return response.status_code, response.text


async def bare_http_login(running: Running, token: str) -> object:
    assert isinstance(running, Calling)
    response = await running.call("GET", "/api/identities/ann/tokens", bearer=token)
    return response.status_code, response.text


Login = Callable[[Running, str], Awaitable[object]]
LOGINS: tuple[tuple[str, Login], ...] = (
    ("comet", comet_login),
    ("magline", magline_login),
    ("esnp", esnp_login),
    ("sisnet", sisnet_login),
    ("redis", redis_login),
    ("http", http_login),
    ("http", bare_http_login),
)


async def rotate(caller: Calling, **body: object) -> str:
    response = await caller.call("POST", f"/api/identities/{NAME}/tokens", body)
    assert response.status_code == 201, response.text
    token = response.json()["token"]
    assert isinstance(token, str)
    return token


async def token_ids(caller: Calling) -> list[str]:
    rows = (await caller.call("GET", f"/api/identities/{NAME}/tokens")).json()["tokens"]
    return [row["id"] for row in rows]


def has_recorded(running: Running, protocol: str, count: int) -> bool:
    """Return whether the log has so many refusals of expired tokens."""
    reasons = [row["note"]["reason"] for row in running.records("refuse", protocol=protocol)]
    return reasons.count("expired") == count


@pytest.mark.parametrize("kind", ["generated", "chosen"])
async def test_both_tokens_log_in_while_one_is_kept_and_then_only_the_new_one(tmp_path: Path, kind: str) -> None:
    old, new = (new_token(), new_token()) if kind == "generated" else ("chosen-before", "chosen-later")
    clock = Clock()
    async with calling(tmp_path, *LISTENERS, clock=clock, limits=PATIENT) as caller:
        await caller.call("POST", "/api/identities", {"name": NAME, "token": old})
        assert await rotate(caller, token=new, keep_s=HOUR_S) == new
        for _, login in LOGINS:
            wrong = await login(caller, "wrong")
            answers = [await login(caller, token) for token in (old, new)]
            assert wrong not in answers
            assert answers[0] == answers[1]
        clock.skip(HOUR_S - 60)
        for token in (old, new):
            assert isinstance(await comet_login(caller, token), frames.AuthSuccess)
        clock.skip(61)
        expired_logins: Counter[str] = Counter()
        for protocol, login in LOGINS:
            expired, wrong = await login(caller, old), await login(caller, "wrong")
            assert expired == wrong, "nobody can tell an expired token from a wrong one"
            assert await login(caller, new) != wrong
            expired_logins[protocol] += 1
            assert caller.gateway.counters.logins[protocol, "expired"] == expired_logins[protocol]
            await until(partial(has_recorded, caller, protocol, expired_logins[protocol]))


async def test_a_rotation_under_a_running_client_loses_nothing(tmp_path: Path) -> None:
    clock, old = Clock(), new_token()
    async with calling(tmp_path, "comet", clock=clock, limits=PATIENT) as caller:
        await caller.call("POST", "/api/identities", {"name": NAME, "token": old})
        published: list[str] = []
        received: list[frames.Message] = []

        async def take(phone: Phone, count: int) -> None:
            for _ in range(count):
                received.append(await phone.receive_message())
            ids = tuple(message.msg_id for message in received[-count:])
            assert isinstance(await phone.ask(frames.MessageAck(ids)), frames.Ok)

        async def publish(count: int) -> None:
            for _ in range(count):
                published.append(f"{len(published)}")
                await caller.publish("@news", published[-1])

        async with await Phone.connect(caller.port("comet"), NAME, old) as phone:
            assert isinstance(await phone.ask(frames.Subscribe(("@news",))), frames.Ok)
            await publish(3)
            new = await rotate(caller, keep_s=HOUR_S)
            await publish(3)
            await take(phone, 6)
            clock.skip(HOUR_S + 1)
            await publish(3)
            await take(phone, 3)  # its token has expired, but the session goes on
        await publish(3)
        assert isinstance(await comet_login(caller, old), frames.Error)
        async with await Phone.connect(caller.port("comet"), NAME, new) as phone:
            received += await phone.fetch_backlog()
        assert [message.content.decode() for message in received] == published


class Model(Struct):
    """What a gateway must accept: the expiry of each token that was not removed."""

    ends_ms: dict[str, int | None]

    def accepts(self, token: str, now_ms: int) -> bool:
        end_ms = self.ends_ms.get(token, 0)
        return end_ms is None or now_ms < end_ms


@pytest.mark.parametrize("seed", range(5))
async def test_no_expired_or_removed_token_ever_logs_in(tmp_path: Path, seed: int) -> None:
    chance, clock, model, now_ms = random.Random(seed), Clock(), Model({}), 0
    async with calling(tmp_path, clock=clock, limits=PATIENT) as caller:
        gateway = caller.gateway
        logins, identities = gateway.logins, gateway.state.identities
        first = new_token()
        await caller.call("POST", "/api/identities", {"name": NAME, "token": first})
        model.ends_ms[first] = None
        ids: dict[str, str] = dict(zip([first], await token_ids(caller), strict=True))
        for step in range(40):
            action = chance.choice(["rotate", "rotate", "revoke", "wait", "sweep", "login", "login"])
            if action == "rotate":
                token = new_token() if chance.random() < 0.8 else f"chosen {step}"
                expires_s, keep_s = chance.choice([None, 60, 600]), chance.choice([None, 0, 30, 300])
                identity = identities.find(NAME)
                assert identity is not None
                secret = logins.token_key.hash(token, identity.chosen_hash)
                now_ms = gateway.now_ms()
                expires_ms = None if expires_s is None else now_ms + expires_s * 1000
                keep_ms = None if keep_s is None else now_ms + keep_s * 1000
                with suppress(FullError):
                    added = identities.add_token(NAME, secret, now_ms, expires_ms, keep_ms)
                    assert added is not None
                    for other, end_ms in model.ends_ms.items():
                        if keep_ms is not None and (end_ms is None or end_ms > keep_ms):
                            model.ends_ms[other] = keep_ms
                    model.ends_ms[token], ids[token] = expires_ms, added[0].id
            elif action == "revoke":
                token = chance.choice(list(ids))
                identities.remove_token(NAME, ids[token])
                model.ends_ms.pop(token, None)
            elif action == "wait":
                clock.skip(chance.choice([1, 30, 100, 1000]))
            elif action == "sweep":
                gateway.state.barrier().wait(30)
                identities.sweep(gateway.now_ms(), 10)
            for token in chance.sample(list(ids), min(3, len(ids))):
                now_ms = gateway.now_ms()
                named = await logins.check(Credentials(NAME, token), "192.0.2.1", 10.0)
                bare = await logins.check_bare(token, "192.0.2.2", 10.0)
                accepts = model.accepts(token, now_ms)
                assert (named.identity, bare.identity) == ((NAME, NAME) if accepts else ("", "")), (step, action)
        identity = identities.find(NAME)
        assert identity is not None
        assert len(identity.tokens) <= STATE_TOKENS_PER_IDENTITY_MAX


async def test_a_revoked_token_closes_the_sessions_that_logged_in_with_it(tmp_path: Path) -> None:
    async with calling(tmp_path, "comet", "magline") as caller:
        first = (await caller.call("POST", "/api/identities", {"name": NAME})).json()["token"]
        second = await rotate(caller)
        (first_id, second_id) = await token_ids(caller)
        port = caller.port("comet")
        async with (
            await Phone.connect(port, NAME, second) as stays,
            await Box.connect(caller, NAME, first) as ends,
            caller.client.stream(
                "GET", "/api/subscribe?topic=@news", headers={"authorization": f"Bearer {NAME}:{first}"}
            ) as events,
        ):
            assert events.status_code == 200
            assert (await caller.call("DELETE", f"/api/identities/{NAME}/tokens/{first_id}")).status_code == 204
            assert await ends.receive_fin() is not None
            assert "token_revoked" in [row["note"]["reason"] for row in await caller.recorded("close", 1)]
            async for _ in events.aiter_raw():
                pass  # it ends
            assert isinstance(await stays.ask(frames.Heartbeat()), frames.Ok)
            assert await token_ids(caller) == [second_id]
        async with await Box.connect(caller) as again:
            again.send(again.syn(ends.sid, ends.secret))
            assert isinstance(await again.receive(), magline.Err)


async def test_a_session_is_not_resumed_when_its_token_has_expired(tmp_path: Path) -> None:
    clock = Clock()
    async with calling(tmp_path, "magline", clock=clock) as caller:
        first = (await caller.call("POST", "/api/identities", {"name": NAME})).json()["token"]
        async with await Box.connect(caller, NAME, first) as box:
            pass
        await caller.recorded("close", protocol="magline")
        async with await Box.connect(caller) as again:
            await again.handshake(box.sid, box.secret)
            await rotate(caller, keep_s=5)
        await caller.recorded("close", 2, protocol="magline")
        clock.skip(6)
        async with await Box.connect(caller) as late:
            late.send(late.syn(again.sid, again.secret))
            assert isinstance(await late.receive(), magline.Err)
        (refused,) = caller.records("refuse", protocol="magline")
        assert refused["note"]["reason"] == "expired"


async def test_a_cookie_lasts_as_long_as_its_token(tmp_path: Path) -> None:
    clock = Clock()
    async with calling(tmp_path, clock=clock) as caller:
        first = (await caller.call("POST", "/api/identities", {"name": NAME})).json()["token"]

        async def log_in(token: str) -> dict[str, str]:
            form = f"token={NAME}:{token}"
            entered = await caller.call("POST", "/login", content=form, headers=FORM, bearer=None)
            assert entered.status_code == 303
            return {"cookie": entered.headers["set-cookie"].partition(";")[0], "sec-fetch-site": "same-origin"}

        async def status(cookie: dict[str, str]) -> int:
            caller.client.cookies.clear()
            return (await caller.call("GET", "/api/topics", headers=cookie, bearer=None)).status_code

        old = await log_in(first)
        new = await log_in(await rotate(caller, keep_s=HOUR_S))
        assert [await status(cookie) for cookie in (old, new)] == [200, 200]
        clock.skip(HOUR_S + 1)
        assert [await status(cookie) for cookie in (old, new)] == [401, 200]
        await caller.call("DELETE", f"/api/identities/{NAME}/tokens/{(await token_ids(caller))[-1]}")
        assert [await status(cookie) for cookie in (old, new)] == [401, 401]


async def test_a_token_that_is_rotated_during_its_check_still_logs_in(tmp_path: Path) -> None:
    async with calling(tmp_path) as caller:
        await caller.add_identity(NAME, "chosen", at_once=False)
        logins, identities = caller.gateway.logins, caller.gateway.state.identities
        identity = identities.find(NAME)
        assert identity is not None

        async def check_while(change: Callable[[], object]) -> str:
            slow = logins.slow.run

            async def run(host: str, check: Callable[[], object]) -> object:
                found = await slow(host, check)
                change()
                return found

            logins.slow.run = run  # type: ignore[method-assign, assignment]
            try:
                return (await logins.check(Credentials(NAME, "chosen"), "192.0.2.1", 10.0)).identity
            finally:
                logins.slow.run = slow  # type: ignore[method-assign]

        now_ms = caller.gateway.now_ms()
        secret = logins.token_key.hash(new_token())
        kept = await check_while(lambda: identities.add_token(NAME, secret, now_ms, None, now_ms + 3_600_000))
        assert kept == NAME
        token_id = identity.tokens[0].id
        identities._verified.clear()
        assert await check_while(lambda: identities.remove_token(NAME, token_id)) == ""
