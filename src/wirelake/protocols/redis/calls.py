"""Which requests and responses of RESP belong together."""

from base64 import b64encode
from typing import Any, Final

from wirelake.protocols.calls import CallRules

# These get one response for each name, out of the order of the other responses.
_SUBSCRIPTIONS: Final = ("subscribe", "unsubscribe", "psubscribe", "punsubscribe")
_AS_BASE64: Final = {b64encode(verb.encode()).decode(): verb for verb in _SUBSCRIPTIONS}
_UNSOLICITED: Final = "push"


def request_key(name: str, fields: dict[str, Any]) -> tuple[str, int]:
    """Return the correlation of a subscription, and the number of its responses."""
    return name, max(1, len(fields.get("topics", fields.get("patterns", ()))))


def response_key(name: str, fields: dict[str, Any]) -> str | None:
    """Return the correlation of a response to a subscription; of another push, one that no request has."""
    value = fields.get("value")
    verb = value[0] if isinstance(value, list) and value else None
    if isinstance(verb, str):
        verb = _AS_BASE64.get(verb, verb)
    if verb in _SUBSCRIPTIONS:
        return str(verb)
    return _UNSOLICITED if name == _UNSOLICITED else None


CALL_RULES: Final = CallRules(
    blank_names=("command", "inline"),
    events_are_responses=True,  # RESP 3 pushes the response to a subscription
    keyed_requests=_SUBSCRIPTIONS,
    request_key=request_key,
    keyed_responses=("array", _UNSOLICITED),
    response_key=response_key,
)
