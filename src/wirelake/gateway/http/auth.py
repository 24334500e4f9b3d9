"""Who asks. `Authorization: Bearer` brings one of:

    TOKEN         the admin token (data/keys/admin.token): may do everything, and acts under the name `admin`
    NAME:TOKEN    an identity's name and token; what a header cannot hold, and a colon, as %XX in the name
    TOKEN         an identity's token alone. Generated ones are looked up; one that a person chose is kept as a salted
                  hash, so it is tried against the newest of those (`HTTP_BARE_TOKENS_MAX`) when it is first seen:
                  with more of them, give the name

A browser that logged in at /login brings a cookie instead, from the console's own pages only.

An identity may publish, subscribe, ask services, send commands to devices, decode, list the devices, and see its own
topics and messages. Identities, devices (to add and remove), sessions, the ledger and the metrics are the admin's; the
metrics need no token where the listener is on loopback (by an address, localhost or a name in `http.hosts`), unless the
setting `http.metrics` says otherwise. Health, readiness and the description are anybody's.

With `auth.open = true` a request without a header acts as `anonymous` and `NAME:ANYTHING` as that name, with an
identity's rights: what is the admin's still takes the admin token. A page of another site, shown by a browser on this
machine, may not act as `anonymous`; nor may one whose own name was made to point here.
"""

import hmac
import ipaddress
from typing import TYPE_CHECKING, Final, NoReturn
from urllib.parse import unquote, urlsplit

from wirelake.address import Address
from wirelake.gateway.auth.logins import ANONYMOUS
from wirelake.gateway.http.cookie_sessions import COOKIE, CookieSession, CookieSessions, is_own_page
from wirelake.gateway.http.errors import AGAIN, ApiError
from wirelake.gateway.http.request_context import RequestContext
from wirelake.gateway.http.route import Access
from wirelake.gateway.transport.origins import host_name, is_address
from wirelake.limits import HTTP_LOGIN_S
from wirelake.message import Credentials

if TYPE_CHECKING:
    from wirelake.gateway.gateway import Gateway

ADMIN: Final = "admin"
_CHALLENGE: Final = {"www-authenticate": 'Bearer realm="wirelake"'}


class Authenticator:
    def __init__(self, gateway: "Gateway", address: Address) -> None:
        self._gateway = gateway
        self._admin_token = gateway.keys.admin_token().encode()
        self._is_local = is_loopback(address.host)
        self.visits = CookieSessions()

    async def admit(self, exchange: RequestContext, access: Access) -> None:
        """Recognise who asks; ApiError if that is not enough for this."""
        if access is Access.ANYBODY:
            return
        header = exchange.header("authorization")
        scraping = self._gateway.settings.http.metrics
        if access is Access.SCRAPER and scraping == "open":
            return
        if access is Access.SCRAPER and scraping == "loopback" and self._is_local:
            if self._is_own_host(exchange):
                return
            if not header:
                raise _foreign_host(exchange)
        if not self.recognise_now(exchange):
            if not header:
                raise ApiError(401, "missing Authorization: Bearer header", headers=_CHALLENGE)
            await self.recognise(exchange, _bearer(header))
        if not header and exchange.identity == ANONYMOUS:
            _check_origin(exchange)
            if not self._is_own_host(exchange):
                raise _foreign_host(exchange)
        exchange.connection.trust()
        if access in {Access.ADMIN, Access.SCRAPER} and not exchange.admin:
            raise ApiError(403, "admin only: use the token in keys/admin.token")

    def recognise_now(self, exchange: RequestContext) -> bool:
        """Say in the exchange who this is, where that takes no slow check; return whether it does."""
        header = exchange.header("authorization")
        if header:
            try:
                return self._is_known(exchange, _bearer(header))
            except ApiError:
                return False
        visit = self.visit(exchange)
        if visit is not None:
            exchange.identity, exchange.admin = visit.identity, visit.admin
        elif self._gateway.settings.auth.open:
            exchange.identity = ANONYMOUS
        return bool(exchange.identity)

    def _is_known(self, exchange: RequestContext, token: str) -> bool:
        if hmac.compare_digest(token.encode("utf-8", "surrogatepass"), self._admin_token):
            exchange.identity, exchange.admin = ADMIN, True
            return True
        name, colon, secret = token.partition(":")
        logins = self._gateway.logins
        known = logins.known(Credentials(unquote(name), secret)) if colon else logins.known_bare(token)
        exchange.identity = "" if known is None else known.identity
        return known is not None

    def visit(self, exchange: RequestContext) -> CookieSession | None:
        """Whose browser this is, if it logged in and one of our own pages asks."""
        key = exchange.request.cookies.get(COOKIE)
        if key is None or not is_own_page(exchange):
            return None
        return self.visits.find(key, self._gateway.now_s())

    async def recognise(self, exchange: RequestContext, token: str) -> None:
        """Say in the exchange who this is; ApiError for a token that nobody has."""
        if self._is_known(exchange, token):
            return
        name, colon, secret = token.partition(":")
        logins, user = self._gateway.logins, unquote(name) if colon else ""
        if colon:
            check = logins.check(Credentials(user, secret), exchange.host, HTTP_LOGIN_S)
        else:  # also with auth.open: a mistyped admin token must not turn into just anybody
            check = logins.check_bare(token, exchange.host, HTTP_LOGIN_S)
        verdict = await exchange.connection.while_open(check)
        if not verdict.identity:
            self._refuse(exchange, user, verdict.reason)
        exchange.identity = verdict.identity

    def _is_own_host(self, exchange: RequestContext) -> bool:
        """Return whether the request names this gateway by an address, as localhost, or by a name in the settings.

        A page of another site may have made any other name point here (DNS rebinding), and would read what is meant
        for this machine only.
        """
        host = exchange.header("host")
        name = host_name(host)
        return not host or is_address(name) or name in {each.lower() for each in self._gateway.settings.http.hosts}

    def _refuse(self, exchange: RequestContext, user: str, reason: str) -> NoReturn:
        gateway = self._gateway
        gateway.counters.logins["http", reason] += 1
        if gateway.admission.droppable_quota.admits(exchange.host, 0, gateway.now_s()):
            gateway.recorder.event(exchange, "refuse", {"reason": reason, "user": user})
        else:
            gateway.recorder.drop("http", "refuse", 0)
        if reason == "busy":
            raise ApiError(429, "too many logins at once; try again", headers=AGAIN)
        raise ApiError(401, "invalid token", headers=_CHALLENGE)


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _bearer(header: str) -> str:
    scheme, _, token = header.partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise ApiError(401, "invalid Authorization header: only Bearer is supported", headers=_CHALLENGE)
    # ASGI hands headers over as Latin-1; what people send is UTF-8.
    return token.strip().encode("latin-1").decode("utf-8", "surrogateescape")


def _foreign_host(exchange: RequestContext) -> ApiError:
    host = exchange.header("host")[:128]
    return ApiError(403, f"{host!r} is not a name of this gateway: use its address, a token, or set http.hosts")


def _check_origin(exchange: RequestContext) -> None:
    origin = exchange.header("origin")
    if origin and urlsplit(origin).netloc != exchange.header("host"):
        raise ApiError(403, f"pages from {origin[:128]} need a token")
