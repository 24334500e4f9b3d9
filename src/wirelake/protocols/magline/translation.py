"""Translate between magline frames and common messages.

Data is in clear text here: sessions decrypt and seal it. A frame that is still sealed can be translated too; its data
stays as it is, and its headers have `sealed`. The seq, which connects REP and ERR to their REQ, is the correlation of
the message; sessions set that of new frames.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from msgspec import ValidationError, convert, to_builtins
from msgspec.structs import replace

from wirelake.errors import ProtocolError, TranslationError
from wirelake.layout import AtLeast, Attribute, Equals, MessageRule, MessageRules, NonZero
from wirelake.message import (
    COMMAND,
    DEVICES_SERVICE,
    GATEWAY_SERVICE,
    Credentials,
    Failure,
    FailureCode,
    Kind,
    Op,
    Operation,
    Target,
    Topic,
    content_of,
    control,
    control_op,
)
from wirelake.message import Message as Common
from wirelake.protocols.frame import Frame, Sender
from wirelake.protocols.magline import content, frames
from wirelake.protocols.magline.constants import (
    ERROR_NAMES,
    REASON_NAMES,
    USERS_FIRST,
    Business,
    ErrorNumber,
    Reason,
)
from wirelake.protocols.text import read_json, write_json
from wirelake.protocols.translation import Loss

CALL: Final = "call"  # the only operation of a numbered service

_DEVICES: Final = Operation(DEVICES_SERVICE, COMMAND)
_SERVICE = re.compile(r"magline/([1-9][0-9]{1,9})")
_U32_MAX: Final = 0xFFFF_FFFF
_OPS: Mapping[int, Op] = {
    Business.LOGIN.value: Op.LOGIN,
    Business.SUBSCRIBE.value: Op.SUBSCRIBE,
    Business.UNSUBSCRIBE.value: Op.UNSUBSCRIBE,
    Business.PUBLISH.value: Op.PUBLISH,
    Business.ACK.value: Op.ACK,
}
_FAILURE_NUMBERS: Mapping[int, ErrorNumber] = {
    FailureCode.BAD_REQUEST: ErrorNumber.MALFORMED,
    FailureCode.ACCESS_DENIED: ErrorNumber.ACCESS_DENIED,
    FailureCode.NOT_FOUND: ErrorNumber.NO_SUCH_SERVICE,
    FailureCode.TOO_LARGE: ErrorNumber.TOO_LARGE,
    FailureCode.BUSY: ErrorNumber.BUSY,
    FailureCode.UNENCODABLE: ErrorNumber.FAILED,
    FailureCode.PROVIDER_LOST: ErrorNumber.FAILED,
    FailureCode.STORAGE: ErrorNumber.BUSY,
    FailureCode.TIMEOUT: ErrorNumber.TIMEOUT,
}
_COMMANDS: Mapping[Op, int] = {op: business for business, op in _OPS.items()}


def from_message(message: Common, sender: Sender) -> frames.MaglineFrame:
    """Return the frame with which `sender` sends this message, unsealed. Raise TranslationError if there is none."""
    if sender is Sender.CLIENT:
        return _client_frame(message)
    if message.kind is Kind.RESPONSE:
        return answer_frame(message, _business_of(message.target) or 0)
    if message.kind is Kind.NOTIFICATION:
        return frames.Psh(Business.NOTIFICATION.value, frames.OPENED, content.write_notification(message))
    raise TranslationError(f"a magline server has no frame for a {message.kind}: its clients take no requests")


def read_request(frame: frames.Req) -> Common:
    """Return the message of a decrypted REQ. Raise ProtocolError if its data does not fit its business_cmd."""
    business, data = frame.business_cmd, frame.data
    if business >= USERS_FIRST:
        return _message(frame, Kind.REQUEST, target=_target(business), payload=data)
    at = frames.HEAD_BYTES + len(frame.header) + frames.SEALED_HEAD_BYTES
    if business == Business.COMMAND.value:
        command = content.read(content.DEVICE_COMMAND, data, at)
        return _message(frame, Kind.REQUEST, target=_DEVICES, fields=to_builtins(command))
    match _OPS.get(business):
        case Op.LOGIN:
            login = content.read(content.LOGIN, data, at)
            return _control(frame, Op.LOGIN, credentials=Credentials(login.user, login.token))
        case Op.SUBSCRIBE | Op.UNSUBSCRIBE as op:
            return _control(frame, op, fields={"topics": content.read(content.TOPICS, data, at).topics})
        case Op.ACK:
            return _control(frame, Op.ACK, fields={"ids": content.read(content.IDS, data, at).ids})
        case Op.PUBLISH:
            published = content.read(content.PUBLISH, data, at)
            payload = content.read_content(published, at)
            return _message(frame, Kind.NOTIFICATION, target=Topic(published.topic), payload=payload)
    raise ProtocolError("unknown_business_cmd", f"business_cmd {business} is not one of the gateway's", at - 20)


def read_push(frame: frames.Psh) -> Common:
    """Return the notification in a decrypted PSH. Raise ProtocolError if it is none."""
    at = frames.HEAD_BYTES + len(frame.header) + frames.SEALED_HEAD_BYTES
    if frame.business_cmd != Business.NOTIFICATION.value:
        raise ProtocolError("unknown_business_cmd", f"a PSH of business_cmd {frame.business_cmd}", at - 20)
    notified = content.read(content.NOTIFICATION, frame.data, at)
    return Common(
        kind=Kind.NOTIFICATION,
        name=frame.name,
        protocol="magline",
        id=notified.id,
        target=Topic(notified.topic) if notified.topic else None,
        payload=content.read_content(notified, at),
        type=notified.type,
        at_ms=notified.ts,
    )


def answer_frame(message: Common, business: int) -> frames.Rep | frames.Err:
    """Return the answer to a REQ of this business_cmd."""
    if message.failure is not None:
        return frames.Err(business, error_number(message.failure))
    if message.parts or message.more:
        raise TranslationError("a magline answer is one frame and holds no list of messages")
    if 0 < business < USERS_FIRST:
        if message.payload:
            raise TranslationError("an answer of the gateway itself carries no payload")
        return frames.Rep(business, frames.OPENED, write_json({"ok": True, **message.fields}))
    return frames.Rep(business, frames.OPENED, content_of(message))


def error_number(failure: Failure) -> int:
    """Return magline's number for a failure of the gateway; of a service, its own code if it fits in 32 bits."""
    own = _FAILURE_NUMBERS.get(failure.code)
    if own is not None:
        return own.value
    return failure.code if 0 <= failure.code <= _U32_MAX else ErrorNumber.FAILED.value


