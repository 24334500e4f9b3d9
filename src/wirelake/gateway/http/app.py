"""The ASGI application, built from the table of routes."""

import re
from collections.abc import Sequence
from typing import Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as PathRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from wirelake.gateway.http.api import HttpApi
from wirelake.gateway.http.endpoint import RouteEndpoint
from wirelake.gateway.http.errors import ApiError, error_response
from wirelake.gateway.http.route import Route
from wirelake.gateway.http.routing import ROUTES

_NAME: Final = re.compile(r"\{(\w+)\}")


def build(api: HttpApi, pages: Sequence[Route] = ()) -> ASGIApp:
    """`pages` are those of the console: routes like the others, but not part of the API's description."""
    by_path: dict[str, list[Route]] = {}
    for route in (*ROUTES, *pages):
        by_path.setdefault(route.path, []).append(route)
    # `…/{serial}/commands` before `…/{serial}`: names hold slashes too, so the longer path is tried first; and among
    # those of one length, the ones without a name in them.
    paths = sorted(by_path, key=lambda path: (-path.count("/"), path.count("{")))
    app = Starlette(
        routes=[PathRoute(_NAME.sub(r"{\1:path}", path), RouteEndpoint(api, by_path[path])) for path in paths],
        exception_handlers={HTTPException: _unknown},
    )
    app.router.redirect_slashes = False
    return AsSent(app)


class AsSent:
    """Routes see the path as it was sent: `%2F` in a topic's name is not the slash between two parts."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["path"] = scope["raw_path"].decode("ascii")
        await self._app(scope, receive, send)


async def _unknown(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 (what it is registered for)
    if error.status_code == 404:
        error = ApiError(404, f"no route {request.url.path[:256]}; see /api/openapi.json")
    return error_response(error)
