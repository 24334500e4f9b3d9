"""Call services and provide them: what the sisnet and esnp clients share.

A message's contents are one Python value:

fields              a dict
payload             bytes
both                the dict, with the bytes under "payload"
the one field msg   its value: a number, a string, a list …
neither             None
"""

import asyncio
import logging
import warnings
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Unpack

from msgspec import Struct
from msgspec.structs import replace

from wirelake.clients.client import DEFAULT_OPTIONS, ClientOptions, DeprecatedOptions, TopicClient, resolve_options
from wirelake.clients.notification import Inbox, Notification
from wirelake.errors import AnswerError, ClientError, EncodeError, InputError, StateError, TranslationError
from wirelake.limits import CLIENT_ANSWER_PACKETS_MAX, CLIENT_INBOX_OVERDRAFT, CLIENT_READ_BYTES, CLIENT_SERVED_MAX
from wirelake.message import Credentials, Failure, Kind, Message, Op, Operation, Topic, control
from wirelake.protocols.frame import Sender

_log = logging.getLogger(__name__)
SERVICE_FAILED: Final = 500
_SINGLE: Final = "msg"  # the field of a value that is no dict
_PAYLOAD: Final = "payload"
_TEMPORARY: Final = ("try again", "shutting down", "in time")  # in the reason of a login that may succeed later
_PUSHES_PER_READ_MAX: Final = CLIENT_READ_BYTES // 8  # no useful message is shorter


class ServiceRequest(Struct, frozen=True):
    """Describe a request to a service, from a client of any protocol."""

    service: str
    op: str
    value: Any = None  # fields as a dict, bytes, or one plain value
    object: str = ""


class ServiceError(AnswerError):
    """Raise it in a handler: the requester gets this text and code as the reason."""

    def __init__(self, text: str, code: int = SERVICE_FAILED) -> None:
        super().__init__(text, code)


class AnswerPackets(Struct, frozen=True):
    """Return it from a handler: a response in several packets, each with its own value."""

    values: Sequence[Any]


Handler = Callable[[ServiceRequest], Awaitable[Any]]


def value_of(message: Message) -> Any:
    fields, payload = message.fields, message.payload
    if payload:
        return {**fields, _PAYLOAD: payload} if fields else payload
    if fields.keys() == {_SINGLE}:
        return fields[_SINGLE]
    return fields or None


def contents_of(value: Any) -> dict[str, Any]:
    """Return `fields` and `payload` of a message that holds this value."""
    if value is None:
        return {}
    if isinstance(value, bytes | bytearray | memoryview):
        return {"payload": bytes(value)}
    if not isinstance(value, dict):
        return {"fields": {_SINGLE: value}}
    if isinstance(value.get(_PAYLOAD), bytes):
        fields = {name: item for name, item in value.items() if name != _PAYLOAD}
        return {"fields": fields, "payload": value[_PAYLOAD]}
    return {"fields": value}


def join_packets(values: list[Any]) -> Any:
    """Return the packets of one response as one value: lists, strings and bytes joined, anything else as a list."""
    if len(values) == 1:
        return values[0]
    if all(isinstance(value, list) for value in values):
        return [item for value in values for item in value]
    if all(isinstance(value, str) for value in values):
        return "".join(values)
    if all(isinstance(value, bytes) for value in values):
        return b"".join(values)
    return values


class ProvidedServices:
    """Handle requests to the services that a client provides.

    `send` may raise StateError if the connection is gone: then no requester waits for the response.
    """

    def __init__(self, send: Callable[[Message], None]) -> None:
        self._send = send
        self._handlers: dict[str, Handler] = {}
        self._groups: dict[str, str] = {}
        self._working: set[asyncio.Task[None]] = set()

    @property
    def names(self) -> list[tuple[str, str]]:
        """Return each service with its group, which may be empty."""
        return [(service, self._groups[service]) for service in self._handlers]

    def add(self, service: str, handler: Handler, group: str = "") -> None:
        if service in self._handlers:
            raise InputError(f"{service!r} is provided already")
        self._handlers[service] = handler
        self._groups[service] = group

    def remove(self, service: str) -> None:
        self._handlers.pop(service, None)
        self._groups.pop(service, None)

    def on_request(self, message: Message) -> None:
        """Handle a request in its own task, so that a slow one does not delay the others."""
        target = message.target
        handler = self._handlers.get(target.service) if isinstance(target, Operation) else None
        if not isinstance(target, Operation) or handler is None:
            self._respond(message, [_failure("not served here", 404)])
        elif len(self._working) >= CLIENT_SERVED_MAX:
            self._respond(message, [_failure(f"{CLIENT_SERVED_MAX} requests are being handled already", 429)])
        else:
            request = ServiceRequest(target.service, target.op, value_of(message), target.object)
            task = asyncio.create_task(self._handle(message, request, handler))
            self._working.add(task)
            task.add_done_callback(self._working.discard)

    async def close(self) -> None:
        for task in self._working:
            task.cancel()
        await asyncio.gather(*self._working, return_exceptions=True)

    async def _handle(self, message: Message, request: ServiceRequest, handler: Handler) -> None:
        try:
            result = await handler(request)
            values = result.values if isinstance(result, AnswerPackets) else [result]
            packets = [contents_of(value) for value in values] or [contents_of(None)]
        except AnswerError as refused:
            packets = [_failure(refused.text, refused.code)]
        except Exception:  # noqa: BLE001 the requester must get a response whatever the handler raises
            _log.exception("handler of service %s failed", request.service)
            packets = [_failure("the service failed", SERVICE_FAILED)]
        self._respond(message, packets)

    def _respond(self, message: Message, packets: list[dict[str, Any]]) -> None:
        if message.kind is not Kind.REQUEST:
            return  # an event has no response
        for index, contents in enumerate(packets):
            more = len(packets) - index - 1
            response = Message(kind=Kind.RESPONSE, correlation=message.correlation, more=more, **contents)
            try:
                self._send(response)
            except (TranslationError, EncodeError) as error:
                _log.error("cannot encode the response of a service: %s", error)
                failure = _failure(str(error), SERVICE_FAILED)
                self._send(Message(kind=Kind.RESPONSE, correlation=message.correlation, **failure))
                return
            except StateError as gone:
                _log.info("response dropped: %s", gone)
                return


