"""Browsers that logged in: a cookie stands for who it was. They end with the gateway, or after a working day.

The cookie is for the gateway's own pages. A page of another port on this machine is the same site to a browser, so the
cookie alone is not enough: the browser must also say that the request comes from a page of ours (`is_own_page`).
"""

import secrets
from typing import Final

from msgspec import Struct

from wirelake.gateway.http.request_context import RequestContext
from wirelake.limits import HTTP_VISIT_S, HTTP_VISITS_MAX

COOKIE: Final = "wirelake"
_KEY_BYTES: Final = 32


class CookieSession(Struct, frozen=True):
    identity: str
    admin: bool
    until_s: float


class CookieSessions:
    def __init__(self) -> None:
        self._by_key: dict[str, CookieSession] = {}  # the oldest first

    def begin(self, identity: str, admin: bool, now_s: float) -> str:
        """The cookie's value. With too many, the oldest has to log in again."""
        if len(self._by_key) >= HTTP_VISITS_MAX:
            del self._by_key[next(iter(self._by_key))]
        key = secrets.token_urlsafe(_KEY_BYTES)
        self._by_key[key] = CookieSession(identity, admin, now_s + HTTP_VISIT_S)
        return key

    def find(self, key: str, now_s: float) -> CookieSession | None:
        visit = self._by_key.get(key)
        if visit is not None and visit.until_s <= now_s:
            del self._by_key[key]
            return None
        return visit

    def end(self, key: str) -> None:
        self._by_key.pop(key, None)

    def end_all_of(self, identity: str) -> None:
        self._by_key = {key: visit for key, visit in self._by_key.items() if visit.identity != identity or visit.admin}


def is_own_page(exchange: RequestContext) -> bool:
    """Whether the browser says that a page of this gateway, or a person, asks."""
    site = exchange.header("sec-fetch-site")
    if site:
        return site in {"same-origin", "none"}
    origin = exchange.header("origin")
    return (
        origin.partition("://")[2] == exchange.header("host") if origin else exchange.request.method in {"GET", "HEAD"}
    )
