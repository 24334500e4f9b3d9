"""Files that the gateway gives to browsers, as they are in the package."""

import hashlib
from functools import cache
from pathlib import Path
from typing import Final

from starlette.responses import Response

from wirelake.gateway.http.request_context import RequestContext
from wirelake.gateway.http.route import Access, Route

FOLDER: Final = Path(__file__).parent.parent / "static"
JAVASCRIPT: Final = "text/javascript; charset=utf-8"


@cache
def _read(path: Path) -> tuple[bytes, str]:
    """The file and its ETag. It does not change while the gateway runs."""
    data = path.read_bytes()
    return data, f'"{hashlib.sha256(data).hexdigest()[:32]}"'


def static_response(
    exchange: RequestContext, path: Path, media_type: str, headers: dict[str, str] | None = None
) -> Response:
    """The whole file, or 304 where the browser has this very one. It asks each time: an upgrade shows at once."""
    data, etag = _read(path)
    about = {"etag": etag, "cache-control": "no-cache", "x-content-type-options": "nosniff", **(headers or {})}
    known = [tag.strip().removeprefix("W/") for tag in exchange.header("if-none-match").split(",")]
    if etag in known or "*" in known:
        return Response(status_code=304, headers=about)
    return Response(data, headers=about, media_type=media_type)


async def client_js(exchange: RequestContext, _: None) -> Response:
    """Any page may load it as a module: it holds no secret, and does nothing without a token."""
    return static_response(exchange, FOLDER / "client.js", JAVASCRIPT, {"access-control-allow-origin": "*"})


ROUTES = (
    Route(
        method="GET",
        path="/client.js",
        summary="Get a sisnet client for browsers, as an ES module.",
        handle=client_js,
        access=Access.ANYBODY,
        gives=str,
        media_type="text/javascript",
        example_answer="export class SisnetClient …",
    ),
)
