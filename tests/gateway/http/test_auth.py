import stat
from pathlib import Path

import pytest

from gateway.http.calling import BOB, calling
from wirelake.config import default_settings
from wirelake.gateway.http.assembly import ROUTES
from wirelake.gateway.http.auth import is_loopback
from wirelake.gateway.http.route import Access

PUBLISH = ("POST", "/api/topics/%40news/notifications", {"content": "x"})


async def test_without_a_token_little_is_open(tmp_path: Path) -> None:
    async with calling(tmp_path) as caller:
        opened = set()
        for route in ROUTES:
            path = route.path.replace("{", "").replace("}", "")
            response = await caller.call(route.method, path, route.example, bearer=None)
            if response.status_code == 401:
                assert response.headers["www-authenticate"].startswith("Bearer")
                assert response.json()["error"]["code"] == "unauthorized"
            else:
                opened.add(path)
        assert opened == {"/healthz", "/readyz", "/metrics", "/api/openapi.json", "/client.js"}


async def test_the_admin_token_is_in_a_private_file(tmp_path: Path) -> None:
    async with calling(tmp_path) as caller:
        file = caller.gateway.keys.admin_token_file
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        token = file.read_text().strip()
        assert (await caller.call("GET", "/api/sessions", bearer=token)).status_code == 200
        await caller.refused(401, "unauthorized", "GET", "/api/sessions", bearer=token[:-1])


async def test_an_identity_is_known_by_name_and_token(tmp_path: Path) -> None:
    async with calling(tmp_path, identities=[BOB]) as caller:
        await caller.add_identity("a:ü", "other", at_once=False)
        assert (await caller.call(*PUBLISH, bearer="bob:bobs-token")).status_code == 201
        assert (await caller.call(*PUBLISH, bearer="a%3A%C3%BC:other")).status_code == 201
        assert [row["identity"] for row in caller.records("frame", direction="in")] == ["bob", "a:ü"]
        for wrong in ("bob:wrong", "nobody:bobs-token", "bob:", ":bobs-token"):
            await caller.refused(401, "unauthorized", *PUBLISH, bearer=wrong)
        reasons = [row["note"]["reason"] for row in await caller.recorded("refuse", 4, protocol="http")]
        assert reasons == ["wrong_token", "unknown", "wrong_token", "unknown"]
        assert caller.gateway.counters.logins["http", "wrong_token"] == 2
        assert "bobs-token" not in str(caller.records())


async def test_an_identitys_token_alone_is_enough(tmp_path: Path) -> None:
    async with calling(tmp_path, identities=[BOB]) as caller:
        await caller.add_identity("eve", "eves-token", at_once=False)
        for _ in range(2):
            assert (await caller.call(*PUBLISH, bearer="eves-token")).status_code == 201
        assert (await caller.call(*PUBLISH, bearer="bobs-token")).status_code == 201
        assert [row["identity"] for row in caller.records("frame", direction="in")] == ["eve", "eve", "bob"]
        await caller.refused(401, "unauthorized", *PUBLISH, bearer="nobodys-token")

        await caller.call("DELETE", "/api/identities/eve")
        await caller.refused(401, "unauthorized", *PUBLISH, bearer="eves-token")


@pytest.mark.parametrize("header", ["Basic Ym9iOng=", "Bearer", "bob:bobs-token"])
async def test_other_headers_are_refused(tmp_path: Path, header: str) -> None:
    async with calling(tmp_path) as caller:
        message = await caller.refused(401, "unauthorized", *PUBLISH, bearer=None, headers={"authorization": header})
        assert "Bearer" in message


