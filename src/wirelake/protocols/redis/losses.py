"""What crossing into RESP loses, changes or refuses."""

from wirelake.message import Failure, Kind, Message, Op, Operation, Topic, control
from wirelake.protocols.frame import Sender
from wirelake.protocols.translation import Loss

_HI = Message(kind=Kind.NOTIFICATION, name="message", protocol="redis", target=Topic("@news"), payload=b"hi")

LOSSES = (
    Loss(
        "a notification's id, type and time",
        "are left out: a subscriber gets the topic and the content",
        Message(kind=Kind.NOTIFICATION, target=Topic("@news"), id="7", type=3, at_ms=1234, payload=b"hi"),
        _HI,
    ),
    Loss(
        "headers and source",
        "are left out, but for the pattern that a subscription matched by",
        Message(kind=Kind.NOTIFICATION, target=Topic("@news"), source="erp", headers={"lang": "de"}, payload=b"hi"),
        _HI,
    ),
    Loss(
        "a notification's fields without payload",
        "become JSON in the content",
        Message(kind=Kind.NOTIFICATION, target=Topic("@news"), fields={"a": 1}),
        Message(kind=Kind.NOTIFICATION, name="message", protocol="redis", target=Topic("@news"), payload=b'{"a":1}'),
    ),
    Loss("a notification without a topic", "is refused", Message(kind=Kind.NOTIFICATION, payload=b"hi"), None),
    Loss(
        "an answer's fields",
        "become one map (in RESP 2 a flat array); texts inside it come back as bytes",
        Message(kind=Kind.RESPONSE, fields={"a": 1, "b": "x"}),
        Message(kind=Kind.RESPONSE, name="map", protocol="redis", fields={"value": {"a": 1, "b": b"x"}}),
    ),
    Loss(
        "an answer with neither fields nor payload",
        "is the status OK",
        Message(kind=Kind.RESPONSE),
        Message(kind=Kind.RESPONSE, name="simple_string", protocol="redis", fields={"value": "OK"}),
    ),
    Loss(
        "a whole number beyond 64 bits",
        "is a big number, and comes back as text",
        Message(kind=Kind.RESPONSE, fields={"value": 10**20}),
        Message(kind=Kind.RESPONSE, name="big_number", protocol="redis", fields={"value": "100000000000000000000"}),
    ),
    Loss(
        "fields and payload together",
        "are refused",
        Message(kind=Kind.RESPONSE, fields={"a": 1}, payload=b"hi"),
        None,
    ),
    Loss(
        "an answer in several parts",
        "is refused",
        Message(kind=Kind.RESPONSE, fields={"value": 1}, more=2),
        None,
    ),
    Loss(
        "an error's number",
        "is left out; a text without a code word in capitals gets ERR before it",
        Message(kind=Kind.RESPONSE, failure=Failure("no such thing", 404)),
        Message(kind=Kind.RESPONSE, name="simple_error", protocol="redis", failure=Failure("ERR no such thing")),
    ),
    Loss(
        "line breaks in an error",
        "become spaces",
        Message(kind=Kind.RESPONSE, failure=Failure("ERR one\ntwo")),
        Message(kind=Kind.RESPONSE, name="simple_error", protocol="redis", failure=Failure("ERR one two")),
    ),
    Loss(
        "telemetry and events",
        "are refused",
        Message(kind=Kind.TELEMETRY, fields={"a": 1}),
        None,
    ),
    Loss(
        "texts and numbers in a command",
        "become bytes, and a payload its last argument",
        Message(kind=Kind.REQUEST, target=Operation("redis", "set"), fields={"args": ["n", 5]}, payload=b"NX"),
        Message(
            kind=Kind.REQUEST,
            name="set",
            protocol="redis",
            target=Operation("redis", "set"),
            fields={"args": [b"n", b"5", b"NX"]},
        ),
        Sender.CLIENT,
    ),
    Loss(
        "requests to services other than redis",
        "are refused: RESP has no place for the service's name",
        Message(kind=Kind.REQUEST, target=Operation("math", "add"), fields={"a": 1}),
        None,
        Sender.CLIENT,
    ),
    Loss(
        "acknowledgements, backlogs and registrations",
        "are refused: the gateway acknowledges for the subscriber",
        control(Op.ACK, fields={"ids": ["7"]}),
        None,
        Sender.CLIENT,
    ),
)
