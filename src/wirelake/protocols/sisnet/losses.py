"""What crossing into sisnet loses, changes or refuses."""

import math

from wirelake.message import Device, Failure, Kind, Message, Operation, Topic
from wirelake.protocols.frame import Sender
from wirelake.protocols.translation import Loss

_ADD = Operation("calc", "add")

LOSSES = (
    Loss(
        "a notification's source and headers",
        "are left out",
        Message(kind=Kind.NOTIFICATION, target=Topic("@news"), id="7", source="erp", headers={"a": 1}, payload=b"hi"),
        Message(kind=Kind.NOTIFICATION, name="json", protocol="sisnet", target=Topic("@news"), id="7", payload=b"hi"),
    ),
    Loss(
        "a notification's fields, without payload",
        "become JSON in the content",
        Message(kind=Kind.NOTIFICATION, target=Topic("@news"), id="7", fields={"a": 1}),
        Message(
            kind=Kind.NOTIFICATION, name="json", protocol="sisnet", target=Topic("@news"), id="7", payload=b'{"a":1}'
        ),
    ),
    Loss(
        "a notification's fields and payload together",
        "are refused",
        Message(kind=Kind.NOTIFICATION, target=Topic("@news"), fields={"a": 1}, payload=b"hi"),
        None,
    ),
    Loss(
        "an answer's fields and payload together",
        "the payload becomes base64 in a field of that name",
        Message(kind=Kind.RESPONSE, fields={"a": 1}, payload=b"hi"),
        Message(kind=Kind.RESPONSE, name="json", protocol="sisnet", fields={"a": 1, "payload": "aGk="}),
    ),
    Loss(
        "a list of notifications",
        "becomes an array of objects in one field",
        Message(kind=Kind.RESPONSE, parts=(Message(kind=Kind.NOTIFICATION, id="7", payload=b"hi"),)),
        Message(
            kind=Kind.RESPONSE,
            name="json",
            protocol="sisnet",
            fields={"msg": [{"topic": "", "id": "7", "type": 0, "ts": 0, "content": "hi"}]},
        ),
    ),
    Loss(
        "an error code other than -100",
        "becomes -1; the text stays",
        Message(kind=Kind.RESPONSE, failure=Failure("no such thing", 404)),
        Message(kind=Kind.RESPONSE, name="json", protocol="sisnet", failure=Failure("no such thing", -1)),
    ),
    Loss(
        "bytes among the fields",
        "become base64 text",
        Message(kind=Kind.REQUEST, target=_ADD, fields={"a": b"hi"}),
        Message(kind=Kind.REQUEST, name="json", protocol="sisnet", target=_ADD, fields={"a": "aGk="}),
    ),
    Loss(
        "a float that is infinite or not a number",
        "becomes null",
        Message(kind=Kind.RESPONSE, fields={"a": math.inf}),
        Message(kind=Kind.RESPONSE, name="json", protocol="sisnet", fields={"a": None}),
    ),
    Loss(
        "a request's field called payload that holds base64",
        "becomes the payload",
        Message(kind=Kind.REQUEST, target=_ADD, fields={"payload": "aGk="}),
        Message(kind=Kind.REQUEST, name="json", protocol="sisnet", target=_ADD, payload=b"hi"),
    ),
    Loss(
        "the host and group of an address",
        "are left out; service, operation and object cross",
        Message(kind=Kind.REQUEST, target=Operation("calc", "add", "x", host="h", group="g")),
        Message(kind=Kind.REQUEST, name="json", protocol="sisnet", target=Operation("calc", "add", "x")),
    ),
    Loss(
        "a header that is called like one of sisnet's own keys",
        "is left out",
        Message(kind=Kind.REQUEST, target=_ADD, headers={"ask": 1, "lang": "de"}),
        Message(kind=Kind.REQUEST, name="json", protocol="sisnet", target=_ADD, headers={"lang": "de"}),
    ),
    Loss(
        "an event for a service",
        "becomes a request under an empty name; its answer is ignored",
        Message(kind=Kind.EVENT, target=_ADD, fields={"a": 1}),
        Message(kind=Kind.REQUEST, name="json", protocol="sisnet", target=_ADD, fields={"a": 1}),
    ),
    Loss(
        "telemetry, and requests to devices",
        "are refused: sisnet asks services",
        Message(kind=Kind.TELEMETRY, target=Device("1234"), fields={"a": 1}),
        None,
    ),
    Loss(
        "a publication's source",
        "is left out: the gateway knows who is logged in",
        Message(kind=Kind.NOTIFICATION, target=Topic("@news"), source="erp", payload=b"hi"),
        Message(kind=Kind.NOTIFICATION, name="json", protocol="sisnet", target=Topic("@news"), payload=b"hi"),
        Sender.CLIENT,
    ),
)
