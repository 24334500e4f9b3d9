"""JSON messages.

n a m e : { … }     or     n a m e : [ … ]
"""

from collections.abc import Set as AbstractSet
from typing import Any

from wirelake.protocols.jsontext import read_json, write_json
from wirelake.protocols.sisnet.binary_form import refuse_relayed_binary
from wirelake.protocols.sisnet.names import RELAYED_NAME, SisnetFrame

REQUEST_KEYS: AbstractSet[str] = frozenset({"ask", "command", "cmd", "argv"})


class Json(SisnetFrame, frozen=True, eq=False):
    """`text` is kept as it stood on the wire; `values` is what it says. Two are equal if their texts are."""

    name = "json"
    relayed_names = RELAYED_NAME
    first_byte = b"{"
    text: bytes
    values: Any

    @classmethod
    def of(cls, message_name: str, values: Any) -> "Json":
        """The compact way to write these values, which JSON can hold as they are."""
        return cls(message_name, write_json(values), values)

    @classmethod
    def read(cls, message_name: str, text: bytes, offset: int) -> "Json":
        """Raises ProtocolError for text that is not JSON; `offset` is where it begins in the message."""
        return cls(message_name, text, read_json(text, offset))

    @property
    def is_request(self) -> bool:
        """A request names what to do or carries an `ask`; all else is an answer, as are arrays."""
        values = self.values
        return isinstance(values, dict) and "ans" not in values and not REQUEST_KEYS.isdisjoint(values)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Json):
            return NotImplemented
        return self.message_name == other.message_name and self.text == other.text

    def __ne__(self, other: object) -> bool:
        return not self == other  # the Struct's own would compare `values` too

    def __hash__(self) -> int:
        return hash((self.message_name, self.text))

    def encode(self) -> bytes:
        message = super().encode()
        if ":" in self.message_name:
            refuse_relayed_binary(message)
        return message

    def _rest(self) -> bytes:
        return self.text
