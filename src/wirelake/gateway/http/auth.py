"""Authenticate requests. `Authorization: Bearer` has one of:

    TOKEN         the admin token (data/keys/admin.token): may do everything, and acts under the name `admin`
    NAME:TOKEN    an identity's name and token; in the name, a colon and what a header cannot hold are %XX
    TOKEN         an identity's token alone. Generated tokens are looked up; a chosen one is stored as a salted hash, so
                  on first use it is tried against the newest of those (`HTTP_BARE_TOKENS_MAX`): if there are more,
                  give the name

A browser that logged in at /login sends a cookie instead, which counts only if the request comes from the console's own
pages. A page on another port of this machine is the same site to a browser, so the cookie alone does not prove that:
the browser must also say where the request comes from (`is_own_page`).

What an identity may do, its roles say (roles.py); besides, it sees its own sessions, topics and messages, and decodes.
To change identities, roles and devices, and to disconnect the sessions of others, takes the admin token or the role
`admin`. The metrics need no token if the listener is on loopback (by an address, localhost or a name in `http.hosts`),
unless the setting `http.metrics` says otherwise. Health, readiness and the API's description are public.

With `auth.open = true` a request without a header acts as `anonymous` and `NAME:ANYTHING` as that name, with an
identity's rights: admin routes still require the admin token. A page of another site, shown by a browser on this
machine, may not act as `anonymous`; neither may a page whose host name was made to resolve to this machine.
"""

import hmac
import ipaddress
import secrets
from collections.abc import Callable
from typing import Final, NoReturn
from urllib.parse import unquote, urlsplit

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from wirelake.broker.access import AccessPolicy
from wirelake.config import Settings
from wirelake.errors import AccessDeniedError
from wirelake.gateway.auth.audit import ADMINISTER, AuditLog
from wirelake.gateway.auth.client_certificates import certificate_name, certified_names
from wirelake.gateway.auth.logins import ANONYMOUS, Logins, Names
from wirelake.gateway.http.errors import AGAIN, ApiError
from wirelake.gateway.http.request_context import RequestContext
from wirelake.gateway.http.route import Access
from wirelake.gateway.transport.origins import host_name, is_address
from wirelake.limits import HTTP_LOGIN_S, HTTP_VISIT_S, HTTP_VISITS_MAX
from wirelake.message import Credentials
from wirelake.roles import Action

ADMIN: Final = "admin"
COOKIE: Final = "wirelake"
_COOKIE_BYTES: Final = 32
_CHALLENGE: Final = {"www-authenticate": 'Bearer realm="wirelake"'}


class CookieSession(Struct, frozen=True):
    """A browser that logged in."""

    identity: str
    token_id: str  # of the identity's token: the session ends when it expires or is revoked
    is_admin: bool
    expires_s: float


class CookieSessions:
    """Sessions by the value of their cookie. They end with the gateway, or after a working day."""

    def __init__(self, now_s: Callable[[], float], *, is_secure: bool) -> None:
        """`is_secure`: browsers send the cookie over TLS only."""
        self._now_s = now_s
        self._is_secure = is_secure
        self._by_key: dict[str, CookieSession] = {}  # oldest first

    def begin(self, context: RequestContext, response: Response) -> None:
        """Begin a session of the request's identity, and set its cookie. At the limit, the oldest session ends."""
        if len(self._by_key) >= HTTP_VISITS_MAX:
            del self._by_key[next(iter(self._by_key))]
        key = secrets.token_urlsafe(_COOKIE_BYTES)
        expires_s = self._now_s() + HTTP_VISIT_S
        self._by_key[key] = CookieSession(context.identity, context.token_id, context.is_admin, expires_s)
        response.set_cookie(COOKIE, key, int(HTTP_VISIT_S), httponly=True, samesite="strict", secure=self._is_secure)

    def find(self, context: RequestContext) -> CookieSession | None:
        """Return the session of a request from one of the gateway's own pages."""
        key = context.request.cookies.get(COOKIE)
        if key is None or not is_own_page(context):
            return None
        session = self._by_key.get(key)
        if session is not None and session.expires_s <= self._now_s():
            del self._by_key[key]
            return None
        return session

    def end(self, context: RequestContext, response: Response) -> None:
        """End the session of a request, and delete its cookie."""
        self._by_key.pop(context.request.cookies.get(COOKIE, ""), None)
        response.delete_cookie(COOKIE)

    def end_all_of(self, identity: str) -> None:
        self._by_key = {
            key: session for key, session in self._by_key.items() if session.identity != identity or session.is_admin
        }


