"""Describe one request while it is handled: its sender, and what handlers read from it."""

from typing import Any, Final
from urllib.parse import unquote

from starlette.requests import Request

from wirelake.address import Address
from wirelake.broker.access import NO_RIGHTS
from wirelake.gateway.auth.admission import host_of
from wirelake.gateway.http.connection import HttpConnection
from wirelake.gateway.http.errors import ApiError
from wirelake.limits import HTTP_LIST_ROWS

_PROTOCOL: Final = "http"


class RequestContext:
    """Also the subject of the request's records in the event log: `id` is their session."""

    __slots__ = ("_request", "address", "audited", "id", "identity", "is_admin", "protocol", "rights", "token_id")

    def __init__(self, request: Request, request_id: str = "") -> None:
        self.protocol = _PROTOCOL
        self.id = request_id
        self.identity = ""  # until the sender is authenticated
        self.token_id = ""  # of the identity's token, if it needed one
        self.is_admin = False  # whether it sent the admin token
        self.rights = NO_RIGHTS
        self.audited: dict[str, Any] = {}  # details for the record of an action, from its handler
        self.address = str(Address(*request.client)) if request.client else ""
        self._request = request

    @property
    def request(self) -> Request:
        return self._request

    @property
    def operation(self) -> str:
        """Return method and path."""
        return f"{self._request.method} {self._request.url.path}"

    @property
    def connection(self) -> HttpConnection:
        """Return the connection on which the request arrived."""
        connection = self._request.state.connection
        if not isinstance(connection, HttpConnection):
            raise TypeError("requests arrive on connections of the HTTP listener")
        return connection

    @property
    def share(self) -> str:
        """Return whose share of the event loop's time this request uses."""
        return self.identity or "@" + self.host

    @property
    def host(self) -> str:
        return host_of(self.address)

    def path(self, name: str) -> str:
        """Return a part of the path, taken from the raw path so that an encoded slash is no separator."""
        try:
            text = unquote(self._request.path_params[name], errors="strict")
        except UnicodeDecodeError as error:
            raise ApiError(400, f"{name} in the path is not UTF-8") from error
        if not text:
            raise ApiError(404, f"{name} in the path is empty")
        return text

    def query(self, name: str, default: str = "") -> str:
        return self._request.query_params.get(name, default)

    def queries(self, name: str) -> list[str]:
        return self._request.query_params.getlist(name)

    def header(self, name: str) -> str:
        return self._request.headers.get(name, "")

    def number(self, name: str, default: int) -> int:
        """Return a number of the query, else of the header `x-NAME`. The route's parameters have checked it already."""
        text = self.query(name) or self.header(f"x-{name.replace('_', '-')}")
        return int(text) if text else default

    @property
    def rows_max(self) -> int:
        """Return how many rows of a list the sender wants."""
        return self.number("limit", HTTP_LIST_ROWS)

    def values(self, name: str, *, header: bool) -> list[str]:
        """Return all values of a parameter, unparsed."""
        return self._request.headers.getlist(name) if header else self.queries(name)
