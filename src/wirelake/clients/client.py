"""Share what all clients have in common: options, and for those on TCP the login, requests and reconnecting.

A protocol's own client names its `protocol`, makes its session, and defines how to log in and what to restore.
"""

import asyncio
import logging
import os
import ssl
import time
import warnings
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from copy import copy
from types import TracebackType
from typing import ClassVar, Final, Self, TypedDict, Unpack

from msgspec import Struct, field
from msgspec.structs import replace

from wirelake.backoff import Backoff
from wirelake.clients.driver import ClientDriver
from wirelake.clients.notification import Inbox, Notification, notification_of
from wirelake.clients.transport import Reconnector, StreamTransport
from wirelake.errors import AnswerError, LateError, LostError, ProtocolError, RefusedError, StateError
from wirelake.limits import (
    CLIENT_ANSWER_S,
    CLIENT_ANSWERS_WAITING_MAX,
    CLIENT_CLOSE_S,
    CLIENT_CONNECT_S,
    CLIENT_INBOX_MAX,
    CLIENT_INBOX_OVERDRAFT,
    CLIENT_READ_BYTES,
)
from wirelake.message import Failure, Kind, Message, Op, Topic, control
from wirelake.protocols.protocol import Carrier, Protocol
from wirelake.protocols.session import Closing, Session

_log = logging.getLogger(__name__)


class ClientOptions(Struct, frozen=True, kw_only=True):
    """Configure a client of any protocol. Several clients may share one object."""

    tls: ssl.SSLContext | None = None
    answer_s: float = CLIENT_ANSWER_S  # time for a response, including the wait for a connection
    connect_s: float | None = CLIENT_CONNECT_S  # time for the first login; None waits forever
    inbox_max: int = CLIENT_INBOX_MAX  # notifications that wait to be taken; with more, the client stops reading
    backoff: Backoff = field(default_factory=Backoff)  # pauses before reconnecting; each client has its own copy
    clock: Callable[[], float] = time.monotonic
    random: Callable[[int], bytes] = os.urandom  # returns this many random bytes

    def new_backoff(self) -> Backoff:
        """Return a copy of the backoff, because its bound grows with the failures of one client."""
        return copy(self.backoff)


DEFAULT_OPTIONS: Final = ClientOptions()


class DeprecatedOptions(TypedDict, total=False):
    """Type the options as keyword arguments of a client, which the next release no longer accepts."""

    tls: ssl.SSLContext | None
    answer_s: float
    connect_s: float | None
    inbox_max: int
    backoff: Backoff | None
    clock: Callable[[], float]
    random: Callable[[int], bytes]


def resolve_options(options: ClientOptions, deprecated: DeprecatedOptions) -> ClientOptions:
    """Return the options with deprecated keyword arguments applied, and warn the caller of the constructor."""
    if not deprecated:
        return options
    unknown = [name for name in deprecated if name not in ClientOptions.__struct_fields__]
    if unknown:
        raise TypeError(f"unexpected keyword argument {unknown[0]!r}")
    names = ", ".join(f"{name}=…" for name in deprecated)
    warnings.warn(
        f"pass options=ClientOptions({names}): these keyword arguments of a client will be removed in the next release",
        DeprecationWarning,
        stacklevel=3,
    )
    changes = {name: value for name, value in deprecated.items() if name != "backoff" or value is not None}
    return replace(options, **changes)