class Authenticator:
    """Set the identity of a request's context, and check it against what the route requires."""

    def __init__(
        self,
        settings: Callable[[], Settings],
        logins: Logins,
        admin_token: str,
        cookie_sessions: CookieSessions,
        audit: AuditLog,
        access: AccessPolicy,
        *,
        is_local: bool,
    ) -> None:
        """`is_local`: the listener is on loopback."""
        self._settings = settings
        self._logins = logins
        self._admin_token = admin_token.encode()
        self._audit = audit
        self._access = access
        self._is_local = is_local
        self.cookie_sessions = cookie_sessions

    async def authorize(self, context: RequestContext, access: Access, see: str = "") -> None:
        """Authenticate the sender. ApiError or AccessDeniedError if it may not use a route with this access, or not see
        what the route shows.
        """
        if access is Access.ANYBODY:
            return
        header = context.header("authorization")
        scraping = self._settings().http.metrics
        if access is Access.SCRAPER and scraping == "open":
            return
        if access is Access.SCRAPER and scraping == "loopback" and self._is_local:
            if self._is_own_host(context):
                return
            if not header:
                raise _foreign_host(context)
        if not self.authenticate_now(context):
            if not header:
                raise ApiError(401, "missing Authorization: Bearer header", headers=_CHALLENGE)
            await self.authenticate(context, _bearer(header))
        if not header and context.identity == ANONYMOUS:
            _check_origin(context)
            if not self._is_own_host(context):
                raise _foreign_host(context)
        context.connection.on_authenticated()
        self.grant(context)
        if access is Access.ADMIN and not context.rights.is_admin:
            self._audit.denied(context, AccessDeniedError(context.identity, ADMINISTER, context.operation))
            raise admin_only()
        if see:
            self._access.authorize(context, Action.SEE, see)

    async def begin_session(self, context: RequestContext, response: Response) -> None:
        """Begin a session of a browser whose token was valid: record the login, and set its cookie."""
        name = certificate_name(context.connection.certificate)
        await self._audit.settle(
            lambda: self._audit.login(context, certificate=name, token_id=context.token_id), context
        )
        self.cookie_sessions.begin(context, response)

    async def end_session(self, context: RequestContext, response: Response) -> None:
        """End the session of a browser, if it has one, and delete its cookie."""
        session = self.cookie_sessions.find(context)
        if session is not None:
            context.identity = session.identity
            await self._audit.settle(lambda: self._audit.logout(context), context)
        self.cookie_sessions.end(context, response)

    def grant(self, context: RequestContext) -> None:
        """Set what the sender of a request may do."""
        context.rights = self._access.rights_of(context)

    def is_known(self, request: Request) -> bool:
        """Return whether the sender of a request can be authenticated without a slow check."""
        return self.authenticate_now(RequestContext(request))

    def authenticate_now(self, context: RequestContext) -> bool:
        """Set the identity if that needs no slow check; return whether it is set."""
        header = context.header("authorization")
        if header:
            try:
                return self._find_token(context, _bearer(header))
            except ApiError:
                return False
        session = self.cookie_sessions.find(context)
        if session is not None:
            names = None if session.is_admin else self._names(context)
            if names is not None and session.identity not in names:
                return False
            if not self._logins.is_token_valid(session.identity, session.token_id):
                return False
            context.identity, context.is_admin = session.identity, session.is_admin
            context.token_id = session.token_id
        elif self._settings().auth.open:
            context.identity = ANONYMOUS
        return bool(context.identity)

    async def authenticate(self, context: RequestContext, token: str) -> None:
        """Set the identity by a token; ApiError if the token is invalid."""
        if self._find_token(context, token):
            return
        name, colon, secret = token.partition(":")
        user = unquote(name) if colon else ""
        if colon:
            check = self._logins.check(Credentials(user, secret), context.host, HTTP_LOGIN_S, self._names(context))
        else:  # also with auth.open: a mistyped admin token must not become an anonymous identity
            check = self._logins.check_bare(token, context.host, HTTP_LOGIN_S, self._names(context))
        verdict = await context.connection.run_while_open(check)
        if not verdict.identity:
            self._refuse(context, user, verdict.reason)
        context.identity, context.token_id = verdict.identity, verdict.token

    def _find_token(self, context: RequestContext, token: str) -> bool:
        """Set the identity if the token is the admin's or was verified before."""
        if hmac.compare_digest(token.encode("utf-8", "surrogatepass"), self._admin_token):
            context.identity, context.is_admin = ADMIN, True
            return True
        name, colon, secret = token.partition(":")
        names = self._names(context)
        if colon:
            known = self._logins.known(Credentials(unquote(name), secret), names)
        else:
            known = self._logins.known_bare(token, names)
        context.identity, context.token_id = ("", "") if known is None else (known.identity, known.token)
        return bool(context.identity)

    def _names(self, context: RequestContext) -> Names:
        """Return the names that the certificate of the sender allows."""
        return certified_names(self._settings().tls, context.connection.certificate)

    def _is_own_host(self, context: RequestContext) -> bool:
        """Return whether the request names this gateway by an address, as localhost, or by a name in the settings.

        Another site may have made any other name resolve to this machine (DNS rebinding), and its pages would read
        what is meant for this machine only.
        """
        host = context.header("host")
        name = host_name(host)
        return not host or is_address(name) or name in {each.lower() for each in self._settings().http.hosts}

    def _refuse(self, context: RequestContext, user: str, reason: str) -> NoReturn:
        self._audit.request_refused(context, reason, user)
        if reason == "busy":
            raise ApiError(429, "too many logins at once; try again", headers=AGAIN)
        raise ApiError(401, "invalid token", headers=_CHALLENGE)


def admin_only() -> ApiError:
    return ApiError(403, "admin only: use the token in keys/admin.token, or an identity with the role admin")


def is_own_page(context: RequestContext) -> bool:
    """Return whether the browser says that the request comes from a page of this gateway, or from its user."""
    site = context.header("sec-fetch-site")
    if site:
        return site in {"same-origin", "none"}
    origin = context.header("origin")
    if not origin:
        return context.request.method in {"GET", "HEAD"}
    return origin.partition("://")[2] == context.header("host")


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _bearer(header: str) -> str:
    scheme, _, token = header.partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise ApiError(401, "invalid Authorization header: only Bearer is supported", headers=_CHALLENGE)
    # ASGI decodes headers as Latin-1, but clients send UTF-8.
    return token.strip().encode("latin-1").decode("utf-8", "surrogateescape")


def _foreign_host(context: RequestContext) -> ApiError:
    host = context.header("host")[:128]
    return ApiError(403, f"{host!r} is not a name of this gateway: use its address, a token, or set http.hosts")


def _check_origin(context: RequestContext) -> None:
    origin = context.header("origin")
    if origin and urlsplit(origin).netloc != context.header("host"):
        raise ApiError(403, f"pages from {origin[:128]} need a token")
