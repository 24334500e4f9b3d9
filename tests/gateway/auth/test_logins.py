"""Logins: fast for generated tokens, also after a restart; slow checks are coalesced, dropped and queued fairly."""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from gateway.comet_client import Phone
from gateway.http.calling import Calling, calling
from gateway.running_gateway import Running, hashed, running_gateway, until
from wirelake.errors import BusyError, InputError
from wirelake.gateway.auth import logins as logins_module
from wirelake.gateway.auth.login_throttling import LoginFailures, SlowChecks
from wirelake.limits import (
    GATEWAY_LOGIN_FORGET_S,
    GATEWAY_LOGINS_PER_NAME_MAX,
    GATEWAY_LOGINS_WAITING_PER_ADDRESS_MAX,
)
from wirelake.message import Credentials
from wirelake.protocols.comet import frames
from wirelake.state import tokens as tokens_module
from wirelake.state.tokens import KEYED, SCRYPT, Token, TokenHash, hash_token, new_token

HERE, THERE = "192.0.2.1", "192.0.2.2"
LOGIN_S = 10.0
TOKEN = new_token()


def kind_of(running: Running, name: str) -> str:
    identity = running.gateway.state.identities.find(name)
    assert identity is not None
    (token,) = identity.tokens
    return token.hash.kind


async def logs_in(running: Running, name: str, token: str) -> bool:
    async with await Phone.connect(running.port("comet")) as phone:
        phone.send(frames.Auth(name, token))
        return isinstance(await phone.receive(), frames.AuthSuccess)


