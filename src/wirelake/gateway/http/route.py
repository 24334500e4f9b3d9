"""Describe a route: its method and path, who may use it, what it takes, and what it returns.

The descriptions serve both the application and the OpenAPI document, so neither has a route that the other lacks.
"""

import re
from collections.abc import Awaitable, Callable
from enum import Enum, auto
from typing import Any, Final

from msgspec import Struct

from wirelake.gateway.http.errors import ApiError
from wirelake.gateway.http.request_context import RequestContext
from wirelake.limits import HTTP_LIST_ROWS_MAX

Handler = Callable[[RequestContext, Any], Awaitable[Any]]  # the request and its parsed body → the body of the response
DescribeBody = Callable[[dict[str, Any]], dict[str, Any]]  # the schema of the body's type → the schema of valid bodies
_DIGITS_MAX: Final = 18


class Access(Enum):
    ANYBODY = auto()
    SCRAPER = auto()  # an authenticated sender; anybody else as the setting http.metrics allows
    IDENTITY = auto()  # any authenticated sender
    ADMIN = auto()  # the admin token, or an identity with the role `admin`


class Parameter(Struct, frozen=True):
    """A parameter of the query, or of the path if it is named there. Its schema and its check use the same bounds."""

    name: str
    text: str
    type: str = "string"  # or integer
    is_list: bool = False
    is_required: bool = False
    is_header: bool = False
    least: int = 1  # of an integer
    most: int | None = None
    pattern: str = ""  # matches the whole text
    rule: str = ""  # the pattern in words
    choices: tuple[str, ...] = ()
    items_max: int | None = None  # of a list

    def schema(self) -> dict[str, Any]:
        one: dict[str, Any] = {"type": self.type}
        if self.type == "integer":
            one |= {"minimum": self.least} | ({} if self.most is None else {"maximum": self.most})
        if self.pattern:
            one["pattern"] = f"^{self.pattern}$"
        if self.choices:
            one["enum"] = list(self.choices)
        if not self.is_list:
            return one
        limits = {} if self.items_max is None else {"maxItems": self.items_max}
        return {"type": "array", "items": one, "minItems": int(self.is_required), **limits}

    def check(self, values: list[str]) -> None:
        """Check the values in a query or header; ApiError if they break the bounds. Handlers check the path."""
        if not self.is_list and len(values) > 1:
            raise ApiError(400, f"{self.name} is given {len(values)} times")
        if self.is_required and not values:
            raise ApiError(400, f"{self.name} is missing")
        if self.items_max is not None and len(values) > self.items_max:
            raise ApiError(400, f"{self.name} is given {len(values)} times, limit {self.items_max}")
        for text in values:
            self._check_one(text)

    def _check_one(self, text: str) -> None:
        if self.type == "integer":
            is_number = text.isascii() and text.isdecimal() and len(text) <= _DIGITS_MAX
            if not is_number or int(text) < self.least or (self.most is not None and int(text) > self.most):
                upper = "" if self.most is None else f" to {self.most}"
                raise ApiError(400, f"{self.name} must be an integer from {self.least}{upper}, not {text[:32]!r}")
        if self.choices and text not in self.choices:
            raise ApiError(400, f"{self.name} is {' or '.join(self.choices)}, not {text[:32]!r}")
        if self.pattern and re.fullmatch(self.pattern, text) is None:
            raise ApiError(400, f"{self.name} is {self.rule}, not {text[:64]!r}")


LIMIT: Final = Parameter("limit", "Maximum number of items.", "integer", most=HTTP_LIST_ROWS_MAX)  # rows of a list


class Route(Struct, frozen=True, kw_only=True):
    """Describe a route without its handler, which exists only while a gateway runs: see `bind`."""

    method: str
    path: str  # {names} in it match any text, slashes included
    operation_id: str = ""  # in the OpenAPI document: clients are generated from it, so it never changes
    summary: str
    access: Access = Access.IDENTITY
    see: str = ""  # what an authenticated sender must be allowed to see; handlers check what depends on the request
    takes: Any = None  # the type of the request's body; None: no body
    describe_body: DescribeBody | None = None  # for rules between fields, which a type cannot express
    gives: Any = None  # the type of the response's body; None: no body
    status: int = 200
    media_type: str = "application/json"
    is_recorded: bool = False  # it changes something: request and response go to the event log before the response
    audit: str = ""  # the action, if it is one of an administrator or a command to a device: it is recorded as such
    audit_target: str = ""  # the parameter of the path, or the field of the body, that names its target
    secrets: tuple[str, ...] = ()  # fields of both bodies that the event log does not get
    redact_request: Callable[[RequestContext, bytes], bytes] | None = None  # where the body alone does not tell
    parameters: tuple[Parameter, ...] = ()
    refusals: tuple[int, ...] = ()  # statuses of its own, besides those that every route may return
    has_other_refusals: bool = False  # it passes on the status that a service chose
    example: Any = None  # of the request's body
    example_answer: Any = None

    @property
    def is_stream(self) -> bool:
        return self.media_type == "text/event-stream"

    def bind(self, handle: Handler) -> "BoundRoute":
        """Return this route with its handler."""
        return BoundRoute(self, handle)


class BoundRoute(Struct, frozen=True):
    """A route that can be served."""

    route: Route
    handle: Handler
