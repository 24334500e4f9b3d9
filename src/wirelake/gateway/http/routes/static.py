"""Serve files of the package to browsers."""

import hashlib
from functools import cache
from pathlib import Path
from typing import Final

from starlette.responses import Response

from wirelake.gateway.http.request_context import RequestContext
from wirelake.gateway.http.route import Access, BoundRoute, Route

FOLDER: Final = Path(__file__).parent.parent / "static"
JAVASCRIPT: Final = "text/javascript; charset=utf-8"


@cache
def _read(path: Path) -> tuple[bytes, str]:
    """Return a file and its ETag. Files do not change while the gateway runs."""
    data = path.read_bytes()
    return data, f'"{hashlib.sha256(data).hexdigest()[:32]}"'


def static_response(
    context: RequestContext, path: Path, media_type: str, headers: dict[str, str] | None = None
) -> Response:
    """Return a file, or 304 if the browser has it. Browsers ask each time, so an upgrade is visible at once."""
    data, etag = _read(path)
    about = {"etag": etag, "cache-control": "no-cache", "x-content-type-options": "nosniff", **(headers or {})}
    known = [tag.strip().removeprefix("W/") for tag in context.header("if-none-match").split(",")]
    if etag in known or "*" in known:
        return Response(status_code=304, headers=about)
    return Response(data, headers=about, media_type=media_type)


class StaticRoutes:
    def routes(self) -> tuple[BoundRoute, ...]:
        return (CLIENT_JS.bind(self.client_js),)

    async def client_js(self, context: RequestContext, _: None) -> Response:
        """Return the client. Any page may load it: it contains no secret, and does nothing without a token."""
        return static_response(context, FOLDER / "client.js", JAVASCRIPT, {"access-control-allow-origin": "*"})


CLIENT_JS: Final = Route(
    method="GET",
    path="/client.js",
    operation_id="static.client_js",
    summary="Get a sisnet client for browsers, as an ES module.",
    access=Access.ANYBODY,
    gives=str,
    media_type="text/javascript",
    example_answer="export class SisnetClient …",
)

ROUTES: Final = (CLIENT_JS,)
