"""What clients on TCP have in common: connect, log in, ask, be told; and all of it again after a loss.

A protocol's own client names its `protocol`, makes its session, and says how to log in and what to restore.
"""

import asyncio
import logging
import ssl
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from types import TracebackType
from typing import ClassVar, Self

from msgspec.structs import replace

from wirelake.backoff import Backoff
from wirelake.clients.caller import Caller
from wirelake.clients.inbox import Inbox
from wirelake.clients.notification import Notification, notification_of
from wirelake.clients.session_pump import SessionPump
from wirelake.clients.transport import StreamTransport
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
from wirelake.message import Failure, Kind, Message
from wirelake.protocols.protocol import Carrier, Protocol
from wirelake.protocols.session import Closing, Session

_log = logging.getLogger(__name__)


class StreamClient:
    """Use it with `async with`, which returns once the login is done.

    After a loss it calls again by itself, with growing pauses, logs in and restores what was there. What was asked
    and not answered fails with LostError: only the asker knows whether to ask again. What is asked while there is no
    connection waits for one, within `answer_s`.
    """

    protocol: ClassVar[Protocol]

    def __init__(
        self,
        host: str,
        port: int,
        *,
        tls: ssl.SSLContext | None = None,
        answer_s: float = CLIENT_ANSWER_S,
        connect_s: float | None = CLIENT_CONNECT_S,
        inbox_max: int = CLIENT_INBOX_MAX,
        backoff: Backoff | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`connect_s` is for the first login; None waits for ever. `inbox_max` is what may wait to be taken."""
        self.connections = 0  # how many times it logged in
        self._answer_s = answer_s
        self._connect_s = connect_s
        self._inbox_max = inbox_max
        self._clock = clock
        self._caller = Caller(host, port, tls, backoff or Backoff(), clock, self._new_line)
        self._inbox: Inbox[Notification] = Inbox(inbox_max * CLIENT_INBOX_OVERDRAFT)
        self._answers: dict[str, asyncio.Future[Message]] = {}
        self._topics: dict[str, None] = {}  # to subscribe to again
        self._number = 0
        self._task: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._ready = False
        self._over = False
        self._error: Exception | None = None
        self._refusal: RefusedError | None = None
        self._unread = bytearray()
        self._line: StreamTransport | None = None
        self._pump: SessionPump | None = None

    # What a protocol's client says

    def _new_session(self, now_s: float) -> Session:
        raise NotImplementedError

    def _new_line(self) -> StreamTransport:
        return StreamTransport()

    def _login(self) -> Message | None:
        """The first request of each connection."""
        return None

    async def _restore(self) -> None:
        """After each login, before anything else is asked, through `_ask`."""

    def _no_room(self) -> None:
        """A notification was left out."""

    async def _last_words(self) -> None:
        """Before the connection is closed in peace."""

    def _final(self, failure: Failure) -> bool:
        """Whether this failure makes calling again pointless."""
        return False

    def _check(self, message: Message) -> None:
        """Raises for a request that cannot be said, before the session counts it as asked."""

    def _told(self, message: Message) -> None:
        """Neither an answer nor a notification."""
        _log.debug("%s: ignoring unexpected %s", self.protocol.name, message.name)

    # For users

    @property
    def connected(self) -> bool:
        """Whether it is logged in at present."""
        return self._ready

    @property
    def trouble(self) -> str:
        """Why the last connection ended, or did not begin."""
        return self._caller.trouble

    @property
    def left_out(self) -> int:
        """Notifications for which the inbox had no room; those of durable topics come again."""
        return self._inbox.left_out

    async def open(self) -> None:
        """Connect and log in. RefusedError: not with these credentials. LateError: nobody there."""
        if self._task is not None:
            raise StateError("a client can be opened only once")
        self._task = asyncio.create_task(self._run())
        try:
            async with asyncio.timeout(self._connect_s):
                await self._until_ready()
        except TimeoutError as error:
            raise LateError(f"not connected within {self._connect_s:g} s: {self.trouble}") from error
        finally:
            if not self._ready:
                await self.close()

    async def close(self) -> None:
        """Say goodbye and end. May be called twice."""
        if self._task is None or self._over:
            return
        if self._ready:
            await self._last_words()
        self._ready, self._over = False, True
        self._changed.set()
        if self._pump is not None and self._line is not None:
            self._pump.end(Closing("normal", "the client was closed"))
            self._line.close()
            await asyncio.wait([self._line.ended], timeout=CLIENT_CLOSE_S)
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._end(None)

    def drop(self) -> None:
        """Cut the connection, as a bad network would: for tests and the simulator. It is called again."""
        self._ready = False
        if self._line is not None:
            self._line.abort()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def request(self, message: Message) -> Message:
        """Ask, and wait for the answer. AnswerError, LostError, LateError: as they say."""
        self._check(message)
        try:
            async with asyncio.timeout(self._answer_s):
                await self._until_ready()
                if self._line is not None:
                    await self._line.drained()
                return await self._ask(message)
        except TimeoutError as error:
            state = "" if self._ready else f"; not connected: {self.trouble}"
            raise LateError(f"no answer within {self._answer_s:g} s{state}") from error

    async def notifications(self) -> AsyncGenerator[Notification, None]:
        """What is pushed, until the client is closed. RefusedError where the gateway wants no more of it."""
        while not self._inbox.over:
            found = await self._take()
            if found is not None:
                yield found

    async def next_notification(self, timeout_s: float | None = None) -> Notification:
        """One of them. LateError if none comes in time; StateError if the client is closed."""
        try:
            async with asyncio.timeout(timeout_s), aclosing(self.notifications()) as coming:
                async for found in coming:
                    return found
        except TimeoutError as error:
            raise LateError(f"no notification within {timeout_s:g} s") from error
        raise StateError("the client is closed")

    # Inside

    async def _take(self) -> Notification | None:
        found = await self._inbox.take()
        self._fit_reading()
        return found

    async def _until_ready(self) -> None:
        while not self._ready:
            if self._error is not None:
                raise _again(self._error)
            if self._over or self._task is None:
                raise StateError("the client is closed" if self._over else "the client is not open yet")
            self._changed.clear()
            await self._changed.wait()

    async def _ask(self, message: Message) -> Message:
        pump = self._pump
        if pump is None or pump.closing is not None:
            raise LostError("the connection is being closed")
        if len(self._answers) >= CLIENT_ANSWERS_WAITING_MAX:
            raise StateError(
                f"{CLIENT_ANSWERS_WAITING_MAX} requests are waiting for responses (CLIENT_ANSWERS_WAITING_MAX)"
            )
        correlation = message.correlation or self._new_correlation()
        answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._answers[correlation] = answer
        try:
            pump.say(replace(message, correlation=correlation))
            self._fit_reading()
            return await answer
        finally:
            self._answers.pop(correlation, None)
            self._fit_reading()

    def _new_correlation(self) -> str:
        self._number += 1
        return str(self._number)

    async def _run(self) -> None:
        error: Exception | None = None
        try:
            await self._caller.run(self._serve)
        except RefusedError as refused:
            error = refused
        except Exception as fault:  # noqa: BLE001 whatever it is, those who wait must hear of it
            _log.exception("client stopped by an unexpected error")
            error = fault
        finally:
            self._end(error)

    async def _serve(self, line: StreamTransport) -> None:
        """One connection, from its login to its end."""
        pump = SessionPump(
            self.protocol,
            Carrier.TCP,
            self._new_session(self._clock()),
            self._clock,
            write=line.write,
            heard=self._heard,
            ended=self._ended,
            unreadable=self._unreadable,
        )
        self._line, self._pump, self._unread = line, pump, bytearray()
        line.lost, line.receive = self._lost, self._received
        try:
            if line.ended.done():
                raise LostError(line.ended.result())
            login = self._login()
            if login is not None:
                await self._ask(login)
            self.connections += 1
            await self._restore()
            self._ready = True
            self._changed.set()
            await line.ended
        except AnswerError:
            if self._refusal is None:
                raise
        finally:
            self._ready = False
            self._line = self._pump = None
            pump.stop()
        if self._refusal is not None:
            raise self._refusal

    def _received(self, data: bytes) -> None:
        self._unread += data  # at most one read, or one WebSocket message: no more is read while some of it is left
        self._fit_reading()

    def _heard(self, message: Message) -> None:
        if message.kind is Kind.NOTIFICATION:
            self._notified(notification_of(message))
            return
        if message.kind is not Kind.RESPONSE:
            self._told(message)
            return
        failure = message.failure
        if failure is not None and self._final(failure):
            self._refusal = RefusedError(failure.text, failure.code)
        answer = self._answers.get(message.correlation)
        if answer is None or answer.done():
            return  # nobody waits for it any more
        if failure is None:
            answer.set_result(message)
        else:
            answer.set_exception(AnswerError(failure.text, failure.code))

    def _notified(self, notification: Notification) -> None:
        self._number += 1
        if not self._inbox.put(notification.id or f"#{self._number}", notification):
            self._no_room()

    def _unreadable(self, error: ProtocolError) -> None:
        if self._pump is not None and self._line is not None:
            self._pump.fail(error)
            self._line.close(str(error))

    def _ended(self, closing: Closing) -> None:
        """The session is over, by its own word or the gateway's."""
        if self._line is not None:
            self._line.close(closing.text or closing.code)

    def _lost(self, reason: str) -> None:
        self._ready = False
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(
                    _again(self._refusal) if self._refusal else LostError(f"connection lost: {reason}")
                )

    def _fit_reading(self) -> None:
        """With a full inbox nothing more is read, unless somebody waits for an answer, which comes behind."""
        line, pump = self._line, self._pump
        if line is None or pump is None:
            return
        while self._unread and self._room and pump.closing is None:
            piece = bytes(self._unread[:CLIENT_READ_BYTES])
            del self._unread[:CLIENT_READ_BYTES]  # moves nothing, however much there is
            pump.receive(piece)
        pump.is_reading_paused = not self._room
        line.listen(not pump.is_reading_paused)

    @property
    def _room(self) -> bool:
        return bool(self._answers) or len(self._inbox) < self._inbox_max

    def _end(self, error: Exception | None) -> None:
        self._ready, self._over = False, True
        self._error = self._error or error
        self._inbox.finish(error)
        self._changed.set()


def _again(error: Exception) -> Exception:
    """A new exception for each who hears it: a shared one would gather all their tracebacks."""
    return type(error)(*error.args).with_traceback(None)