class StreamClient:
    """Keep a connection to a gateway. Use it with `async with`, which returns once the login is done.

    After a lost connection the client reconnects with growing pauses, logs in and restores its subscriptions. Requests
    without a response fail with LostError: only the caller knows whether to repeat them. Requests that are made while
    there is no connection wait for one, within `answer_s`.
    """

    protocol: ClassVar[Protocol]

    def __init__(
        self, host: str, port: int, *, options: ClientOptions = DEFAULT_OPTIONS, **deprecated: Unpack[DeprecatedOptions]
    ) -> None:
        options = resolve_options(options, deprecated)
        self.connections = 0  # number of logins
        self._options = options
        self._reconnector = Reconnector(
            host, port, options.tls, options.new_backoff(), options.clock, self._new_transport
        )
        self._inbox: Inbox[Notification] = Inbox(options.inbox_max * CLIENT_INBOX_OVERDRAFT)
        self._answers: dict[str, asyncio.Future[Message]] = {}
        self._topics: dict[str, None] = {}  # to subscribe to again
        self._number = 0
        self._task: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._is_ready = False
        self._is_closed = False
        self._error: Exception | None = None
        self._refusal: RefusedError | None = None
        self._unprocessed = bytearray()
        self._transport: StreamTransport | None = None
        self._driver: ClientDriver | None = None

    # For a protocol's client to override

    def _new_session(self, now_s: float) -> Session:
        raise NotImplementedError

    def _new_transport(self) -> StreamTransport:
        return StreamTransport(self._on_data, self._on_connection_lost)

    def _login(self) -> Message | None:
        """Return the first request of each connection."""
        return None

    async def _restore(self) -> None:
        """Restore subscriptions and the like with `_ask`, after each login and before any other request."""

    def _on_inbox_full(self) -> None:
        """Handle a notification that was dropped because the inbox is full."""

    async def _before_close(self) -> None:
        """Finish what must be sent before `close` closes the connection."""

    def _final(self, failure: Failure) -> bool:
        """Return whether reconnecting after this failure is pointless."""
        return False

    def _check(self, message: Message) -> None:
        """Raise an error for a request that cannot be encoded, before the session counts it as sent."""

    def _on_other_message(self, message: Message) -> None:
        """Handle a message that is neither a response nor a notification."""
        _log.debug("%s: ignoring unexpected %s", self.protocol.name, message.name)

    # For users

    @property
    def connected(self) -> bool:
        """Return whether the client is logged in at present."""
        return self._is_ready

    @property
    def trouble(self) -> str:
        """Return why the last connection ended or could not be made."""
        return self._reconnector.last_error

    @property
    def left_out(self) -> int:
        """Return the number of notifications that the inbox had no room for; durable ones are delivered again."""
        return self._inbox.left_out

    @property
    def inbox_size(self) -> int:
        """Return the number of notifications that wait to be taken."""
        return len(self._inbox)

    async def open(self) -> None:
        """Connect and log in. RefusedError: wrong credentials. LateError: no connection in time."""
        if self._task is not None:
            raise StateError("a client can be opened only once")
        connect_s = self._options.connect_s
        self._task = asyncio.create_task(self._run())
        try:
            async with asyncio.timeout(connect_s):
                await self._until_ready()
        except TimeoutError as error:
            raise LateError(f"not connected within {connect_s:g} s: {self.trouble}") from error
        finally:
            if not self._is_ready:
                await self.close()

    async def close(self) -> None:
        """Close the connection and end the client. A second call does nothing."""
        if self._task is None or self._is_closed:
            return
        if self._is_ready:
            await self._before_close()
        self._is_ready, self._is_closed = False, True
        self._changed.set()
        if self._driver is not None and self._transport is not None:
            self._driver.close(Closing("normal", "the client was closed"))
            self._transport.close()
            await asyncio.wait([self._transport.ended], timeout=CLIENT_CLOSE_S)
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._finish(None)

    def drop(self) -> None:
        """Abort the connection as a bad network would, for tests and the simulator. The client reconnects."""
        self._is_ready = False
        if self._transport is not None:
            self._transport.abort()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def request(self, message: Message) -> Message:
        """Send a request and return its response. Raises AnswerError, LostError or LateError."""
        self._check(message)
        answer_s = self._options.answer_s
        try:
            async with asyncio.timeout(answer_s):
                await self._until_ready()
                if self._transport is not None:
                    await self._transport.drain()
                return await self._ask(message)
        except TimeoutError as error:
            state = "" if self._is_ready else f"; not connected: {self.trouble}"
            raise LateError(f"no answer within {answer_s:g} s{state}") from error

    async def notifications(self) -> AsyncGenerator[Notification, None]:
        """Yield notifications until the client is closed. RefusedError if the gateway refuses this client."""
        while not self._inbox.is_over:
            notification = await self._take()
            if notification is not None:
                yield notification

    async def next_notification(self, timeout_s: float | None = None) -> Notification:
        """Return one notification. LateError if none arrives in time; StateError if the client is closed."""
        try:
            async with asyncio.timeout(timeout_s), aclosing(self.notifications()) as notifications:
                async for notification in notifications:
                    return notification
        except TimeoutError as error:
            raise LateError(f"no notification within {timeout_s:g} s") from error
        raise StateError("the client is closed")

    # Internal

    async def _take(self) -> Notification | None:
        notification = await self._inbox.take()
        self._process_input()
        return notification

    async def _until_ready(self) -> None:
        while not self._is_ready:
            if self._error is not None:
                raise _copy_of(self._error)
            if self._is_closed or self._task is None:
                raise StateError("the client is closed" if self._is_closed else "the client is not open yet")
            self._changed.clear()
            await self._changed.wait()

    async def _ask(self, message: Message) -> Message:
        """Send a request on the present connection, also before the login is done, and return its response."""
        driver = self._driver
        if driver is None or driver.closing is not None:
            raise LostError("the connection is being closed")
        if len(self._answers) >= CLIENT_ANSWERS_WAITING_MAX:
            raise StateError(
                f"{CLIENT_ANSWERS_WAITING_MAX} requests are waiting for responses (CLIENT_ANSWERS_WAITING_MAX)"
            )
        correlation = message.correlation or self._new_correlation()
        answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._answers[correlation] = answer
        try:
            driver.send(replace(message, correlation=correlation))
            self._process_input()
            return await answer
        finally:
            self._answers.pop(correlation, None)
            self._process_input()

    def _send(self, message: Message) -> None:
        """Send a message that expects no response. StateError if there is no connection."""
        if self._driver is None or self._driver.closing is not None:
            raise StateError("the connection is gone")
        self._driver.send(message)

    def _new_correlation(self) -> str:
        self._number += 1
        return str(self._number)

    async def _run(self) -> None:
        error: Exception | None = None
        try:
            await self._reconnector.run(self._serve)
        except RefusedError as refused:
            error = refused
        except Exception as fault:  # noqa: BLE001 whatever it is, everyone who waits must get it
            _log.exception("client stopped by an unexpected error")
            error = fault
        finally:
            self._finish(error)

    async def _serve(self, transport: StreamTransport) -> None:
        """Serve one connection, from its login to its end."""
        driver = ClientDriver(
            self.protocol,
            Carrier.TCP,
            self._new_session(self._options.clock()),
            self._options.clock,
            write=transport.write,
            on_message=self._on_message,
            on_close=self._on_session_closed,
            on_unreadable=self._on_unreadable,
        )
        self._transport, self._driver, self._unprocessed = transport, driver, bytearray()
        try:
            if transport.ended.done():
                raise LostError(transport.ended.result())
            login = self._login()
            if login is not None:
                await self._ask(login)
            self.connections += 1
            await self._restore()
            self._is_ready = True
            self._changed.set()
            await transport.ended
        except AnswerError:
            if self._refusal is None:
                raise
        finally:
            self._is_ready = False
            self._transport = self._driver = None
            driver.stop()
        if self._refusal is not None:
            raise self._refusal

    def _on_data(self, data: bytes) -> None:
        # At most one read or one WebSocket message: reading is paused while some of it is left.
        self._unprocessed += data
        self._process_input()

    def _on_message(self, message: Message) -> None:
        if message.kind is Kind.NOTIFICATION:
            self._on_notification(notification_of(message))
            return
        if message.kind is not Kind.RESPONSE:
            self._on_other_message(message)
            return
        failure = message.failure
        if failure is not None and self._final(failure):
            self._refusal = RefusedError(failure.text, failure.code)
        answer = self._answers.get(message.correlation)
        if answer is None or answer.done():
            return  # the request was cancelled or timed out
        if failure is None:
            answer.set_result(message)
        else:
            answer.set_exception(AnswerError(failure.text, failure.code))

    def _on_notification(self, notification: Notification) -> None:
        self._number += 1
        if not self._inbox.put(notification.id or f"#{self._number}", notification):
            self._on_inbox_full()

    def _on_unreadable(self, error: ProtocolError) -> None:
        if self._driver is not None and self._transport is not None:
            self._driver.fail(error)
            self._transport.close(str(error))

    def _on_session_closed(self, closing: Closing) -> None:
        if self._transport is not None:
            self._transport.close(closing.text or closing.code)

    def _on_connection_lost(self, reason: str) -> None:
        self._is_ready = False
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(
                    _copy_of(self._refusal) if self._refusal else LostError(f"connection lost: {reason}")
                )

    def _process_input(self) -> None:
        """Process received bytes, and pause reading while the inbox is full.

        While a request waits for its response, reading continues: the response is behind the notifications.
        """
        transport, driver = self._transport, self._driver
        if transport is None or driver is None:
            return
        while self._unprocessed and self._has_room and driver.closing is None:
            piece = bytes(self._unprocessed[:CLIENT_READ_BYTES])
            del self._unprocessed[:CLIENT_READ_BYTES]  # a bytearray only advances its start here: nothing is copied
            driver.receive(piece)
        driver.is_reading_paused = not self._has_room
        transport.set_reading(not driver.is_reading_paused)

    @property
    def _has_room(self) -> bool:
        return bool(self._answers) or len(self._inbox) < self._options.inbox_max

    def _finish(self, error: Exception | None) -> None:
        self._is_ready, self._is_closed = False, True
        self._error = self._error or error
        self._inbox.finish(error)
        self._changed.set()


