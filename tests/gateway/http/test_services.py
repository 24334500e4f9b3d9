import asyncio
from pathlib import Path

import pytest

from gateway.http.calling import BOB, Provider, answering, calling
from gateway.running_gateway import until
from wirelake.message import Failure, Operation

ASK = "/api/services/magline%2F16/call"


async def test_fields_and_payload_go_both_ways(tmp_path: Path) -> None:
    async with calling(tmp_path, identities=[BOB]) as caller:
        provider = Provider(caller, "magline/16", lambda asked: [answering(asked, fields={"n": 1}, payload=b"\xff")])
        body = {"a": {"b": [1]}, "payload": "AAE="}
        response = await caller.call("POST", f"{ASK}?object=m7", body, bearer=":".join(BOB))
        assert (response.status_code, response.json()) == (200, {"n": 1, "payload": "/w=="})
        (request,) = provider.requests
        assert request.target == Operation("magline/16", "call", "m7")
        assert (request.fields, request.payload, request.source) == ({"a": {"b": [1]}}, b"\x00\x01", "bob")

        empty = await caller.call("POST", ASK)
        assert empty.status_code == 200
        assert provider.requests[1].fields == {}
        came, went = caller.records("frame", protocol="http")[:2]
        assert (came["frame"], went["frame"]) == (b'{"a":{"b":[1]},"payload":"AAE="}', response.content)


async def test_an_answer_in_parts(tmp_path: Path) -> None:
    async with calling(tmp_path) as caller:
        Provider(
            caller,
            "s",
            lambda asked: [answering(asked, fields={"n": 1}, more=1), answering(asked, fields={"n": 2})],
        )
        assert (await caller.call("POST", "/api/services/s/o", {})).json() == {"parts": [{"n": 1}, {"n": 2}]}


@pytest.mark.parametrize(
    ("code", "status", "name"),
    [(0, 502, "service_failed"), (7, 502, "service_failed"), (404, 404, "not_found"), (409, 409, "conflict")],
)
async def test_a_services_error_is_the_status_where_it_can_be(
    tmp_path: Path, code: int, status: int, name: str
) -> None:
    async with calling(tmp_path) as caller:
        Provider(caller, "s", lambda asked: [answering(asked, failure=Failure("went wrong", code))])
        assert await caller.refused(status, name, "POST", "/api/services/s/o", {}) == "went wrong"


async def test_nobody_there_nobody_answers_and_bad_questions(tmp_path: Path) -> None:
    async with calling(tmp_path) as caller:
        message = await caller.refused(404, "not_found", "POST", "/api/services/none/op", {})
        assert message == "nobody provides the service 'none' with 'op'"
        Provider(caller, "mute", lambda _: [])
        message = await caller.refused(504, "timeout", "POST", "/api/services/mute/op?timeout_ms=20", {})
        assert message == "'mute' did not answer 'op' within 20 ms"
        await caller.refused(504, "timeout", "POST", "/api/services/mute/op", {}, headers={"x-timeout-ms": "20"})
        assert caller.gateway.broker.services.timeouts == 2
        assert caller.gateway.broker.services.open == 0
        for bad in ("0", "x", "300001", "-1", "٣"):
            await caller.refused(400, "bad_request", "POST", "/api/services/mute/op", {}, params={"timeout_ms": bad})
        await caller.refused(400, "bad_request", "POST", "/api/services/mute/op", {"payload": "!"})
        await caller.refused(400, "bad_request", "POST", "/api/services/mute/op", [1])


async def test_the_gateways_own_service_answers_pings_only(tmp_path: Path) -> None:
    async with calling(tmp_path) as caller:
        assert (await caller.call("POST", "/api/services/wirelake/ping", {})).json() == {}
        for op in ("subscribe", "publish", "register", "login"):
            await caller.refused(404, "not_found", "POST", f"/api/services/wirelake/{op}", {"topics": ["x"]})
        assert caller.gateway.broker.live.names() == {}


async def test_who_waits_when_the_gateway_stops_is_told(tmp_path: Path) -> None:
    async with calling(tmp_path) as caller:
        Provider(caller, "mute", lambda _: [])
        asked = asyncio.create_task(caller.refused(503, "unavailable", "POST", "/api/services/mute/op", {}))
        await until(lambda: caller.gateway.broker.services.open == 1)
        await caller.gateway.close()
        assert "shutting down" in await asked


async def test_a_request_may_name_a_group(tmp_path: Path) -> None:
    async with calling(tmp_path) as caller:
        provider = Provider(caller, "sums", lambda message: [answering(message, fields={"sum": 1})])
        caller.gateway.broker.services.register(provider, "sums", "red")
        response = await caller.call("POST", "/api/services/sums/add?group=red", {})
        assert response.json() == {"sum": 1}
        message = await caller.refused(404, "not_found", "POST", "/api/services/sums/add?group=blue", {})
        assert message == "nobody provides the service 'sums' with 'add' in the group 'blue'"
