"""Certificates of clients that name the identity that may log in, over real sockets."""

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.certificates import Authority, make_certificate
from gateway.comet_client import Phone
from gateway.magline_client import Box
from gateway.redis_client import RedisConnection
from gateway.running_gateway import HOST, WAIT_S, Running, running_gateway
from wirelake.config import TlsSection
from wirelake.gateway.auth.client_certificates import certified_names
from wirelake.protocols.comet import frames
from wirelake.protocols.magline import frames as magline
from wirelake.state.tokens import new_token

ANN, BOB = ("ann", "anns-token"), ("bob", "bobs-token")


@asynccontextmanager
async def certified_gateway(
    folder: Path, client_identity: str, **settings: Any
) -> AsyncIterator[tuple[Running, Authority]]:
    authority = Authority(folder)
    cert, key = make_certificate(folder / "server", HOST)
    tls = {"cert": str(cert), "key": str(key), "client_ca": str(authority.cert_file)}
    tls |= {"client_identity": client_identity}
    settings = {"identities": [ANN, BOB], **settings}
    async with running_gateway(folder, "comet", "redis", "magline", "http", tls=tls, **settings) as running:
        yield running, authority


# ── logins: each returns the answer to it, as it is on the wire or close to it


async def by_comet(running: Running, tls: ssl.SSLContext, name: str, token: str) -> object:
    async with await Phone.connect(running.port("comet"), tls=tls) as phone:
        answer = await phone.ask(frames.Auth(name, token))
        return (answer.code, answer.reason) if isinstance(answer, frames.Error) else "in"


async def by_redis(running: Running, tls: ssl.SSLContext, name: str, token: str) -> object:
    async with await RedisConnection.connect(running, tls=tls) as connection:
        answer = await connection.ask(f"AUTH {name} {token}")
        return "in" if answer == b"+OK\r\n" else answer


async def by_http(running: Running, tls: ssl.SSLContext, name: str, token: str) -> object:
    bearer = f"{name}:{token}" if name else token
    response = await _get(running, tls, "/api/topics", bearer)
    return "in" if response.is_success else (response.status_code, response.json()["error"]["message"])


async def _get(running: Running, tls: ssl.SSLContext, path: str, bearer: str) -> httpx.Response:
    url = f"https://{HOST}:{running.port('http')}"
    async with httpx.AsyncClient(base_url=url, verify=tls, timeout=WAIT_S, trust_env=False) as client:
        return await client.get(path, headers={"authorization": f"Bearer {bearer}"})


Login = Callable[[Running, ssl.SSLContext, str, str], Awaitable[object]]
LOGINS = pytest.mark.parametrize("log_in", [by_comet, by_redis, by_http])


@LOGINS
async def test_any_certificate_of_the_authority_does_by_default(tmp_path: Path, log_in: Login) -> None:
    async with certified_gateway(tmp_path, "") as (running, authority):
        assert await log_in(running, authority.client("somebody"), *ANN) == "in"
        assert await log_in(running, authority.client("bob"), *ANN) == "in"


@LOGINS
@pytest.mark.parametrize("client_identity", ["cn", "san"])
async def test_a_certificate_of_one_name_cannot_log_in_as_another(
    tmp_path: Path, log_in: Login, client_identity: str
) -> None:
    async with certified_gateway(tmp_path, client_identity) as (running, authority):
        is_cn = client_identity == "cn"
        anns = authority.client("ann", alternative="bob") if is_cn else authority.client("bob", alternative="ann")
        assert await log_in(running, anns, *ANN) == "in"
        wrong_token = await log_in(running, anns, ANN[0], "wrong")
        assert wrong_token != "in"
        assert await log_in(running, anns, *BOB) == wrong_token, "the refusal does not tell that the token is right"
        assert await log_in(running, anns, *ANN) == "in"
        rows = await running.recorded("refuse", 2)
        assert [(row["note"]["user"], row["note"]["reason"]) for row in rows] == [
            ("ann", "wrong_token"),
            ("bob", "certificate"),
        ]
        assert running.gateway.counters.logins[rows[0]["protocol"], "certificate"] == 1


@LOGINS
async def test_a_certificate_without_a_name_or_with_several_logs_nobody_in(tmp_path: Path, log_in: Login) -> None:
    async with certified_gateway(tmp_path, "cn") as (running, authority):
        for tls in (authority.client("ann", "bob"), authority.client(alternative="ann")):
            assert await log_in(running, tls, *ANN) != "in"