class TopicClient(StreamClient):
    """Publish and subscribe, also to live topics: the base of the magline, sisnet and esnp clients."""

    async def subscribe(self, *topics: str) -> None:
        """Subscribe to durable topics (`@…`), with what was missed, and to live topics, from now on."""
        if topics:
            await self.request(control(Op.SUBSCRIBE, fields={"topics": list(topics)}))
            self._topics.update(dict.fromkeys(topics))

    async def unsubscribe(self, *topics: str) -> None:
        if topics:
            for name in topics:
                self._topics.pop(name, None)
            await self.request(control(Op.UNSUBSCRIBE, fields={"topics": list(topics)}))

    # For a protocol's client

    async def _publish(self, topic: str, content: bytes | str, number: int = 0) -> str:
        """Publish a notification whose type is `number`, and return its id; "" for a live topic."""
        payload = content.encode() if isinstance(content, str) else content
        message = Message(kind=Kind.NOTIFICATION, target=Topic(topic), payload=payload, type=number)
        return str((await self.request(message)).fields.get("id", ""))

    async def _subscribe_again(self) -> None:
        if self._topics:
            await self._ask(control(Op.SUBSCRIBE, fields={"topics": list(self._topics)}))


def _copy_of(error: Exception) -> Exception:
    """Return a new exception for each waiter: a shared one would collect all their tracebacks."""
    return type(error)(*error.args).with_traceback(None)
