"""Small commands and values as regular expressions, which find the end of one in a single call.

A regular expression cannot count, but it can hold every short length with the run of bytes that belongs to it:

    $ (?: 0 \\r\\n | 1 (?: \\r\\n .{1} | 0 \\r\\n .{10} | 1 \\r\\n .{11} | … ) | 2 (?: … ) | … ) \\r\\n

Most of what is on the wire is that small. What these do not match is not wrong: it takes the longer way.
"""

import re
from typing import Final

_LENGTH_MAX: Final = 63
_ARGUMENTS_MAX: Final = 5
_ITEMS_MAX: Final = 3  # a message of a subscription has three
_TEXT_BYTES_MAX: Final = 120


def _contents(length: int) -> bytes:
    """What may follow the digits of `length`: more digits, or the line's end and so many bytes."""
    choices = [rb"\r\n.{%d}" % length]
    if length:
        choices += [b"%d%b" % (digit, _contents(10 * length + digit)) for digit in _digits(10 * length)]
    return b"(?:%b)" % b"|".join(choices)


def _digits(base: int) -> range:
    return range(max(0, min(10, _LENGTH_MAX + 1 - base)))


def _up_to(most: int, item: bytes) -> bytes:
    """A count, and so many items."""
    return b"(?:%b)" % b"|".join([rb"%d\r\n(?:%b){%d}" % (count, item, count) for count in range(1, most + 1)])


_BULK: Final = rb"\$(?:%b)\r\n" % b"|".join([b"%d%b" % (digit, _contents(digit)) for digit in _digits(0)])
_LINE: Final = rb"[+\-:,\#_(][^\r\n]{0,%d}+\r\n" % _TEXT_BYTES_MAX
_ITEM: Final = b"(?:%b|%b)" % (_BULK, _LINE)

SMALL_COMMAND: Final = re.compile(rb"\*%b" % _up_to(_ARGUMENTS_MAX, _BULK), re.DOTALL)
SMALL_VALUE: Final = re.compile(rb"%b|[*>]%b" % (_ITEM, _up_to(_ITEMS_MAX, _ITEM)), re.DOTALL)
SMALL_BYTES_MAX: Final = 4 + _ARGUMENTS_MAX * (1 + _TEXT_BYTES_MAX + 2)  # none of them is longer