def _client_frame(message: Common) -> frames.MaglineFrame:
    op = control_op(message)
    if op is Op.PING:
        return frames.Pin(int(message.fields.get("number", 0)))
    if op is Op.LOGOUT:
        return frames.Fin(Reason.NORMAL.value)
    business = _business_of(message.target)
    if message.kind is Kind.NOTIFICATION and isinstance(message.target, Topic):
        return _req(Business.PUBLISH.value, content.write_publish(message, message.target.name))
    if message.kind is Kind.REQUEST and business is not None and business >= USERS_FIRST:
        return _req(business, content_of(message))
    if message.kind is Kind.REQUEST and business == Business.COMMAND.value:
        return _req(business, _command(message))
    write = _REQUEST_DATA.get(op) if op is not None and message.kind is Kind.CONTROL else None
    if write is not None and business is not None:
        return _req(business, write(message))
    raise TranslationError(f"a magline client has no frame for {_describe(message)}")


def _req(business: int, data: bytes) -> frames.Req:
    return frames.Req(business, frames.OPENED, data)


def _credentials(message: Common) -> bytes:
    if message.credentials is None:
        raise TranslationError("a login without credentials")
    return write_json({"user": message.credentials.user, "token": message.credentials.token})


def _command(message: Common) -> bytes:
    """Return the JSON of a command. The serial may be the operation's object, and the data the payload."""
    serial = message.target.object if isinstance(message.target, Operation) else ""
    given = {"serial": serial, "data": message.payload.hex(), **message.fields}
    try:
        return write_json(convert(given, content.DeviceCommand))
    except ValidationError as error:
        raise TranslationError(f"a command for a device has serial, type, data and wait_ms: {error}") from error


def _list_writer(name: str) -> Callable[[Common], bytes]:
    def write(message: Common) -> bytes:
        given = message.fields.get(name)
        if not isinstance(given, list | tuple):
            raise TranslationError(f"{name} is not a list")
        return write_json({name: given})

    return write


_REQUEST_DATA: Mapping[Op, Callable[[Common], bytes]] = {
    Op.LOGIN: _credentials,
    Op.SUBSCRIBE: _list_writer("topics"),
    Op.UNSUBSCRIBE: _list_writer("topics"),
    Op.ACK: _list_writer("ids"),
}


def _describe(message: Common) -> str:
    target = message.target
    return f"a {message.kind} to {target.service} {target.op}" if isinstance(target, Operation) else f"a {message.kind}"


