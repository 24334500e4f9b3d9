"""Data lines: packed records for one key and table, with no JSON around them.

n a m e : c o m m a n d : k e y : s d b : data …
"""

import re

from wirelake.errors import EncodeError
from wirelake.protocols.sisnet.binary_form import refuse_relayed_binary
from wirelake.protocols.sisnet.names import RELAYED_NAME, SECTION, SisnetFrame
from wirelake.protocols.sisnet.opcodes import FORMS

_HEAD = re.compile(rb"([^{}():]*):([^{}():]*):([^{}():]*):")


class DataLine(SisnetFrame, frozen=True):
    """`data` is read by the layout that a `dict` gave for the table `sdb`, see `records`."""

    name = "data_line"
    command: str
    key: str
    sdb: str
    data: bytes

    def encode(self) -> bytes:
        message = super().encode()
        if "B" in (self.key[:1], self.sdb[:1]):
            refuse_relayed_binary(message)
        return message

    def _rest(self) -> bytes:
        head = b""
        for section in (self.command, self.key, self.sdb):
            written = section.encode() + b":"
            if SECTION.fullmatch(written) is None:
                raise EncodeError(f"a data line cannot name {section[:64]!r}: no {{ }} ( ) or : inside")
            head += written
        if head[0] in FORMS or RELAYED_NAME.match(head):
            raise EncodeError(f"a data line cannot begin like another form: {head[:64].decode(errors='replace')!r}")
        return head + self.data


def read_data_line(message_name: str, message: bytes, start: int) -> DataLine | None:
    """The line whose command begins at `start`. None or UnicodeDecodeError where it is bad: the tree says how."""
    head = _HEAD.match(message, start)
    if head is None:
        return None
    command, key, sdb = head.groups()
    return DataLine(message_name, command.decode(), key.decode(), sdb.decode(), message[head.end() :])


def behind_names(line: DataLine, names: str) -> DataLine:
    """Read a line anew that stands behind these names; where it does not, it stays as it is.

    Nobody else can tell it from a line whose command is the second name: only who asked knows the names.
    """
    head = names.encode() + b":"
    message = line.encode() if ":" in names else b""
    found = read_data_line(line.message_name, message, len(head)) if message.startswith(head) else None
    return line if found is None else found
