"""One row of the table of routes: what can be asked, by whom, with what, and what comes back.

The table serves both the application and the OpenAPI description, so neither knows of a route that the other does not.
"""

import re
from collections.abc import Awaitable, Callable
from enum import Enum, auto
from typing import Any, Final

from msgspec import Struct

from wirelake.gateway.http.errors import ApiError
from wirelake.gateway.http.request_context import RequestContext
from wirelake.limits import HTTP_LIST_ROWS_MAX

Handler = Callable[[RequestContext, Any], Awaitable[Any]]  # the request under way, its body → the answer's body


DescribeBody = Callable[[dict[str, Any]], dict[str, Any]]  # the schema of the type → what is really taken
_DIGITS_MAX: Final = 18


class Access(Enum):
    ANYBODY = auto()
    SCRAPER = auto()  # the admin; anybody too, where the setting http.metrics says so
    IDENTITY = auto()  # whoever is known
    ADMIN = auto()


class Parameter(Struct, frozen=True):
    """Of the query, or of the path where it is named there. Its schema and its check are made of the same bounds."""

    name: str
    text: str
    type: str = "string"  # or integer
    many: bool = False
    required: bool = False
    header: bool = False
    least: int = 1  # of an integer
    most: int | None = None
    pattern: str = ""  # that the whole text fits
    rule: str = ""  # the pattern, in words
    choices: tuple[str, ...] = ()
    items_max: int | None = None  # where there may be many

    def schema(self) -> dict[str, Any]:
        one: dict[str, Any] = {"type": self.type}
        if self.type == "integer":
            one |= {"minimum": self.least} | ({} if self.most is None else {"maximum": self.most})
        if self.pattern:
            one["pattern"] = f"^{self.pattern}$"
        if self.choices:
            one["enum"] = list(self.choices)
        if not self.many:
            return one
        limits = {} if self.items_max is None else {"maxItems": self.items_max}
        return {"type": "array", "items": one, "minItems": int(self.required), **limits}

    def check(self, given: list[str]) -> None:
        """ApiError if what a query or header gives for it breaks its bounds. The path is left to the handler."""
        if not self.many and len(given) > 1:
            raise ApiError(400, f"{self.name} is given {len(given)} times")
        if self.required and not given:
            raise ApiError(400, f"{self.name} is missing")
        if self.items_max is not None and len(given) > self.items_max:
            raise ApiError(400, f"{self.name} is given {len(given)} times, limit {self.items_max}")
        for text in given:
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
    method: str
    path: str  # {names} in it may hold anything, also slashes
    summary: str
    handle: Handler
    access: Access = Access.IDENTITY
    takes: Any = None  # the type of the body; None: there is none
    describe_body: DescribeBody | None = None  # for rules between fields, which a type cannot say
    gives: Any = None  # the type of the answer; None: it has no body
    status: int = 200
    media_type: str = "application/json"
    recorded: bool = False  # it changes something: it goes to the event log, and is answered once it is there
    secrets: tuple[str, ...] = ()  # fields of body and answer that the event log does not get
    parameters: tuple[Parameter, ...] = ()
    refusals: tuple[int, ...] = ()  # statuses of its own, beside those that every route may give
    any_refusal: bool = False  # it passes on the number of an error that somebody else chose
    example: Any = None  # of a body
    example_answer: Any = None

    @property
    def streams(self) -> bool:
        return self.media_type == "text/event-stream"