def _target(business: int) -> Operation | None:
    """Return the target of a business_cmd."""
    if business >= USERS_FIRST:
        return Operation(f"magline/{business}", CALL)
    if business == Business.COMMAND.value:
        return _DEVICES
    op = _OPS.get(business)
    return Operation(GATEWAY_SERVICE, op) if op is not None else None


def _business_of(target: Target | None) -> int | None:
    if not isinstance(target, Operation):
        return None
    if target.service == GATEWAY_SERVICE:
        return next((business for op, business in _COMMANDS.items() if op == target.op), None)
    if target.service == DEVICES_SERVICE and target.op == COMMAND:
        return Business.COMMAND.value
    numbered = _SERVICE.fullmatch(target.service)
    if numbered is None or target.op not in ("", CALL) or target.object:
        return None
    business = int(numbered[1])
    return business if USERS_FIRST <= business <= _U32_MAX else None


def _message(frame: frames.MaglineFrame, kind: Kind, **rest: Any) -> Common:
    correlation = str(frame.seq) if frame.seq else ""
    return Common(kind=kind, name=frame.name, protocol="magline", correlation=correlation, **rest)


def _control(frame: frames.MaglineFrame, op: Op, **rest: Any) -> Common:
    correlation = str(frame.seq) if frame.seq else ""
    return control(op, name=frame.name, protocol="magline", correlation=correlation, **rest)


def _from_syn(frame: frames.Syn, _sender: Sender) -> Common:
    """Return a message without the sid, which is for the gateway alone."""
    fields = {"resume": True, "proof": frame.proof is not None} if frame.sid else {}
    return _message(frame, Kind.CONTROL, fields=fields)


def _from_req(frame: frames.Req, _sender: Sender) -> Common:
    business = frame.business_cmd
    kind = Kind.REQUEST if business >= USERS_FIRST else Kind.CONTROL
    if frame.sealed:
        return _message(frame, kind, target=_target(business), headers={"sealed": True}, payload=frame.data)
    try:
        return read_request(frame)
    except ProtocolError as error:
        # The data of a malformed login may contain a token.
        payload = b"" if business == Business.LOGIN.value else frame.data
        failure = Failure(error.text, ErrorNumber.MALFORMED.value)
        return _message(frame, kind, target=_target(business), payload=payload, failure=failure)


def _from_rep(frame: frames.Rep, _sender: Sender) -> Common:
    target = _target(frame.business_cmd)
    if frame.sealed:
        return _message(frame, Kind.RESPONSE, target=target, headers={"sealed": True}, payload=frame.data)
    if 0 < frame.business_cmd < USERS_FIRST:
        try:
            fields = read_json(frame.data)
        except ProtocolError:
            fields = None
        if isinstance(fields, dict):
            fields.pop("ok", None)
            return _message(frame, Kind.RESPONSE, target=target, fields=fields)
    return _message(frame, Kind.RESPONSE, target=target, payload=frame.data)


def _from_psh(frame: frames.Psh, _sender: Sender) -> Common:
    about: dict[str, Any] = {"protocol": "magline", "name": frame.name, "payload": frame.data}
    if frame.sealed:
        return Common(kind=Kind.NOTIFICATION, headers={"sealed": True}, **about)
    try:
        return read_push(frame)
    except ProtocolError as error:
        return Common(kind=Kind.NOTIFICATION, failure=Failure(error.text, ErrorNumber.MALFORMED.value), **about)


def _from_err(frame: frames.Err, _sender: Sender) -> Common:
    number = frame.error_number
    failure = Failure(ERROR_NAMES.get(number, f"error {number}"), number)
    return _message(frame, Kind.RESPONSE, target=_target(frame.business_cmd), failure=failure)


def _from_fin(frame: frames.Fin, sender: Sender) -> Common:
    fields = {"reason": frame.reason, "says": REASON_NAMES.get(frame.reason, "not a known reason")}
    if sender is Sender.CLIENT:
        return control(Op.LOGOUT, name=frame.name, protocol="magline", fields=fields)
    return Common(kind=Kind.CONTROL, name=frame.name, protocol="magline", fields=fields)


