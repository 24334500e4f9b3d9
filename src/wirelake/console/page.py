"""One page: who may see it, and its HTML.

Whatever comes from the wire (a topic's name, a serial, a content) reaches the HTML through the templates alone, which
escape it. The browser is told to load and run nothing but the gateway's own files, so that a hole there stays small.
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
ADMINS: Final = {"/", "/sessions", "/quarantine", "/tables"}  # what is everybody's traffic
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
    """For a data block of a page: no end of a script, and no comment, may stand in it."""
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
    """A page for those who logged in. `data` in the view's context reaches the page's JavaScript."""
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
            await exchange.api.doorkeeper.admit(exchange, Access.ADMIN if admin else Access.IDENTITY)
            with exchange.api.slot():
                context = await view(exchange)
        except ApiError as error:
            if error.status_code == 401:
                wanted = exchange.request.url.path
                if exchange.request.url.query:
                    wanted += f"?{exchange.request.url.query}"
                to = "" if wanted == "/" else f"?to={quote(wanted, safe='/')}"
                return RedirectResponse(f"/login{to}", 303, HEADERS)
            return rendered("error.html", exchange, error.status_code, message=error.detail)
        return rendered(template, exchange, **context)

    return handle
