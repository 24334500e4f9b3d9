"""Blank the passwords of AUTH and HELLO, as arrays and as lines.

The user of a login stays if the command has as many arguments as it should; else any of them may be the password.
"""

import re
from collections.abc import Sequence
from typing import Final

from wirelake.errors import ProtocolError
from wirelake.protocols.frame import Sender
from wirelake.protocols.redaction import blank, blank_from
from wirelake.protocols.redis.frames import ClientFrame, Command, Inline
from wirelake.protocols.redis.reader import decode
from wirelake.protocols.redis.syntax import words

_ARRAY, _ERROR = b"*-"
_SERVER: Final = Sender.SERVER  # the lookup of an enum member costs more than the comparison
_AUTH: Final = b"auth"
_HELLO: Final = b"hello"
# `*N\r\n$L\r\n`, then L bytes of a name: neither AUTH nor HELLO has one of these lengths.
_OTHER_LENGTHS: Final = frozenset(b"1236789")
_DOLLAR, _CR = b"$\r"
_NAME_AT: Final = 8
_NAME_END: Final = _NAME_AT - ord("0")  # add the digit L
_SHORT_BYTES: Final = _NAME_AT + 10  # of a command with such a name and CR LF
_COMMAND: Final = re.compile(rb"\*\d+\r\n\$\d+\r\n([^\r\n]*)\r\n")
_SIGN: Final = re.compile(rb"auth|hello", re.IGNORECASE)
# Errors that quote arguments, which may be passwords.
_ECHO: Final = re.compile(
    rb"-ERR (?:Syntax error in HELLO option '"
    rb"|unknown command '.*?(?i:auth|hello).*?', with args beginning with: ')(.*)' ?\r\n",
    re.DOTALL,
)


def redact(frame: bytes, sender: Sender) -> bytes:
    """Return a command or value without passwords."""
    if sender is _SERVER:
        return frame if frame[:1] != b"-" else _redact_error(frame)
    if _has_other_length(frame):
        return frame
    head = _COMMAND.match(frame)
    if _is_other(frame if head is None else head[1]):
        return frame
    try:
        found = decode(frame, sender)
    except ProtocolError:
        return blank_from(frame, _SIGN)
    if not isinstance(found, ClientFrame) or _is_other(found.verb):
        return frame
    return _redact_line(found) if isinstance(found, Inline) else Command(_redact_args(found.args)).encode()


def redact_many(frames: Sequence[bytes], sender: Sender) -> Sequence[bytes]:
    """Redact whole frames. What the first and the last in the order of bytes begin with, all others begin with, too."""
    if sender is _SERVER:
        return [frame if frame[0] != _ERROR else _redact_error(frame) for frame in frames]
    if len(frames) > 1:
        first, last = min(frames), max(frames)
        if first[:_NAME_AT] == last[:_NAME_AT] and _has_other_length(first) and _has_other_length(last):
            return frames
    return [redact(frame, sender) for frame in frames]


def _has_other_length(frame: bytes) -> bool:
    """Return whether these bytes begin like a command whose name is longer or shorter than that of a login."""
    if len(frame) < _SHORT_BYTES or frame[0] != _ARRAY or frame[4] != _DOLLAR or frame[6] != _CR:
        return False
    digit = frame[5]
    return digit in _OTHER_LENGTHS and frame[_NAME_END + digit] == _CR


def _is_other(name: bytes) -> bool:
    """Return whether neither login is named in the name of a command, or in a line."""
    lower = name.lower()
    return _AUTH not in lower and _HELLO not in lower


def _secrets(args: tuple[bytes, ...]) -> set[int]:
    """Return which arguments of an AUTH or HELLO, or of what is nearly one, may be passwords."""
    name = args[0].lower()
    if name not in {_AUTH, _HELLO}:
        return set(range(1, len(args)))
    if name == _AUTH:
        return {2} if len(args) == 3 else set(range(1, len(args)))
    found: set[int] = set()
    place = 2  # HELLO version [AUTH user password] [SETNAME name]
    while place < len(args):
        option = args[place].lower()
        if option == _AUTH and place + 2 < len(args):
            found.add(place + 2)
            place += 3
        elif option == b"setname":
            place += 2
        else:
            return found | set(range(place if option != _AUTH else place + 1, len(args)))
    return found


def _redact_args(args: tuple[bytes, ...]) -> tuple[bytes, ...]:
    secrets = _secrets(args)
    return tuple(blank(arg) if index in secrets else arg for index, arg in enumerate(args))


def _redact_line(found: Inline) -> bytes:
    """Blank words of a line. Their quotes go too, because a blank needs none."""
    line, secrets = found.line, _secrets(found.args)
    parts: list[bytes] = []
    end = 0
    for index, (start, word_end, _value) in enumerate(words(line)):
        if index in secrets:
            parts += (line[end:start], blank(line[start:word_end]))
            end = word_end
    return b"".join(parts) + line[end:]


def _redact_error(frame: bytes) -> bytes:
    """Blank the arguments that an error quotes."""
    found = _ECHO.fullmatch(frame)
    if found is None:
        return frame
    return frame[: found.start(1)] + blank(found[1]) + frame[found.end(1) :]
