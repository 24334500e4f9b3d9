"""Build the ASGI application from the routes.

A request that changes something is recorded in the event log twice, as received and as answered (bodies as JSON,
secrets blanked; the note holds method, path and status). The response is sent once the second record is on disk: the
first one is on disk by then too.
"""

import logging
import re
from collections.abc import Callable, Sequence
from typing import Any, Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route as PathRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from wirelake.commit import Commit
from wirelake.errors import BusyError, WirelakeError
from wirelake.gateway.auth.audit import AuditLog, outcome_of
from wirelake.gateway.http.auth import Authenticator
from wirelake.gateway.http.bodies import parse_body, read_bytes, redact
from wirelake.gateway.http.errors import ApiError, api_error, error_response
from wirelake.gateway.http.limiter import RequestLimiter
from wirelake.gateway.http.request_context import RequestContext
from wirelake.gateway.http.route import Access, BoundRoute, Handler, Route
from wirelake.gateway.http.traffic import HttpStats
from wirelake.gateway.metrics import Counters, Histogram
from wirelake.gateway.recorder import Recorder
from wirelake.protocols.text import write_json

_log = logging.getLogger(__name__)
_NAME: Final = re.compile(r"\{(\w+)\}")


class RequestLog:
    """Record requests that change something, and their responses."""

    def __init__(
        self,
        recorder: Recorder,
        audit: AuditLog,
        counters: Counters,
        commit_s: Histogram,
        is_log_behind: Callable[[], bool],
        now_s: Callable[[], float],
    ) -> None:
        self._recorder = recorder
        self._audit = audit
        self._counters = counters
        self._commit_s = commit_s
        self._is_log_behind = is_log_behind
        self._now_s = now_s

    def record_request(self, route: Route, context: RequestContext, data: bytes) -> None:
        """Record a request; BusyError if the log is behind."""
        if self._is_log_behind():
            raise BusyError("the log is behind; try again")
        size = self._record(route, context, "in", data, {})[1]
        self._counters.frames_in["http"] += 1
        self._counters.bytes_in["http"] += size

    async def record_response(self, route: Route, context: RequestContext, body: Any, response: Response) -> None:
        """Record a response, with the action if it is one to audit, and return once that is on disk."""
        started_s = self._now_s()
        if route.audit:
            self._record_action(route, context, body, response)
        commit, size = self._record(route, context, "out", bytes(response.body), {"status": response.status_code})
        self._counters.frames_out["http"] += 1
        self._counters.bytes_out["http"] += size
        await commit
        self._commit_s.observe(self._now_s() - started_s)

    def _record_action(self, route: Route, context: RequestContext, body: Any, response: Response) -> None:
        status, name = response.status_code, route.audit_target
        target = context.path(name) if f"{{{name}}}" in route.path else str(getattr(body, name))
        self._audit.record(context, route.audit, target, outcome_of(status), status=status, **context.audited)

    def count_error(self, error: ApiError) -> None:
        self._counters.errors["http", error.code] += 1

    def _record(
        self, route: Route, context: RequestContext, direction: str, data: bytes, note: dict[str, Any]
    ) -> tuple[Commit, int]:
        shown = redact(data, route.secrets)
        if route.redact_request is not None and direction == "in":
            shown = route.redact_request(context, shown)
        about = {"method": route.method, "path": context.request.url.path, **note}
        return self._recorder.event(context, "frame", about, direction, shown), len(shown)