class BlockedCheck:
    """Provide a slow check that ends when `release` is called."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self._released = threading.Event()

    def check(self, name: str) -> Callable[[], bool]:
        def run() -> bool:
            self.started.append(name)
            self._released.wait(60)
            return True

        return run

    def find(self, tokens: Sequence[Token], token: str) -> Token | None:
        return tokens[0] if self.check(token)() else None

    def release(self) -> None:
        self._released.set()


async def test_a_generated_token_needs_no_slow_check_also_after_a_restart(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, "comet") as running:
        await running.gateway.state.identities.add("ann", running.gateway.logins.token_key.hash(TOKEN), 1)
        assert await logs_in(running, "ann", TOKEN)
    key = tmp_path / "data" / "keys" / "tokens.key"
    assert key.stat().st_mode & 0o777 == 0o600
    async with running_gateway(tmp_path, "comet") as running:
        assert await logs_in(running, "ann", TOKEN)
        assert running.gateway.logins.slow.computed == 0
        assert not await logs_in(running, "ann", new_token())
        assert running.gateway.logins.slow.computed == 1, "a refusal takes as long as that of a chosen token"


async def test_a_generated_token_with_a_slow_hash_gets_a_fast_one_when_it_is_used(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, "comet") as running:
        await running.add_identity("ann", TOKEN, at_once=False)
        await running.add_identity("bob", "chosen by bob", at_once=False)
        assert not await logs_in(running, "ann", new_token())
        assert kind_of(running, "ann") == SCRYPT
        for name, token in (("ann", TOKEN), ("bob", "chosen by bob")):
            assert await logs_in(running, name, token)
        assert [kind_of(running, name) for name in ("ann", "bob")] == [KEYED, SCRYPT]
    async with running_gateway(tmp_path, "comet") as running:
        assert [kind_of(running, name) for name in ("ann", "bob")] == [KEYED, SCRYPT]
        assert await logs_in(running, "ann", TOKEN)
        assert running.gateway.logins.slow.computed == 0
        assert await logs_in(running, "bob", "chosen by bob")
        assert running.gateway.logins.slow.computed == 1


async def test_a_lost_key_is_told_at_the_start(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with running_gateway(tmp_path, "comet") as running:
        await running.gateway.state.identities.add("ann", running.gateway.logins.token_key.hash(TOKEN), 1)
    key = tmp_path / "data" / "keys" / "tokens.key"
    saved = key.read_bytes()
    key.unlink()
    with pytest.raises(InputError, match=r"tokens\.key is missing, and the tokens of 1 identities.*backup"):
        async with running_gateway(tmp_path, "comet"):
            pass
    assert not key.exists(), "a new one would hide it"
    key.touch()
    async with running_gateway(tmp_path, "comet") as running:
        assert "1 identities cannot log in" in caplog.text
        assert not await logs_in(running, "ann", TOKEN)
        assert running.gateway.counters.logins["comet", "key_lost"] == 1
    key.write_bytes(saved)
    async with running_gateway(tmp_path, "comet") as running:
        assert await logs_in(running, "ann", TOKEN)


async def test_identical_checks_are_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = BlockedCheck()
    monkeypatch.setattr(logins_module, "find_slow", blocked.find)
    async with running_gateway(tmp_path, "comet") as running:
        await running.add_identity("ann", "chosen", at_once=False)
        logins = running.gateway.logins
        checks = [asyncio.create_task(logins.check(Credentials("ann", "chosen"), HERE, LOGIN_S)) for _ in range(50)]
        await until(lambda: bool(blocked.started))
        blocked.release()
        assert [verdict.identity for verdict in await asyncio.gather(*checks)] == ["ann"] * 50
        assert blocked.started == ["chosen"]


async def test_a_check_is_dropped_when_its_connection_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = BlockedCheck()
    monkeypatch.setattr(logins_module, "find_slow", blocked.find)

    async def work(running: Running, caller: Calling) -> None:
        for name in ("a", "b"):
            await running.add_identity(name, "chosen", at_once=False)
        slow = running.gateway.logins.slow
        busy = [asyncio.create_task(slow.run(THERE, blocked.check(f"busy {number}"))) for number in range(2)]
        await until(lambda: len(blocked.started) == 2)
        async with (
            await Phone.connect(running.port("comet")) as gone,
            await Phone.connect(running.port("comet")) as stays,
        ):
            gone.send(frames.Auth("a", "guess of a"))
            stays.send(frames.Auth("b", "guess of b"))
            reader, writer = await asyncio.open_connection("127.0.0.1", running.port("http"))
            writer.write(b"GET /api/topics HTTP/1.1\r\nhost: x\r\nauthorization: Bearer c:guess of c\r\n\r\n")
            await until(lambda: slow.waiting == 3)
            writer.close()
            await gone.__aexit__()
            await until(lambda: slow.waiting == 1)
            blocked.release()
            await asyncio.gather(*busy)
            assert isinstance(await stays.receive(), frames.AuthSuccess)
        assert sorted(blocked.started) == ["busy 0", "busy 1", "guess of b"]
        assert reader is not None
        await until(lambda: not caller.http.limiter.open.running)

    async with calling(tmp_path, "comet") as caller:
        await work(caller, caller)


async def test_addresses_take_turns_and_have_a_bound_of_their_own() -> None:
    blocked, slow = BlockedCheck(), SlowChecks()
    busy = [asyncio.create_task(slow.run(THERE, blocked.check("busy"))) for _ in range(2)]
    await until(lambda: len(blocked.started) == 2)
    many = [
        asyncio.create_task(slow.run(HERE, blocked.check("flood")))
        for _ in range(GATEWAY_LOGINS_WAITING_PER_ADDRESS_MAX)
    ]
    await asyncio.sleep(0)
    with pytest.raises(BusyError):
        await slow.run(HERE, blocked.check("one too many"))
    other = asyncio.create_task(slow.run(THERE, blocked.check("other")))
    await asyncio.sleep(0)
    blocked.release()
    await asyncio.gather(*busy, *many, other)
    assert blocked.started.index("other") <= 4, "it waits for no more than those that had begun and one turn"
    assert "one too many" not in blocked.started
    assert slow.waiting == 0


def test_failures_delay_one_name_from_one_address() -> None:
    now_s = 1000.0
    failures = LoginFailures(lambda: now_s)
    bad, neighbour, owner = (failures.key(*each) for each in ((HERE, "ann"), (HERE, "bob"), (THERE, "ann")))
    for _ in range(failures.failed_max):
        assert failures.delay_s(bad) == 0
        failures.add(bad)
    assert failures.delay_s(bad) > 0
    assert failures.delay_s(neighbour) == 0
    assert failures.delay_s(owner) == 0
    for _ in range(20):
        failures.add(bad)
    assert failures.delay_s(bad, delay_max_s=LOGIN_S / 2) == LOGIN_S / 2
    assert failures.delay_s(owner, under_way=failures.failed_max) > 0, "guesses at once are counted before they fail"
    now_s += GATEWAY_LOGIN_FORGET_S + 1
    assert failures.delay_s(bad) == 0
    assert len(failures) == 0


def test_failures_are_bounded_however_long_names_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wirelake.gateway.auth.login_throttling.GATEWAY_FAILED_LOGINS_KEPT_MAX", 100)
    failures = LoginFailures(lambda: 0.0)
    for number in range(1000):
        key = failures.key(HERE, f"{number}" * 10_000)
        failures.add(key)
        assert len(key) == 16
    assert len(failures) == 100


async def test_a_delayed_answer_comes_before_the_login_times_out(tmp_path: Path) -> None:
    comet, limits = {"login_s": 2.0}, {"failed_logins": 1}
    async with running_gateway(tmp_path, "comet", comet=comet, limits=limits) as running:
        failures = running.gateway.logins.failures
        for _ in range(20):
            failures.add(failures.key("127.0.0.1", "nobody"))
        async with await Phone.connect(running.port("comet")) as phone:
            phone.send(frames.Auth("nobody", "x"))
            assert await phone.receive_error() == 0, "and not 5, which says that the time is up"
        (row,) = await running.recorded("refuse")
        assert row["note"]["reason"] == "unknown"


async def test_one_bad_client_does_not_lock_out_others_of_its_address(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, "comet") as running:
        for name in ("ann", "bob"):
            await running.add_identity(name, f"{name}s own", at_once=False)
        bad = [await Phone.connect(running.port("comet")) for _ in range(100)]
        async with contextlib.AsyncExitStack() as stack:
            for number, phone in enumerate(bad):
                await stack.enter_async_context(phone)
                phone.send(frames.Auth("ann", f"guess {number}"))
            logins = running.gateway.logins
            await until(lambda: running.gateway.counters.logins["comet", "busy"] > 0)
            assert logins.slow.waiting <= GATEWAY_LOGINS_PER_NAME_MAX
            assert await logs_in(running, "bob", "bobs own")


async def test_every_refusal_takes_one_slow_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that the response time does not reveal which names exist."""
    computed: list[tuple[int, int]] = []
    scrypt = tokens_module._scrypt

    def counted(token: str, like: TokenHash) -> bytes:
        computed.append((like.cost, like.block))
        return scrypt(token, like)

    async with running_gateway(tmp_path, "comet") as running:
        gateway = running.gateway
        logins, identities, now_ms = gateway.logins, gateway.state.identities, gateway.now_ms()
        token_key = logins.token_key
        old, old_chosen = new_token(), "old and chosen"
        await running.add_identity("chosen", "chosen", at_once=False)
        await identities.add("made", token_key.hash(TOKEN), 1)
        await identities.add("expired", token_key.hash(old), 1, expires_at_ms=now_ms)
        await identities.add("several", chosen := hash_token(old_chosen), 1, expires_at_ms=now_ms)
        for token in ("another", "a third", new_token()):
            identities.add_token("several", token_key.hash(token, chosen), 1)
        await identities.add("none", token_key.hash(TOKEN), 1)
        none = identities.find("none")
        assert none is not None
        identities.remove_token("none", none.tokens[0].id)
        monkeypatch.setattr(tokens_module, "_scrypt", counted)
        for name in ("chosen", "made", "expired", "several", "none", "nobody", ""):
            for token in ("wrong", new_token(), "", old, old_chosen):
                computed.clear()
                verdict = await logins.check(Credentials(name, token), name, LOGIN_S)
                assert not verdict.identity
                assert computed == [(2**14, 8)], (name, token)


async def test_a_bare_token_is_looked_up(tmp_path: Path) -> None:
    async with calling(tmp_path) as caller:
        identities, logins = caller.gateway.state.identities, caller.gateway.logins
        for number in range(200):
            await identities.add(f"other {number}", hashed("other"), number)
        await identities.add("ann", logins.token_key.hash(TOKEN), 0)
        assert (await caller.call("GET", "/api/topics", bearer=TOKEN)).status_code == 200
        assert logins.slow.computed == 0
        made = (await caller.call("POST", "/api/identities", {"name": "new"})).json()
        assert (await caller.call("GET", "/api/topics", bearer=made["token"])).status_code == 200
        await caller.call("DELETE", "/api/identities/new")
        assert (await caller.call("GET", "/api/topics", bearer=f"new:{made['token']}")).status_code == 401
        assert logins.known_bare(made["token"]) is None
