"""All methods of one path: recognise who asks, read the body, do it, record it, answer.

What changes something is recorded in the event log twice, as it came and as it is answered (bodies as JSON, secrets
blanked out; the note holds method, path and status), and is answered when the second record is on disk: the first is
on disk by then too.
"""

import logging
from functools import cache
from typing import Any, Final, get_type_hints

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from wirelake.errors import BusyError, ProtocolError, WirelakeError
from wirelake.gateway.http.api import HttpApi
from wirelake.gateway.http.errors import ApiError, api_error, error_response
from wirelake.gateway.http.request_context import RequestContext
from wirelake.gateway.http.route import Access, Route
from wirelake.protocols.jsontext import read_json, write_json

_log = logging.getLogger(__name__)
_BLANK: Final = "…"


class RouteEndpoint:
    """An ASGI application."""

    def __init__(self, api: HttpApi, routes: list[Route]) -> None:
        self._api = api
        self._path = routes[0].path
        self._routes = {route.method: route for route in routes}
        if "GET" in self._routes and not self._routes["GET"].streams:
            self._routes.setdefault("HEAD", self._routes["GET"])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            response = await self._respond(request)
        except ClientDisconnect:
            return  # nobody is left to be answered
        if response.status_code >= 400 and "expect" in request.headers:
            response.headers["connection"] = "close"  # a body that was announced and not asked for never comes
        await response(scope, receive, send)

    async def _respond(self, request: Request) -> Response:
        api = self._api
        method = request.method
        try:
            response = await self._answer(request)
        except ApiError as error:
            response = self._refused(error)
        except WirelakeError as error:
            response = self._refused(api_error(error))
        except ClientDisconnect:
            raise
        except Exception:  # noqa: BLE001 whatever it is, the asker gets an answer and we a traceback
            _log.exception("%s %s failed", method, self._path)
            response = self._refused(ApiError(500, "internal error: see the log of the gateway"))
        known = method if method in self._routes else "other"  # a metric's label: peers must not invent new ones
        api.answered[known, self._path, response.status_code] += 1
        return response

    async def _answer(self, request: Request) -> Response:
        route = self._routes.get(request.method)
        if route is None:
            allowed = ", ".join(self._routes)
            raise ApiError(405, f"{self._path} takes {allowed}", headers={"allow": allowed})
        api = self._api
        exchange = RequestContext(api, request)
        if route.access is Access.ANYBODY:
            return await self._do(route, exchange, b"")
        api.receiving += 1
        try:
            await api.authenticator.admit(exchange, route.access)
            raw = b"" if route.takes is None else await api.read(request)
        finally:
            api.receiving -= 1
        with api.slot():
            return await self._do(route, exchange, raw)

    async def _do(self, route: Route, exchange: RequestContext, raw: bytes) -> Response:
        check_parameters(route, exchange)
        body = None if route.takes is None else read_body(raw, route.takes)
        if not route.recorded:
            return _response(route, await route.handle(exchange, body))
        gateway = self._api.gateway
        if gateway.log_behind:
            raise BusyError("the log is behind; try again")
        self._record(route, exchange, "in", raw, {})
        error = None
        try:
            response = _response(route, await route.handle(exchange, body))
        except WirelakeError as fault:
            error = api_error(fault)
        except ApiError as fault:
            error = fault
        if error is not None:
            response = self._refused(error)
        started_s = gateway.now_s()
        await self._record(route, exchange, "out", bytes(response.body), {"status": response.status_code})
        gateway.commit_barrier.commit_s.observe(gateway.now_s() - started_s)
        return response

    def _record(self, route: Route, exchange: RequestContext, direction: str, data: bytes, note: dict[str, Any]) -> Any:
        gateway = self._api.gateway
        kept = blanked(data, route.secrets)
        commit = gateway.recorder.event(
            exchange, "frame", {"method": route.method, "path": exchange.request.url.path, **note}, direction, kept
        )
        frames, sizes = gateway.counters.frames_in, gateway.counters.bytes_in
        if direction == "out":
            frames, sizes = gateway.counters.frames_out, gateway.counters.bytes_out
        frames["http"] += 1
        sizes["http"] += len(kept)
        return commit

    def _refused(self, error: ApiError) -> Response:
        self._api.gateway.counters.errors["http", error.code] += 1
        return error_response(error)


def check_parameters(route: Route, exchange: RequestContext) -> None:
    for parameter in route.parameters:
        if f"{{{parameter.name}}}" not in route.path:
            parameter.check(exchange.given(parameter.name, header=parameter.header))


def read_body(raw: bytes, wanted: Any) -> Any:
    try:
        value = read_json(raw or b"{}")
        if isinstance(value, dict):
            for name in value.keys() & _integers(wanted):
                if isinstance(value[name], float) and value[name].is_integer():
                    value[name] = int(value[name])  # JSON Schema's integers are numbers without a fraction: 60.0 is one
        return msgspec.convert(value, wanted)
    except ProtocolError as error:
        raise ApiError(400, f"invalid JSON body: {error.text} (byte {error.offset})", "bad_json") from error
    except msgspec.ValidationError as error:
        raise ApiError(400, f"invalid body: {error}") from error


@cache
def _integers(wanted: Any) -> frozenset[str]:
    """The fields of a body's type that are integers."""
    hints = get_type_hints(wanted) if isinstance(wanted, type) else {}
    return frozenset(name for name, hint in hints.items() if hint is int)


def blanked(data: bytes, secrets: tuple[str, ...]) -> bytes:
    """Without the values of these fields."""
    if not secrets or not data:
        return data
    value = read_json(data)
    return write_json({name: _BLANK if name in secrets else item for name, item in value.items()})


def _response(route: Route, answer: Any) -> Response:
    if isinstance(answer, Response):
        return answer
    if answer is None:
        return Response(status_code=204 if route.gives is None else route.status)
    return Response(write_json(answer), route.status, media_type=route.media_type)
