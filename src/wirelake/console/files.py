"""Serve style sheets and scripts."""

from pathlib import Path
from typing import Final

from starlette.responses import Response

from wirelake.gateway.http.errors import ApiError
from wirelake.gateway.http.request_context import RequestContext
from wirelake.gateway.http.route import Access, Route
from wirelake.gateway.http.routes.static import JAVASCRIPT, static_response

FOLDER: Final = Path(__file__).parent / "static"
_TYPES: Final = {".css": "text/css; charset=utf-8", ".js": JAVASCRIPT, ".svg": "image/svg+xml"}
_FILES: Final = {path.name: path for path in FOLDER.iterdir() if path.suffix in _TYPES}  # the only files served


async def file(exchange: RequestContext, _: None) -> Response:
    path = _FILES.get(exchange.path("name"))
    if path is None:
        raise ApiError(404, "no such console file")
    return static_response(exchange, path, _TYPES[path.suffix])


async def icon(exchange: RequestContext, _: None) -> Response:
    return static_response(exchange, FOLDER / "icon.svg", _TYPES[".svg"])


ROUTES = (
    Route(method="GET", path="/console/{name}", summary="Get a console file.", handle=file, access=Access.ANYBODY),
    Route(method="GET", path="/favicon.ico", summary="Get the icon.", handle=icon, access=Access.ANYBODY),
)