class PathEndpoint:
    """An ASGI application for all methods of one path."""

    def __init__(
        self,
        routes: Sequence[BoundRoute],
        authenticator: Authenticator,
        limiter: RequestLimiter,
        request_log: RequestLog,
        stats: HttpStats,
        new_id: Callable[[], str],
    ) -> None:
        self._path = routes[0].route.path
        self._routes = {bound.route.method: bound for bound in routes}
        if "GET" in self._routes and not self._routes["GET"].route.is_stream:
            self._routes.setdefault("HEAD", self._routes["GET"])
        self._authenticator = authenticator
        self._limiter = limiter
        self._request_log = request_log
        self._stats = stats
        self._new_id = new_id

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            response = await self._respond(request)
        except ClientDisconnect:
            return
        if response.status_code >= 400 and "expect" in request.headers:
            response.headers["connection"] = "close"  # the announced body may never arrive
        await response(scope, receive, send)

    async def _respond(self, request: Request) -> Response:
        method = request.method
        try:
            response = await self._admit(request)
        except ApiError as error:
            response = self._refused(error)
        except WirelakeError as error:
            response = self._refused(api_error(error))
        except ClientDisconnect:
            raise
        except Exception:  # noqa: BLE001 (whatever failed, the client gets a response and the log a traceback)
            _log.exception("%s %s failed", method, self._path)
            response = self._refused(ApiError(500, "internal error: see the log of the gateway"))
        known = method if method in self._routes else "other"  # a metric's label: clients must not create new ones
        self._stats.responses[known, self._path, response.status_code] += 1
        return response

    async def _admit(self, request: Request) -> Response:
        bound = self._routes.get(request.method)
        if bound is None:
            allowed = ", ".join(self._routes)
            raise ApiError(405, f"{self._path} takes {allowed}", headers={"allow": allowed})
        route = bound.route
        context = RequestContext(request, self._new_id())
        if route.access is Access.ANYBODY:
            return await self._handle(route, bound.handle, context, b"")
        with self._limiter.receive():
            await self._authenticator.authorize(context, route.access, route.see)
            raw = b"" if route.takes is None else await read_bytes(request)
        with self._limiter.open.slot():
            return await self._handle(route, bound.handle, context, raw)

    async def _handle(self, route: Route, handle: Handler, context: RequestContext, raw: bytes) -> Response:
        _check_parameters(route, context)
        body = None if route.takes is None else parse_body(raw, route.takes)
        if not route.is_recorded:
            return _response(route, await handle(context, body))
        self._request_log.record_request(route, context, raw)
        error = None
        try:
            response = _response(route, await handle(context, body))
        except WirelakeError as fault:
            error = api_error(fault)
        except ApiError as fault:
            error = fault
        if error is not None:
            response = self._refused(error)
        await self._request_log.record_response(route, context, body, response)
        return response

    def _refused(self, error: ApiError) -> Response:
        self._request_log.count_error(error)
        return error_response(error)


class RawPath:
    """Let routes match the path as sent: `%2F` in the name of a topic is not a separator."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["path"] = scope["raw_path"].decode("ascii")
        await self._app(scope, receive, send)


def build_app(routes: Sequence[BoundRoute], new_endpoint: Callable[[list[BoundRoute]], PathEndpoint]) -> ASGIApp:
    by_path: dict[str, list[BoundRoute]] = {}
    for bound in routes:
        by_path.setdefault(bound.route.path, []).append(bound)
    # Names match slashes too, so `…/{serial}/commands` must come before `…/{serial}`: longer paths are tried first, and
    # of those with the same length, the ones without names.
    paths = sorted(by_path, key=lambda path: (-path.count("/"), path.count("{")))
    app = Starlette(
        routes=[PathRoute(_NAME.sub(r"{\1:path}", path), new_endpoint(by_path[path])) for path in paths],
        exception_handlers={HTTPException: _on_http_exception},
    )
    app.router.redirect_slashes = False
    return RawPath(app)


async def _on_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 (registered for nothing else)
    if error.status_code == 404:
        error = ApiError(404, f"no route {request.url.path[:256]}; see /api/openapi.json")
    return error_response(error)


def _check_parameters(route: Route, context: RequestContext) -> None:
    for parameter in route.parameters:
        if f"{{{parameter.name}}}" not in route.path:
            parameter.check(context.values(parameter.name, header=parameter.is_header))


def _response(route: Route, answer: Any) -> Response:
    if isinstance(answer, Response):
        return answer
    if answer is None:
        return Response(status_code=204 if route.gives is None else route.status)
    return Response(write_json(answer), route.status, media_type=route.media_type)