async def test_a_refusal_by_the_certificate_takes_as_long_as_one_by_the_token(tmp_path: Path) -> None:
    async with certified_gateway(tmp_path, "cn") as (running, authority):
        logins, bobs = running.gateway.logins, authority.client("bob")
        await running.gateway.state.identities.add("cat", logins.token_key.hash(token := new_token()), 1)
        for count, (name, secret) in enumerate((("cat", token), ANN, ("", token), ("nobody", "x")), 1):
            if name:
                assert await by_comet(running, bobs, name, secret) != "in"
            else:
                assert await by_http(running, bobs, name, secret) == (401, "invalid token")
            assert logins.slow.computed >= count, "a slow check is made for each"


async def test_a_token_without_a_name_is_bound_to_the_certificate_too(tmp_path: Path) -> None:
    async with certified_gateway(tmp_path, "cn") as (running, authority):
        key = running.gateway.logins.token_key
        await running.gateway.state.identities.add("cat", key.hash(token := new_token()), 1)
        assert await by_http(running, authority.client("cat"), "", token) == "in"
        for chosen in (token, ANN[1]):
            assert await by_http(running, authority.client("bob"), "", chosen) == (401, "invalid token")
        assert [row["note"]["reason"] for row in await running.recorded("refuse", 2)] == ["certificate"] * 2


async def test_a_cookie_counts_with_the_certificate_of_its_identity_only(tmp_path: Path) -> None:
    async with certified_gateway(tmp_path, "cn") as (running, authority):
        url = f"https://{HOST}:{running.port('http')}"
        headers = {"sec-fetch-site": "same-origin"}

        def browser(tls: ssl.SSLContext, cookies: Any = None) -> httpx.AsyncClient:
            return httpx.AsyncClient(
                base_url=url, verify=tls, timeout=WAIT_S, trust_env=False, headers=headers, cookies=cookies
            )

        async with browser(authority.client("ann")) as anns:
            await anns.post("/login", data={"token": ":".join(ANN)})
            assert (await anns.get("/api/topics")).status_code == 200
            async with browser(authority.client("bob"), anns.cookies) as bobs:
                assert (await bobs.get("/api/topics")).status_code == 401


async def test_the_admin_token_needs_no_certificate_of_its_own_name(tmp_path: Path) -> None:
    async with certified_gateway(tmp_path, "cn") as (running, authority):
        response = await _get(running, authority.client("bob"), "/api/identities", running.gateway.keys.admin_token())
        assert response.status_code == 200


async def test_where_everybody_is_admitted_the_certificate_says_who_it_is(tmp_path: Path) -> None:
    async with certified_gateway(tmp_path, "cn", auth={"open": True}, identities=[]) as (running, authority):
        for log_in in (by_comet, by_redis, by_http):
            assert await log_in(running, authority.client("cat"), "cat", "any") == "in"
            assert await log_in(running, authority.client("cat"), "ann", "any") != "in"


async def test_a_session_is_resumed_with_the_certificate_of_its_identity_only(tmp_path: Path) -> None:
    async with certified_gateway(tmp_path, "cn") as (running, authority):
        async with await Box.connect(running, *ANN, tls=authority.client("ann")) as box:
            sid, secret = box.sid, box.secret
        async with await Box.connect(running, tls=authority.client("bob")) as thief:
            thief.send(thief.syn(sid, secret))
            assert await thief.receive_refusal() == 5
        (row,) = await running.recorded("refuse", protocol="magline")
        assert row["note"]["reason"] == "certificate"
        async with await Box.connect(running, tls=authority.client("ann")) as again:
            await again.handshake(sid, secret)
            request = again.req(2, b'{"topics":["@a"]}')
            again.send(request)
            assert isinstance(await again.receive(), magline.Rep)


@pytest.mark.parametrize(
    ("client_identity", "certificate", "names"),
    [
        ("", None, None),
        ("", {"subject": ((("commonName", "ann"),),)}, None),
        ("cn", None, set()),
        ("cn", {"subject": ((("countryName", "XX"),), (("commonName", "ann"),))}, {"ann"}),
        ("cn", {"subject": ((("commonName", "ann"), ("commonName", "bob")),)}, set()),
        ("cn", {"subjectAltName": (("DNS", "ann"),)}, set()),
        ("san", {"subject": ((("commonName", "ann"),),)}, set()),
        (
            "san",
            {"subjectAltName": (("DNS", "a"), ("email", "b@c"), ("URI", "urn:d"), ("IP Address", "::1"))},
            {"a", "b@c", "urn:d"},
        ),
    ],
)
def test_the_names_of_a_certificate(client_identity: Any, certificate: Any, names: set[str] | None) -> None:
    assert certified_names(TlsSection(client_identity=client_identity), certificate) == names
