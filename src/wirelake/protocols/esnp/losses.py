"""What crossing into esnp loses, changes or refuses."""

from wirelake.message import Credentials, Device, Failure, Kind, Op, Operation, Topic, control
from wirelake.message import Message as Common
from wirelake.protocols.frame import Sender
from wirelake.protocols.translation import Loss

_ADD = Operation("calc", "add")

LOSSES = (
    Loss(
        "an error's code",
        "is left out: esnp has only the text",
        Common(kind=Kind.RESPONSE, failure=Failure("no such thing", 404)),
        Common(kind=Kind.RESPONSE, name="response", protocol="esnp", failure=Failure("no such thing")),
    ),
    Loss(
        "a correlation that is not a number",
        "is left out; on a connection the session gives numbers of its own",
        Common(kind=Kind.REQUEST, target=_ADD, correlation="n1"),
        Common(kind=Kind.REQUEST, name="request", protocol="esnp", target=_ADD),
    ),
    Loss(
        "an info's correlation",
        "is left out: with a number it would be a request",
        Common(kind=Kind.EVENT, name="info", correlation="7", fields={"a": 1}),
        Common(kind=Kind.EVENT, name="info", protocol="esnp", fields={"a": 1}),
    ),
    Loss(
        "source; id, type and time of anything but a notification",
        "are left out",
        Common(kind=Kind.REQUEST, target=_ADD, source="erp", id="7", type=1, at_ms=5),
        Common(kind=Kind.REQUEST, name="request", protocol="esnp", target=_ADD),
    ),
    Loss(
        "an event's name",
        "becomes `event`, unless it is `info` or `trace`",
        Common(kind=Kind.EVENT, name="report_environ", fields={"isp": 2}),
        Common(kind=Kind.EVENT, name="event", protocol="esnp", fields={"isp": 2}),
    ),
    Loss(
        "the id of what a client publishes",
        "is left out: the gateway gives one",
        Common(kind=Kind.NOTIFICATION, target=Topic("@news"), id="7", payload=b"hi"),
        Common(kind=Kind.NOTIFICATION, name="publish", protocol="esnp", target=Topic("@news"), payload=b"hi"),
        Sender.CLIENT,
    ),
    Loss(
        "a notification without a topic",
        "is refused",
        Common(kind=Kind.NOTIFICATION, id="7", payload=b"hi"),
        None,
    ),
    Loss(
        "a notification with a field called id, type or ts",
        "is refused: esnp has these for the notification's own",
        Common(kind=Kind.NOTIFICATION, target=Topic("@news"), id="7", fields={"type": "x"}),
        None,
    ),
    Loss(
        "publishing with a field called topic, content, type or ts",
        "is refused: esnp has these for the notification's own",
        Common(kind=Kind.NOTIFICATION, target=Topic("@news"), fields={"content": 1}),
        None,
        Sender.CLIENT,
    ),
    Loss(
        "a list of notifications",
        "is refused: they go one by one",
        Common(kind=Kind.RESPONSE, parts=(Common(kind=Kind.NOTIFICATION, id="7"),)),
        None,
    ),
    Loss(
        "acks, topic lists, backlogs, logouts",
        "are refused: the gateway acks for the subscriber, and what waited comes with the subscription",
        control(Op.ACK, fields={"ids": ["7"]}),
        None,
        Sender.CLIENT,
    ),
    Loss(
        "requests to the gateway, from the gateway",
        "are refused",
        control(Op.LOGIN, credentials=Credentials("a", "b")),
        None,
    ),
    Loss(
        "telemetry",
        "is refused",
        Common(kind=Kind.TELEMETRY, fields={"watts": 12}),
        None,
    ),
    Loss(
        "requests to devices",
        "are refused: esnp asks services",
        Common(kind=Kind.REQUEST, target=Device("0042")),
        None,
    ),
    Loss(
        "an integer of more than 64 bits",
        "is refused",
        Common(kind=Kind.REQUEST, target=_ADD, fields={"a": 1 << 64}),
        None,
    ),
    Loss(
        "a value that is not null, a truth, a number, text, bytes, a list or a map with text for keys",
        "is refused",
        Common(kind=Kind.REQUEST, target=_ADD, fields={"a": {1: "one"}}),
        None,
    ),
)
