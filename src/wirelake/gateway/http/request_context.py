"""One request under way: who asks, from where, and what the handlers need of it."""

from typing import TYPE_CHECKING
from urllib.parse import unquote

from starlette.requests import Request

from wirelake.address import Address
from wirelake.gateway.auth.admission import host_of
from wirelake.gateway.http.connection import HttpConnection
from wirelake.gateway.http.errors import ApiError
from wirelake.limits import HTTP_LIST_ROWS

if TYPE_CHECKING:
    from wirelake.gateway.gateway import Gateway
    from wirelake.gateway.http.api import HttpApi


class RequestContext:
    """Also whom its records in the event log are about: `id` is their session."""

    __slots__ = ("_request", "address", "admin", "api", "id", "identity", "protocol")

    def __init__(self, api: "HttpApi", request: Request) -> None:
        self.api = api
        self.protocol = "http"
        self.id = api.gateway.new_id()
        self.identity = ""  # until somebody was recognised
        self.admin = False
        self.address = str(Address(*request.client)) if request.client else ""
        self._request = request

    @property
    def gateway(self) -> "Gateway":
        return self.api.gateway

    @property
    def request(self) -> Request:
        return self._request

    @property
    def connection(self) -> HttpConnection:
        """The connection that it came by."""
        connection = self._request.state.connection
        if not isinstance(connection, HttpConnection):
            raise TypeError("requests arrive on connections of the HTTP listener")
        return connection

    @property
    def share(self) -> str:
        """Whose share of the event loop's time this request uses."""
        return self.identity or "@" + self.host

    @property
    def host(self) -> str:
        return host_of(self.address)

    def path(self, name: str) -> str:
        """A part of the path. Taken from the path as it came, so that an encoded slash is no separator."""
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
        """A number of the query, or else of the header `x-NAME`. The route's parameters have checked it already."""
        text = self.query(name) or self.header(f"x-{name.replace('_', '-')}")
        return int(text) if text else default

    @property
    def rows_max(self) -> int:
        """How many rows of a list are wanted."""
        return self.number("limit", HTTP_LIST_ROWS)

    def given(self, name: str, *, header: bool) -> list[str]:
        """All values of a parameter, as they came."""
        return self._request.headers.getlist(name) if header else self.queries(name)