class ServiceClient(TopicClient):
    """Call services, provide them, publish and subscribe.

    The gateway considers a notification delivered some time after it was written to the client, which therefore drops
    none: with a full inbox it stops reading, and with `CLIENT_INBOX_OVERDRAFT` times as many it does so even while a
    request waits for its response.
    """

    def __init__(
        self,
        host: str,
        port: int,
        user: str,
        token: str,
        *,
        options: ClientOptions = DEFAULT_OPTIONS,
        **deprecated: Unpack[DeprecatedOptions],
    ) -> None:
        options = resolve_options(options, deprecated)
        super().__init__(host, port, options=options)
        self._pushes_max = options.inbox_max * CLIENT_INBOX_OVERDRAFT + _PUSHES_PER_READ_MAX
        self._inbox: Inbox[Notification] = Inbox(self._pushes_max)
        self._credentials = Credentials(user, token)
        self._is_logging_in = False
        self._services = ProvidedServices(self._send)
        self._packets: dict[str, list[Message]] = {}

    # For users

    async def publish(self, topic: str, content: bytes | str, *, type: int = 0) -> str:  # noqa: A002 (its name)
        """Publish to a durable topic and return the id, once it is on disk; "" for a live topic."""
        return await self._publish(topic, content, type)

    async def register(self, service: str, handler: Handler, *, group: str = "") -> None:
        """Provide a service; with a group, also for requests that name it.

        The handler gets a `ServiceRequest` and returns a value, or several in `AnswerPackets`. ServiceError responds
        with its reason; any other exception is reported as a failure of the service.
        """
        self._services.add(service, handler, group)
        try:
            await self.request(_registration(service, group))
        except BaseException:
            self._services.remove(service)
            raise

    async def unregister(self, service: str) -> None:
        self._services.remove(service)
        await self.request(control(Op.UNREGISTER, fields={"service": service}))

    async def ping(self) -> None:
        """Wait until the gateway answers a ping."""
        await self.request(control(Op.PING))

    async def close(self) -> None:
        await super().close()
        await self._services.close()

    # For StreamClient

    def _login(self) -> Message:
        self._is_logging_in = True
        return control(Op.LOGIN, credentials=self._credentials)

    async def _restore(self) -> None:
        self._is_logging_in = False
        for service, group in self._services.names:
            await self._ask(_registration(service, group))
        await self._subscribe_again()

    def _final(self, failure: Failure) -> bool:
        return self._is_logging_in and not any(words in failure.text for words in _TEMPORARY)

    def _check(self, message: Message) -> None:
        self.protocol.from_message(message, Sender.CLIENT).encode()

    def _on_message(self, message: Message) -> None:
        if message.kind is Kind.RESPONSE and message.more:
            self._on_packet(message)
        elif message.kind is not Kind.NOTIFICATION or isinstance(message.target, Topic):
            super()._on_message(message)

    def _on_other_message(self, message: Message) -> None:
        if message.kind in {Kind.REQUEST, Kind.EVENT}:
            self._services.on_request(message)
        else:
            super()._on_other_message(message)

    @property
    def _pushes_waiting(self) -> int:
        """Return how many pushes wait to be taken."""
        return len(self._inbox)

    @property
    def _has_room(self) -> bool:
        return self._pushes_waiting < self._options.inbox_max * (CLIENT_INBOX_OVERDRAFT if self._answers else 1)

    # For a protocol's client

    async def _ask_packets(self, message: Message) -> list[Any]:
        """Send a request and return the value of each packet of the response."""
        message = replace(message, correlation=message.correlation or self._new_correlation())
        packets = self._packets[message.correlation] = []
        try:
            last = await self.request(message)
            return [value_of(packet) for packet in (*packets, last)]
        finally:
            del self._packets[message.correlation]

    def _on_packet(self, message: Message) -> None:
        packets = self._packets.get(message.correlation)
        answer = self._answers.get(message.correlation)
        if packets is None or answer is None or answer.done():
            return
        packets.append(message)
        if len(packets) >= CLIENT_ANSWER_PACKETS_MAX:
            answer.set_exception(ClientError(f"the response has more than {CLIENT_ANSWER_PACKETS_MAX} packets"))


def _registration(service: str, group: str) -> Message:
    return control(Op.REGISTER, fields={"service": service, "group": group} if group else {"service": service})


def _failure(text: str, code: int) -> dict[str, Any]:
    return {"failure": Failure(text, code)}


if not TYPE_CHECKING:  # a type checker would take any name for granted

    def __getattr__(name: str) -> Any:
        if name != "Packets":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        warnings.warn(
            "wirelake.clients.serving.Packets is now called AnswerPackets; the next release removes the old name",
            DeprecationWarning,
            stacklevel=2,
        )
        return AnswerPackets
