"""A phone: subscribes, is told, fetches what it missed, acknowledges."""

import logging
import os
import ssl
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing
from itertools import islice

from wirelake.backoff import Backoff
from wirelake.clients.acks import AckTracker
from wirelake.clients.notification import Notification, notification_of
from wirelake.clients.stream import StreamClient
from wirelake.errors import InputError, LateError, LostError, StateError
from wirelake.limits import CLIENT_ANSWER_S, CLIENT_CONNECT_S, CLIENT_INBOX_MAX
from wirelake.message import Credentials, Failure, Kind, Message, Op, control
from wirelake.protocols.comet.client import ClientSession
from wirelake.protocols.comet.limits import COMET_WRITE_COUNT_MAX
from wirelake.protocols.comet.opcodes import ErrorCode
from wirelake.protocols.comet.protocol import PROTOCOL
from wirelake.protocols.comet.server import topic_allowed
from wirelake.protocols.comet.session import SessionSettings
from wirelake.protocols.comet.translation import REPORT_ENVIRON
from wirelake.protocols.frame import Sender
from wirelake.protocols.session import Session

_log = logging.getLogger(__name__)
_TOPICS_PER_FRAME = 64  # of the longest names; more would not fit a frame


class CometClient(StreamClient):
    """`secret_bytes` 16 or 32 has the content sealed on its way. `random` gives that many fresh random bytes.

    Heartbeats go out by themselves. Wrong credentials, and another connection under the same name, end it for good.
    """

    protocol = PROTOCOL

    def __init__(
        self,
        host: str,
        port: int,
        client_id: str,
        token: str,
        *,
        secret_bytes: int = 0,
        settings: SessionSettings = SessionSettings(),
        tls: ssl.SSLContext | None = None,
        answer_s: float = CLIENT_ANSWER_S,
        connect_s: float | None = CLIENT_CONNECT_S,
        inbox_max: int = CLIENT_INBOX_MAX,
        backoff: Backoff | None = None,
        clock: Callable[[], float] = time.monotonic,
        random: Callable[[int], bytes] = os.urandom,
    ) -> None:
        super().__init__(
            host,
            port,
            tls=tls,
            answer_s=answer_s,
            connect_s=connect_s,
            inbox_max=inbox_max,
            backoff=backoff,
            clock=clock,
        )
        self._credentials = Credentials(client_id, token)
        self._secret_bytes = secret_bytes
        self._settings = settings
        self._random = random
        self._missed = False  # something may wait for get_message_list
        self._acks = AckTracker(self._ack, COMET_WRITE_COUNT_MAX)

    # For users

    async def subscribe(self, *topics: str) -> None:
        """Durable when this returns, and kept by the gateway for this client, connected or not."""
        for some in _parts(topics, _TOPICS_PER_FRAME):
            await self.request(control(Op.SUBSCRIBE, fields={"topics": _checked(some)}))
            self._topics.update(dict.fromkeys(some))

    async def unsubscribe(self, *topics: str) -> None:
        for some in _parts(topics, _TOPICS_PER_FRAME):
            for name in some:
                self._topics.pop(name, None)
            await self.request(control(Op.UNSUBSCRIBE, fields={"topics": _checked(some)}))

    async def topics(self) -> list[str]:
        """What this client is subscribed to, as the gateway says."""
        answer = await self.request(control(Op.TOPICS))
        return list(answer.fields.get("topics", ()))

    async def backlog(self) -> list[Notification]:
        """What waits for an ack, oldest first: as many as fit one answer."""
        answer = await self.request(control(Op.BACKLOG))
        return [notification_of(part) for part in answer.parts]

    async def drain_backlog(self, *, ack: bool = True) -> AsyncGenerator[Notification, None]:
        """All that waits. Each is acked when the next is asked for; after a list's last one, the next list is fetched.

        With `ack=False` that is yours to do, before the end of each list. It ends when nothing new comes.
        """
        before: set[str] = set()
        while waiting := await self.backlog():
            for notification in waiting:
                self._inbox.discard(notification.id)
                if notification.id not in before and notification.id not in self._acks:
                    yield notification
                    if ack:
                        self._acks.soon(notification.id)
            await self._acks.durable(self._answer_s)
            ids = {notification.id for notification in waiting}
            if ids <= before:
                return
            before = ids

    async def notifications(self, *, ack: bool = True, backlog: bool = True) -> AsyncGenerator[Notification, None]:
        """What is published, as it comes; after each login first what was missed, unless `backlog=False`.

        Each is acked by itself when the next is asked for, so one whose work fails comes again; with `ack=False`
        call `ack` yourself. What is not acked in time comes more than once.
        """
        while not self._inbox.over:
            if backlog and self._missed and not self._over:
                self._missed = False
                try:
                    async with aclosing(self.drain_backlog(ack=ack)) as missed:
                        async for found in missed:
                            yield found
                except (LostError, LateError) as error:
                    _log.info("fetching the backlog failed, retrying later: %s", error)
                    self._missed = True
                except StateError:
                    if not self._over:
                        raise
                continue
            taken = await self._take()
            if taken is not None:
                yield taken
                if ack:
                    self._acks.soon(taken.id)

    async def ack(self, *ids: str) -> None:
        """These are dealt with: durable when this returns."""
        for some in _parts(ids, COMET_WRITE_COUNT_MAX):
            await self._ack(some)

    async def ping(self) -> None:
        """A heartbeat of your own, answered."""
        await self.request(control(Op.PING))

    async def report_environ(
        self, *, network_type: int = 0, isp: int = 0, phone_type: str = "", extra: Sequence[str] = ()
    ) -> None:
        fields = {"network_type": network_type, "isp": isp, "phone_type": phone_type, "extra": list(extra)}
        await self.request(Message(kind=Kind.EVENT, name=REPORT_ENVIRON, fields=fields))

    # For StreamClient

    def _new_session(self, now_s: float) -> Session:
        return ClientSession(now_s, self._random, self._secret_bytes, self._settings)

    def _login(self) -> Message:
        return control(Op.LOGIN, credentials=self._credentials)

    async def _restore(self) -> None:
        for some in _parts(self._topics, _TOPICS_PER_FRAME):
            await self._ask(control(Op.SUBSCRIBE, fields={"topics": some}))
        self._missed = True
        self._inbox.nudge()

    def _no_room(self) -> None:
        self._missed = True  # it waits at the gateway

    async def _last_words(self) -> None:
        await self._acks.finish()

    def _final(self, failure: Failure) -> bool:
        if failure.code == ErrorCode.CONNECTED_ELSEWHERE:
            # While logged in, or at the first login. After a loss it may be our own old connection, still open there.
            return self._ready or not self.connections
        return failure.code in (ErrorCode.TOKEN_WRONG, ErrorCode.CLIENT_UNKNOWN)

    def _check(self, message: Message) -> None:
        self.protocol.from_message(message, Sender.CLIENT).encode()

    # Inside

    async def _ack(self, ids: list[str]) -> None:
        await self.request(control(Op.ACK, fields={"ids": ids}))
        self._acks.forget(ids)
        for each in ids:
            self._inbox.discard(each)


def _parts(items: Iterable[str], size: int) -> Iterator[list[str]]:
    rest = iter(list(items))
    while some := list(islice(rest, size)):
        yield some


def _checked(topics: list[str]) -> list[str]:
    for topic in topics:
        if not topic_allowed(topic):
            raise InputError(
                f"{topic[:64]!r} is not a comet topic: it must start with @ and contain only letters, digits and /_-@$."
            )
    return topics
