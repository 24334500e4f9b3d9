"""Log in to and out of the console. The token is entered once; after that a cookie identifies the user."""

from typing import Final

from starlette.responses import RedirectResponse, Response

from wirelake.console.page import HEADERS, check_own_page, home, read_form, render
from wirelake.gateway.http.auth import Authenticator
from wirelake.gateway.http.errors import ApiError
from wirelake.gateway.http.request_context import RequestContext
from wirelake.gateway.http.route import Access, BoundRoute, Route
from wirelake.limits import CONSOLE_FORM_BYTES_MAX


class LoginPages:
    def __init__(self, authenticator: Authenticator) -> None:
        self._authenticator = authenticator

    def routes(self) -> tuple[BoundRoute, ...]:
        return (SHOW.bind(self.show), LOG_IN.bind(self.log_in), LOG_OUT.bind(self.log_out))

    async def show(self, context: RequestContext, _: None) -> Response:
        return render("login.html", context, to=_target(context.query("to")), failed="")

    async def log_in(self, context: RequestContext, _: None) -> Response:
        check_own_page(context)
        form = await read_form(context, CONSOLE_FORM_BYTES_MAX)
        to, token = _target(form.get("to", "")), form.get("token", "").strip()
        try:
            if not token:
                raise ApiError(401, "token is required")
            await self._authenticator.authenticate(context, token)
        except ApiError as error:
            return render("login.html", context, error.status_code, to=to, failed=error.detail)
        self._authenticator.grant(context)
        response = RedirectResponse(home(context.rights) if to == "/" else to, 303, HEADERS)
        await self._authenticator.begin_session(context, response)
        return response

    async def log_out(self, context: RequestContext, _: None) -> Response:
        check_own_page(context)
        response = RedirectResponse("/login", 303, HEADERS)
        await self._authenticator.end_session(context, response)
        return response


def _target(to: str) -> str:
    """Return where to go after the login: a page of the console, never another site."""
    return to if to.startswith("/") and not to.startswith(("//", "/\\")) and to.isprintable() else "/"


SHOW: Final = Route(method="GET", path="/login", summary="Log in.", access=Access.ANYBODY)
LOG_IN: Final = Route(method="POST", path="/login", summary="Log in.", access=Access.ANYBODY)
LOG_OUT: Final = Route(method="POST", path="/logout", summary="Log out.", access=Access.ANYBODY)
ROUTES: Final = (SHOW, LOG_IN, LOG_OUT)