async def test_what_is_the_admins_is_refused_to_an_identity(tmp_path: Path) -> None:
    async with calling(tmp_path, identities=[BOB]) as caller:
        refused = set()
        for route in ROUTES:
            if route.is_stream:
                continue
            path = route.path.replace("{", "").replace("}", "")
            response = await caller.call(route.method, path, route.example, bearer=":".join(BOB))
            if response.status_code == 403:
                assert response.json()["error"]["code"] == "forbidden"
                refused.add((route.method, path))
        assert refused == {
            ("DELETE", "/api/sessions/id"),
            ("POST", "/api/identities"),
            ("GET", "/api/identities"),
            ("DELETE", "/api/identities/name"),
            ("PUT", "/api/identities/name/roles"),
            ("POST", "/api/identities/name/tokens"),
            ("GET", "/api/identities/name/tokens"),
            ("DELETE", "/api/identities/name/tokens/id"),
            ("GET", "/api/roles"),
            ("GET", "/api/access"),
            ("POST", "/api/devices"),
            ("DELETE", "/api/devices/serial"),
            ("POST", "/api/devices/serial/commands"),
            ("POST", "/api/devices/*/commands"),
            ("GET", "/api/topics/topic"),
            ("GET", "/api/messages/id"),
            ("GET", "/api/ledger"),
            ("GET", "/api/audit"),
            ("GET", "/api/log"),
            ("GET", "/api/log/seq"),
            ("POST", "/api/lake/query"),
        }
        assert not caller.gateway.state.devices.list()


async def test_an_open_gateway_still_keeps_what_is_the_admins(tmp_path: Path) -> None:
    async with calling(tmp_path, auth={"open": True}) as caller:
        assert (await caller.call(*PUBLISH, bearer=None)).status_code == 201
        assert (await caller.call(*PUBLISH, bearer="anna:whatever")).status_code == 201
        assert [row["identity"] for row in caller.records("frame", direction="in")] == ["anonymous", "anna"]
        await caller.refused(403, "forbidden", "GET", "/api/identities", bearer=None)
        await caller.refused(403, "forbidden", "GET", "/api/identities", bearer="admin:whatever")
        await caller.refused(401, "unauthorized", *PUBLISH, bearer="a-mistyped-admin-token")
        assert (await caller.call("GET", "/api/identities")).status_code == 200

        here = {"origin": str(caller.client.base_url).rstrip("/")}
        assert (await caller.call(*PUBLISH, bearer=None, headers=here)).status_code == 201
        message = await caller.refused(
            403, "forbidden", *PUBLISH, bearer=None, headers={"origin": "https://elsewhere.example"}
        )
        assert "elsewhere.example" in message


LOOPBACK = {**dict.fromkeys(default_settings().listen.__struct_fields__, "off"), "http": "127.0.0.1:0"}
EVERYWHERE = {**LOOPBACK, "http": "0.0.0.0:0"}


@pytest.mark.parametrize(
    ("setting", "listen", "needs_token"),
    [
        ("loopback", LOOPBACK, False),
        ("loopback", EVERYWHERE, True),
        ("token", LOOPBACK, True),
        ("token", EVERYWHERE, True),
        ("open", LOOPBACK, False),
        ("open", EVERYWHERE, False),
    ],
)
async def test_when_metrics_need_the_admin_token(
    tmp_path: Path, setting: str, listen: dict[str, str], needs_token: bool
) -> None:
    async with calling(tmp_path, identities=[BOB], listen=listen, http={"metrics": setting}) as caller:
        if needs_token:
            await caller.refused(401, "unauthorized", "GET", "/metrics", bearer=None)
            await caller.refused(403, "forbidden", "GET", "/metrics", bearer=":".join(BOB))
        else:
            assert "wirelake_connections" in (await caller.call("GET", "/metrics", bearer=None)).text
        assert "wirelake_connections" in (await caller.call("GET", "/metrics")).text


def test_which_addresses_are_this_machine_only() -> None:
    assert [is_loopback(host) for host in ("127.0.0.1", "127.1.2.3", "::1", "localhost")] == [True] * 4
    assert [is_loopback(host) for host in ("0.0.0.0", "::", "192.0.2.1", "gateway.example")] == [False] * 4  # noqa: S104


def test_every_route_says_whose_it_is() -> None:
    open_to_all = {route.path for route in ROUTES if route.access is Access.ANYBODY}
    assert open_to_all == {"/healthz", "/readyz", "/api/openapi.json", "/client.js"}
