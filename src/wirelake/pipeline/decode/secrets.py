"""What nobody may find in a table: tokens, passwords, and the ids by which a session can be taken up again.

Translation keeps a login's credentials apart already. This is for what it cannot know: logins that are not quite one.
"""

import re
from typing import Any, Final

from wirelake.errors import ProtocolError
from wirelake.message import Kind, Message, Op, Operation
from wirelake.protocols.frame import Sender
from wirelake.protocols.redis.frames import ClientFrame
from wirelake.protocols.redis.reader import decode as decode_resp

BLANK: Final = "…"
_SECRETS: Final = frozenset({"token", "password", "passwd", "secret", "sid"})
_OF_A_LOGIN: Final = frozenset({"version", "compress", "format", "client_name"})  # what else it may say
_LOGIN_WORDS: Final = frozenset({"login", "auth", "hello"})
_LOGIN_BYTES: Final = re.compile(rb"auth|hello", re.IGNORECASE)


def without_secrets(message: Message) -> tuple[dict[str, Any], bytes]:
    """The fields and the payload, fit to be seen."""
    fields, payload, target = message.fields, message.payload, message.target
    op = target.op if isinstance(target, Operation) else ""
    if message.kind is Kind.RESPONSE:
        return fields, payload
    if op == Op.LOGIN and message.kind is Kind.CONTROL:
        return {name: value for name, value in fields.items() if name in _OF_A_LOGIN}, b""
    if message.kind is Kind.CONTROL or op.lower() in _LOGIN_WORDS:
        fields = {name: BLANK if name.lower() in _SECRETS else value for name, value in fields.items()}
    if isinstance(target, Operation) and target.service == "redis" and payload and _is_login(payload):
        payload = b""
    return fields, payload


def _is_login(content: bytes) -> bool:
    """Of a redis command inside another protocol."""
    try:
        command = decode_resp(content, Sender.CLIENT)
    except ProtocolError:
        return _LOGIN_BYTES.search(content) is not None
    return isinstance(command, ClientFrame) and command.verb in {b"auth", b"hello"}
