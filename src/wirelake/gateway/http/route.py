"""One row of the table of routes: what can be asked, by whom, with what, and what comes back.

The table serves both the application and the OpenAPI description, so neither knows of a route that the other does not.
"""

from collections.abc import Awaitable, Callable
from enum import Enum, auto
from typing import Any

from msgspec import Struct

from wirelake.gateway.http.exchange import Exchange

Handler = Callable[[Exchange, Any], Awaitable[Any]]  # the request under way, its body → the answer's body


class Access(Enum):
    ANYBODY = auto()
    SCRAPER = auto()  # the admin; anybody, where only this machine can connect
    IDENTITY = auto()  # whoever is known
    ADMIN = auto()


class Parameter(Struct, frozen=True):
    """Of the query, or of the path where it is named there."""

    name: str
    text: str
    type: str = "string"
    many: bool = False
    required: bool = False
    header: bool = False


class Route(Struct, frozen=True, kw_only=True):
    method: str
    path: str  # {names} in it may hold anything, also slashes
    summary: str
    handle: Handler
    access: Access = Access.IDENTITY
    takes: Any = None  # the type of the body; None: there is none
    gives: Any = None  # the type of the answer; None: it has no body
    status: int = 200
    media_type: str = "application/json"
    recorded: bool = False  # it changes something: it goes to the event log, and is answered once it is there
    secrets: tuple[str, ...] = ()  # fields of body and answer that the event log does not get
    parameters: tuple[Parameter, ...] = ()
    refusals: tuple[int, ...] = ()  # statuses of its own, beside those that every route may give
    example: Any = None  # of a body
    example_answer: Any = None

    @property
    def streams(self) -> bool:
        return self.media_type == "text/event-stream"
