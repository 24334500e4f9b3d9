"""Render a page, and check who may see it.

Data from the wire (topic names, serials, content) reaches the HTML through the templates only, which escape it. The
content security policy restricts the browser to the gateway's own files, so that a missed escape does little harm.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from msgspec import json, to_builtins
from starlette.responses import RedirectResponse, Response

from wirelake.console.filters import FILTERS
from wirelake.gateway.http.errors import ApiError
from wirelake.gateway.http.request_context import RequestContext
from wirelake.gateway.http.route import Access, Handler, Route

TITLES: Final = {
    "/": "Overview",
    "/sessions": "Sessions",
    "/topics": "Topics",
    "/devices": "Devices",
    "/inspector": "Inspector",
    "/trace": "Trace",
    "/quarantine": "Quarantine",
    "/tables": "Tables",
}
ADMINS: Final = {"/", "/sessions", "/quarantine", "/tables"}  # pages that show traffic of all identities
_ERROR_HEADINGS: Final = {403: "Forbidden", 404: "Not found", 429: "Busy", 503: "Unavailable"}
_POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "form-action 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
    )
)
HEADERS: Final = {
    "content-security-policy": _POLICY,
    "cache-control": "no-store",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}

Context = dict[str, Any]
View = Callable[[RequestContext], Awaitable[Context]]


def _as_json(value: Any) -> str:
    """Encode a data block of a page such that it cannot contain the end of a script or a comment."""
    text = json.encode(to_builtins(value, str_keys=True)).decode()
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


_TEMPLATES: Final = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_TEMPLATES.filters.update(FILTERS)


def rendered(template: str, exchange: RequestContext, status: int = 200, **context: Any) -> Response:
    data = context.get("data")
    html = _TEMPLATES.get_template(template).render(
        titles={path: title for path, title in TITLES.items() if exchange.admin or path not in ADMINS},
        path=exchange.request.url.path,
        identity=exchange.identity,
        admin=exchange.admin,
        **{**context, "data_json": None if data is None else _as_json(data)},
    )
    return Response(html, status, HEADERS, media_type="text/html; charset=utf-8")


def page(path: str, template: str, view: View) -> Route:
    """Return the route of a page that requires a login. `data` in the view's context is passed to its JavaScript."""
    return Route(
        method="GET",
        path=path,
        summary=TITLES.get(path, ""),
        handle=_shown(template, view, path in ADMINS),
        access=Access.ANYBODY,
    )


def _shown(template: str, view: View, admin: bool) -> Handler:
    async def handle(exchange: RequestContext, _: None) -> Response:
        try:
            await exchange.api.authenticator.admit(exchange, Access.ADMIN if admin else Access.IDENTITY)
            with exchange.api.slot():
                context = await view(exchange)
        except ApiError as error:
            if error.status_code == 401:
                wanted = exchange.request.url.path
                if exchange.request.url.query:
                    wanted += f"?{exchange.request.url.query}"
                to = "" if wanted == "/" else f"?to={quote(wanted, safe='/')}"
                return RedirectResponse(f"/login{to}", 303, HEADERS)
            heading = _ERROR_HEADINGS.get(error.status_code, "Error")
            return rendered("error.html", exchange, error.status_code, heading=heading, message=error.detail)
        return rendered(template, exchange, **context)

    return handle
