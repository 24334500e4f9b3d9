"""Log in to and out of the console. The token is entered once; after that a cookie identifies the user."""

from typing import Final
from urllib.parse import parse_qs

from starlette.responses import RedirectResponse, Response

from wirelake.console.page import HEADERS, rendered
from wirelake.gateway.http.cookie_sessions import COOKIE, is_own_page
from wirelake.gateway.http.errors import ApiError
from wirelake.gateway.http.request_context import RequestContext
from wirelake.gateway.http.route import Access, Route
from wirelake.limits import CONSOLE_FORM_BYTES_MAX, HTTP_VISIT_S

_FIELDS_MAX: Final = 8


async def show(exchange: RequestContext, _: None) -> Response:
    return rendered("login.html", exchange, to=_place(exchange.query("to")), failed="")


async def enter(exchange: RequestContext, _: None) -> Response:
    if not is_own_page(exchange):
        raise ApiError(403, "submit this form from the console's own page")
    form = await _form(exchange)
    to, token = _place(form.get("to", "")), form.get("token", "").strip()
    authenticator, gateway = exchange.api.authenticator, exchange.gateway
    try:
        if not token:
            raise ApiError(401, "token is required")
        await authenticator.recognise(exchange, token)
    except ApiError as error:
        return rendered("login.html", exchange, error.status_code, to=to, failed=error.detail)
    key = authenticator.visits.begin(exchange.identity, exchange.admin, gateway.now_s())
    answer = RedirectResponse(to if exchange.admin or to != "/" else "/topics", 303, HEADERS)
    secure = gateway.tls is not None
    answer.set_cookie(COOKIE, key, int(HTTP_VISIT_S), httponly=True, samesite="strict", secure=secure)
    return answer


async def leave(exchange: RequestContext, _: None) -> Response:
    if not is_own_page(exchange):
        raise ApiError(403, "submit this form from the console's own page")
    exchange.api.authenticator.visits.end(exchange.request.cookies.get(COOKIE, ""))
    answer = RedirectResponse("/login", 303, HEADERS)
    answer.delete_cookie(COOKIE)
    return answer


def _place(to: str) -> str:
    """Return where to go after the login: a page of the console, never another site."""
    return to if to.startswith("/") and not to.startswith(("//", "/\\")) and to.isprintable() else "/"


async def _form(exchange: RequestContext) -> dict[str, str]:
    raw = await exchange.api.read(exchange.request, CONSOLE_FORM_BYTES_MAX)
    try:
        fields = parse_qs(raw.decode(), keep_blank_values=True, max_num_fields=_FIELDS_MAX)
    except ValueError as error:
        raise ApiError(400, "body is not a valid form") from error
    return {name: values[0] for name, values in fields.items()}


ROUTES = (
    Route(method="GET", path="/login", summary="Log in.", handle=show, access=Access.ANYBODY),
    Route(method="POST", path="/login", summary="Log in.", handle=enter, access=Access.ANYBODY),
    Route(method="POST", path="/logout", summary="Log out.", handle=leave, access=Access.ANYBODY),
)
