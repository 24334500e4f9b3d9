"""Express errors in HTTP: a status and `{"error": {"code", "message"}}`. `code` is short and stable."""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct
from starlette.exceptions import HTTPException
from starlette.responses import Response

from wirelake.errors import (
    AccessDeniedError,
    BusyError,
    ConflictError,
    DamagedTableError,
    FullError,
    InputError,
    ProtocolError,
    StateError,
    StorageError,
    TranslationError,
    UnknownProtocolError,
    WirelakeError,
)
from wirelake.message import Failure
from wirelake.protocols.text import write_json

AGAIN: Final = {"retry-after": "1"}
CODES: Final = {
    400: "bad_request",
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    408: "request_timeout",
    409: "conflict",
    413: "too_large",
    429: "busy",
    431: "too_large",
    500: "internal",
    501: "cannot_be_asked",
    502: "service_failed",
    503: "unavailable",
    504: "timeout",
    507: "full",
}

_STATUSES: Final[tuple[tuple[type[WirelakeError], int, str], ...]] = (
    (AccessDeniedError, 403, ""),
    (UnknownProtocolError, 400, "unknown_protocol"),
    (ConflictError, 409, ""),
    (InputError, 400, ""),
    (TranslationError, 400, ""),
    (ProtocolError, 400, ""),
    (BusyError, 429, ""),
    (FullError, 507, ""),
    (DamagedTableError, 500, "damaged_table"),
    (StorageError, 503, "storage"),
    (StateError, 503, ""),  # the component is closed or closing
)


class ErrorDetail(Struct):
    code: str
    message: str


class ErrorBody(Struct):
    error: ErrorDetail


class ApiError(HTTPException):
    """Abort a request with this response."""

    def __init__(self, status: int, message: str, code: str = "", headers: Mapping[str, str] | None = None) -> None:
        super().__init__(status, message, headers)
        self.code = code or CODES.get(status, "error")

    def body(self) -> bytes:
        return write_json(ErrorBody(ErrorDetail(self.code, self.detail)))


def api_error(error: WirelakeError) -> ApiError:
    """Return the error as a response: its class says whose fault it is, which decides the status."""
    for kind, status, code in _STATUSES:
        if isinstance(error, kind):
            name = error.code if isinstance(error, ProtocolError) else code
            return ApiError(status, str(error), name, AGAIN if status in {429, 503} else None)
    return ApiError(500, "internal error: see the log of the gateway")


def service_error(failure: Failure) -> ApiError:
    """Return a service's own error as a response. Its code becomes the status if it is a valid one."""
    status = failure.code if 400 <= failure.code < 600 else 502
    return ApiError(status, failure.text, CODES.get(status, "service_failed"))


def error_response(error: HTTPException) -> Response:
    """Return the response for an error, also for one that Starlette raises, such as an unknown path."""
    known = error if isinstance(error, ApiError) else ApiError(error.status_code, error.detail, headers=error.headers)
    return Response(known.body(), known.status_code, known.headers, "application/json")
