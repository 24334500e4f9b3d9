"""Addresses as URLs: esnp://HOST/SERVICE/OP?o=OBJECT&g=GROUP&to=MS, with `_` for an absent part.

A name that would be ambiguous is percent-encoded: a service named `_` is `%5F`.
"""

from urllib.parse import parse_qsl, unquote

from msgspec import Struct

from wirelake.errors import InputError
from wirelake.message import Operation

SCHEME = "esnp://"
ABSENT = "_"


class AddressUrl(Struct, frozen=True):
    """A parsed URL."""

    operation: Operation
    timeout_ms: int | None = None  # how long the requester waits; not part of the address on the wire


def parse_url(url: str) -> AddressUrl:
    """Parse a URL. Raise InputError if it is invalid."""
    if not url.lower().startswith(SCHEME):
        raise InputError(f"an esnp address begins with {SCHEME}: {url}")
    path, _, query = url[len(SCHEME) :].partition("?")
    parts = path.rstrip("/").split("/")
    if len(parts) > 3:
        raise InputError(f"an esnp address has HOST/SERVICE/OP and no more parts: {url}")
    host, service, op = (*map(_read_part, parts), "", "")[:3]
    parameters = dict(parse_qsl(query, keep_blank_values=True))
    timeout = parameters.pop("to", None)
    if timeout is not None and not (timeout.isascii() and timeout.isdigit()):
        raise InputError(f"to= is a number of milliseconds, not '{timeout}'")
    operation = Operation(service, op, parameters.pop("o", ""), host, parameters.pop("g", ""))
    return AddressUrl(operation, None if timeout is None else int(timeout))


def not_found_text(operation: Operation) -> str:
    """Return the error for an address without a provider, as the authors' own server words it."""
    return f"{_listed(operation)} not found ServiceHandler"


def not_here_text(operation: Operation) -> str:
    """Return the error for an address of another node: this one does not forward requests."""
    return f"{_listed(operation)} not found: host {operation.host!r} is not this node"


def present(part: str) -> str:
    """Return a part of an address, or "" if it is marked as absent."""
    return "" if part == ABSENT else part


def _listed(operation: Operation) -> str:
    named = ((20, operation.op), (30, operation.service), (40, operation.host), (50, operation.group))
    return f"Address[{','.join(f'{kind}={text}' for kind, text in named if text)}]"


def _read_part(part: str) -> str:
    return "" if part == ABSENT else unquote(part)
