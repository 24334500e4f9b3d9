"""A message's contents as one Python value, and back.

fields              a dict
payload             bytes
both                the dict, with the bytes under "payload"
the one field msg   its value: a number, a text, a list …
neither             None
"""

from typing import Any, Final

from wirelake.message import Message

_ALONE: Final = "msg"
_PAYLOAD: Final = "payload"


def value_of(message: Message) -> Any:
    fields, payload = message.fields, message.payload
    if payload:
        return {**fields, _PAYLOAD: payload} if fields else payload
    if fields.keys() == {_ALONE}:
        return fields[_ALONE]
    return fields or None


def contents_of(value: Any) -> dict[str, Any]:
    """`fields` and `payload` of a message that holds this value."""
    if value is None:
        return {}
    if isinstance(value, bytes | bytearray | memoryview):
        return {"payload": bytes(value)}
    if not isinstance(value, dict):
        return {"fields": {_ALONE: value}}
    if isinstance(value.get(_PAYLOAD), bytes):
        fields = {name: item for name, item in value.items() if name != _PAYLOAD}
        return {"fields": fields, "payload": value[_PAYLOAD]}
    return {"fields": value}


def joined(values: list[Any]) -> Any:
    """The packets of one answer as one value: lists, texts and bytes put together, anything else as a list."""
    if len(values) == 1:
        return values[0]
    if all(isinstance(value, list) for value in values):
        return [item for value in values for item in value]
    if all(isinstance(value, str) for value in values):
        return "".join(values)
    if all(isinstance(value, bytes) for value in values):
        return b"".join(values)
    return values
