"""Render pages, and check who may see them.

Data from the wire (topic names, serials, content) reaches the HTML through the templates only, which escape it. The
content security policy restricts the browser to the gateway's own files, so that a missed escape does little harm.
"""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from msgspec import json, to_builtins
from starlette.responses import RedirectResponse, Response

from wirelake.broker.access import Rights
from wirelake.errors import AccessDeniedError
from wirelake.gateway.http.auth import Authenticator, is_own_page
from wirelake.gateway.http.bodies import read_bytes
from wirelake.gateway.http.errors import ApiError, api_error
from wirelake.gateway.http.limiter import RequestLimiter
from wirelake.gateway.http.request_context import RequestContext
from wirelake.gateway.http.route import Access, BoundRoute, Route
from wirelake.roles import AUDIT, LOG, OVERVIEW, Action

TITLES: Final = {
    "/": "Overview",
    "/sessions": "Sessions",
    "/topics": "Topics",
    "/devices": "Devices",
    "/inspector": "Inspector",
    "/trace": "Trace",
    "/quarantine": "Quarantine",
    "/workbench": "Workbench",
    "/tables": "Tables",
    "/identities": "Identities",
    "/audit": "Audit",
}
ADMINS: Final = {"/identities"}  # pages for the admin alone
SEEN: Final = {
    "/": OVERVIEW,
    "/quarantine": LOG,
    "/workbench": LOG,
    "/audit": AUDIT,
}  # what one must be allowed to see for a page
_ERROR_HEADINGS: Final = {403: "You may not see this", 404: "Not found", 429: "Busy", 503: "Unavailable"}
_FIELDS_MAX: Final = 8  # of a form
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

Values = dict[str, Any]  # of the variables of a template
View = Callable[[RequestContext], Awaitable[Values]]


def _as_json(value: Any) -> str:
    """Encode a data block of a page such that it cannot contain the end of a script or a comment."""
    text = json.encode(to_builtins(value, str_keys=True)).decode()
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


# Filters: format numbers and times. The JavaScript of the pages has the same functions in format.js.


def number(value: float | None) -> str:
    """Format as 1 234 567, with thin spaces."""
    return "–" if value is None else f"{value:,.0f}".replace(",", "\u202f")


def size(value: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def time(ms: int | None) -> str:
    """Format in UTC."""
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S") if ms else "–"


def moment(us: int) -> str:
    """Format in UTC, to the millisecond."""
    return datetime.fromtimestamp(us / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] if us else "–"


def duration(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.1f} s"


FILTERS: Final[dict[str, Callable[..., Any]]] = {
    "number": number,
    "size": size,
    "time": time,
    "moment": moment,
    "duration": duration,
}

_TEMPLATES: Final = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_TEMPLATES.filters.update(FILTERS)


def render(template: str, context: RequestContext, status: int = 200, **values: Any) -> Response:
    """Return a page. `data` in the values is passed to its JavaScript."""
    data = values.get("data")
    html = _TEMPLATES.get_template(template).render(
        titles={path: title for path, title in TITLES.items() if _has_page(context.rights, path)},
        home=home(context.rights),
        path=context.request.url.path,
        identity=context.identity,
        has_own_page=not context.is_admin,
        **{**values, "data_json": None if data is None else _as_json(data)},
    )
    return Response(html, status, HEADERS, media_type="text/html; charset=utf-8")


def home(rights: Rights) -> str:
    """Return the first page to show."""
    return "/" if _has_page(rights, "/") else "/topics"


def _has_page(rights: Rights, path: str) -> bool:
    """Return whether a page has something to show."""
    if path == "/tables":
        return bool(rights.rules(Action.QUERY))
    if path in ADMINS:
        return rights.is_admin
    return path not in SEEN or rights.sees(SEEN[path])


def page_route(path: str) -> Route:
    """Describe the route of a page. `PageServer` checks the login, so that it can redirect to the login page."""
    return Route(method="GET", path=path, summary=TITLES.get(path, ""), access=Access.ANYBODY)


def check_own_page(context: RequestContext) -> None:
    """Raise ApiError unless a form was submitted from a page of the console."""
    if not is_own_page(context):
        raise ApiError(403, "submit this form from the console's own page")


async def read_form(context: RequestContext, bytes_max: int) -> dict[str, str]:
    """Return the fields of a submitted form."""
    raw = await read_bytes(context.request, bytes_max)
    try:
        fields = parse_qs(raw.decode(), keep_blank_values=True, max_num_fields=_FIELDS_MAX)
    except ValueError as error:
        raise ApiError(400, "body is not a valid form") from error
    return {name: values[0] for name, values in fields.items()}


class PageServer:
    """Serve pages that require a login."""

    def __init__(self, authenticator: Authenticator, limiter: RequestLimiter) -> None:
        self._authenticator = authenticator
        self._limiter = limiter

    def bind(self, route: Route, template: str, view: View) -> BoundRoute:
        """Return a page whose template gets the values that `view` returns."""
        access = Access.ADMIN if route.path in ADMINS else Access.IDENTITY
        see = SEEN.get(route.path, "")

        async def handle(context: RequestContext, _: None) -> Response:
            try:
                await self._authenticator.authorize(context, access, see)
                with self._limiter.open.slot():
                    values = await view(context)
            except ApiError as error:
                return _error_page(context, error)
            except AccessDeniedError as error:
                return _error_page(context, api_error(error))
            return render(template, context, **values)

        return route.bind(handle)


def _error_page(context: RequestContext, error: ApiError) -> Response:
    if error.status_code == 401:
        wanted = context.request.url.path
        if context.request.url.query:
            wanted += f"?{context.request.url.query}"
        to = "" if wanted == "/" else f"?to={quote(wanted, safe='/')}"
        return RedirectResponse(f"/login{to}", 303, HEADERS)
    heading = _ERROR_HEADINGS.get(error.status_code, "Error")
    return render("error.html", context, error.status_code, heading=heading, message=error.detail)
