"""How the requests and responses of a protocol pair up, for the table of calls."""

from collections.abc import Callable
from typing import Any

from msgspec import Struct


class CallRules(Struct, frozen=True):
    """Tell which messages of a session are requests, and which response belongs to which request.

    The defaults fit a protocol whose responses come in the order of its requests. Functions receive the name and the
    fields of a message, as the table of messages holds them.
    """

    has_calls: bool = True  # False: requests of this protocol are not paired on sessions
    has_correlation: bool = False  # False: responses come in order
    request_names: tuple[str, ...] = ()  # if given, only these frames are requests
    blank_names: tuple[str, ...] = ()  # frames of these names that address no service are no requests
    events_are_requests: bool = True  # whether an event that a client sends expects a response
    events_are_responses: bool = False  # whether an event that the server sends may be a response
    is_one_way: Callable[[bytes], bool] | None = None  # whether a frame that is no service request expects no response
    keyed_requests: tuple[str, ...] = ()  # names of requests that are not answered in order
    request_key: Callable[[str, dict[str, Any]], tuple[str, int]] | None = None  # their correlation, and responses
    keyed_responses: tuple[str, ...] = ()  # names of responses that may belong to such a request
    response_key: Callable[[str, dict[str, Any]], str | None] | None = None  # their correlation