_OTHERS: dict[type[Frame], Callable[[Any, Sender], Common]] = {
    frames.Syn: _from_syn,
    frames.Err: _from_err,
    frames.Req: _from_req,
    frames.Rep: _from_rep,
    frames.Psh: _from_psh,
    frames.Fin: _from_fin,
}
_SEQ: Final = NonZero("seq")
_NUMBER: Final = {"number": "ping_number"}
_SERVICE_CALL: Final = MessageRule(
    Kind.REQUEST,
    op=CALL,
    service=Attribute("business_cmd", before="magline/"),
    fields={},
    payload="data",
    correlation=_SEQ,
    when=(AtLeast("business_cmd", USERS_FIRST), Equals("hmac", frames.OPENED)),
)
RULES = MessageRules(
    "magline",
    {
        frames.Ack: MessageRule(Kind.RESPONSE, fields={}, correlation=_SEQ),
        frames.Pin: MessageRule(Kind.CONTROL, Op.PING, fields=_NUMBER, correlation=_SEQ),
        frames.Pon: MessageRule(Kind.RESPONSE, fields=_NUMBER, correlation=_SEQ),
        frames.Req: _SERVICE_CALL,
        frames.Rep: replace(_SERVICE_CALL, kind=Kind.RESPONSE),
    },
    others=lambda frame, sender: _OTHERS[type(frame)](frame, sender),
)
to_message = RULES.to_message


def _pushed(**rest: Any) -> Common:
    return Common(kind=Kind.NOTIFICATION, name="PSH", protocol="magline", target=Topic("@news"), id="7", **rest)


def _notification(**rest: Any) -> Common:
    return Common(kind=Kind.NOTIFICATION, target=Topic("@news"), id="7", **rest)


LOSSES = (
    Loss(
        "headers and source",
        "are left out",
        _notification(source="erp", headers={"lang": "de"}, payload=b"hi"),
        _pushed(payload=b"hi"),
    ),
    Loss(
        "fields without payload",
        "become JSON in the content",
        _notification(fields={"a": 1}),
        _pushed(payload=b'{"a":1}'),
    ),
    Loss("fields and payload together", "are refused", _notification(fields={"a": 1}, payload=b"hi"), None),
    Loss(
        "an answer's fields",
        "become JSON in the data",
        Common(kind=Kind.RESPONSE, target=Operation("magline/17", CALL), fields={"a": 1}),
        Common(
            kind=Kind.RESPONSE,
            name="REP",
            protocol="magline",
            target=Operation("magline/17", CALL),
            payload=b'{"a":1}',
        ),
    ),
    Loss(
        "a failure's text",
        "is left out: only the number is sent, and read by its name",
        Common(kind=Kind.RESPONSE, failure=Failure("nobody serves 17", 7)),
        Common(kind=Kind.RESPONSE, name="ERR", protocol="magline", failure=Failure("no such service", 7)),
    ),
    Loss(
        "a failure's number that is negative or has more than 32 bits",
        "becomes 0, failed",
        Common(kind=Kind.RESPONSE, failure=Failure("failed", -1)),
        Common(kind=Kind.RESPONSE, name="ERR", protocol="magline", failure=Failure("failed", 0)),
    ),
    Loss(
        "the number in the answer to a ping",
        "becomes JSON in the data of a REP: sessions send PON themselves",
        Common(kind=Kind.RESPONSE, name="PON", protocol="magline", fields={"number": 3}),
        Common(kind=Kind.RESPONSE, name="REP", protocol="magline", payload=b'{"number":3}'),
    ),
    Loss(
        "why a client leaves",
        "becomes 0, normal",
        control(Op.LOGOUT, name="FIN", protocol="magline", fields={"reason": 1, "says": "error"}),
        control(Op.LOGOUT, name="FIN", protocol="magline", fields={"reason": 0, "says": "normal"}),
        Sender.CLIENT,
    ),
    Loss(
        "an answer in several parts, a list of messages",
        "are refused: a REP is one frame",
        Common(kind=Kind.RESPONSE, payload=b"first", more=1),
        None,
    ),
    Loss(
        "requests to a client",
        "are refused: only magline clients send requests, so they cannot offer a service",
        Common(kind=Kind.REQUEST, target=Operation("magline/17", CALL), payload=b"hi"),
        None,
    ),
    Loss("events and telemetry", "are refused", Common(kind=Kind.TELEMETRY, fields={"t": 21}), None),
    Loss(
        "requests to services with a name, another operation or an object",
        "are refused: magline calls services by number",
        Common(kind=Kind.REQUEST, target=Operation("billing", "pay"), payload=b"hi"),
        None,
        Sender.CLIENT,
    ),
    Loss(
        "publishing: the id, type and time",
        "are left out: the gateway gives its own",
        Common(kind=Kind.NOTIFICATION, target=Topic("@news"), id="7", type=3, at_ms=1, payload=b"hi"),
        Common(kind=Kind.NOTIFICATION, name="REQ", protocol="magline", target=Topic("@news"), payload=b"hi"),
        Sender.CLIENT,
    ),
)
