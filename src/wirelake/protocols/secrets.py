"""Keep tokens, passwords and session ids out of the tables.

Translation already separates the credentials of a login from its fields. This covers what translation cannot know:
frames that resemble a login, and logins inside a request to a service.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, Final

from wirelake.message import Kind, Message, Op, Operation
from wirelake.protocols import registry

BLANK: Final = "…"
_SECRET_FIELDS: Final = frozenset({"token", "password", "passwd", "secret", "sid"})
_LOGIN_FIELDS: Final = frozenset({"version", "compress", "format", "client_name"})  # what else a login may contain
_LOGIN_OPS: Final = frozenset({"login", "auth", "hello"})


def without_secrets(message: Message) -> tuple[dict[str, Any], bytes]:
    """Return the fields and the payload of a message without what nobody may see."""
    fields, payload, target = message.fields, message.payload, message.target
    op = target.op if isinstance(target, Operation) else ""
    if message.kind is Kind.RESPONSE:
        return fields, payload
    if op == Op.LOGIN and message.kind is Kind.CONTROL:
        return {name: value for name, value in fields.items() if name in _LOGIN_FIELDS}, b""
    if message.kind is Kind.CONTROL or op.lower() in _LOGIN_OPS:
        fields = {name: BLANK if name.lower() in _SECRET_FIELDS else value for name, value in fields.items()}
    if payload and isinstance(target, Operation):
        is_login = _login_checks().get(target.service)
        if is_login is not None and is_login(payload):
            payload = b""
    return fields, payload


@cache
def _login_checks() -> dict[str, Callable[[bytes], bool]]:
    """Return by service how to recognise a login in the payload of a request to it."""
    return {
        protocol.payload_service: protocol.is_login
        for protocol in registry.all_protocols()
        if protocol.payload_service and protocol.is_login is not None
    }
