"""Connect a phone over comet: subscribe, receive notifications, fetch the missed ones, acknowledge."""

import logging
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from contextlib import aclosing
from itertools import islice
from typing import Unpack

from wirelake.clients.client import DEFAULT_OPTIONS, ClientOptions, DeprecatedOptions, StreamClient, resolve_options
from wirelake.clients.notification import AckTracker, Notification, notification_of
from wirelake.errors import InputError, LateError, LostError, StateError
from wirelake.message import Credentials, Failure, Kind, Message, Op, control
from wirelake.protocols.comet.client import ClientSession
from wirelake.protocols.comet.constants import COMET_WRITE_COUNT_MAX, ErrorCode
from wirelake.protocols.comet.protocol import PROTOCOL
from wirelake.protocols.comet.server import topic_allowed
from wirelake.protocols.comet.session import SessionSettings
from wirelake.protocols.comet.translation import REPORT_ENVIRON
from wirelake.protocols.frame import Sender
from wirelake.protocols.session import Session

_log = logging.getLogger(__name__)
_TOPICS_PER_FRAME = 64  # of the longest names; more would not fit a frame


class CometClient(StreamClient):
    """Receive notifications as a phone. `secret_bytes` of 16 or 32 has their content encrypted in transit.

    Heartbeats are sent automatically. Wrong credentials, or another connection under the same name, end the client.
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
        options: ClientOptions = DEFAULT_OPTIONS,
        **deprecated: Unpack[DeprecatedOptions],
    ) -> None:
        options = resolve_options(options, deprecated)
        super().__init__(host, port, options=options)
        self._credentials = Credentials(client_id, token)
        self._secret_bytes = secret_bytes
        self._settings = settings
        self._has_missed = False  # the gateway may have notifications for get_message_list
        self._acks = AckTracker(self._ack, COMET_WRITE_COUNT_MAX)

    # For users

    async def subscribe(self, *topics: str) -> None:
        """Subscribe; durable when this returns. The gateway keeps subscriptions while the client is away."""
        for batch in _batches(topics, _TOPICS_PER_FRAME):
            await self.request(control(Op.SUBSCRIBE, fields={"topics": _check_topics(batch)}))
            self._topics.update(dict.fromkeys(batch))

    async def unsubscribe(self, *topics: str) -> None:
        for batch in _batches(topics, _TOPICS_PER_FRAME):
            for name in batch:
                self._topics.pop(name, None)
            await self.request(control(Op.UNSUBSCRIBE, fields={"topics": _check_topics(batch)}))

    async def topics(self) -> list[str]:
        """Return the topics that the gateway has for this client."""
        answer = await self.request(control(Op.TOPICS))
        return list(answer.fields.get("topics", ()))

    async def backlog(self) -> list[Notification]:
        """Return notifications without an ack, oldest first: as many as fit into one response."""
        answer = await self.request(control(Op.BACKLOG))
        return [notification_of(part) for part in answer.parts]

    async def drain_backlog(self, *, ack: bool = True) -> AsyncGenerator[Notification, None]:
        """Yield all notifications without an ack, list by list, until a list has nothing new.

        Each is acked when you request the next one. With `ack=False`, ack them yourself before the end of each list.
        """
        before: set[str] = set()
        while waiting := await self.backlog():
            for notification in waiting:
                self._inbox.discard(notification.id)
                if notification.id not in before and notification.id not in self._acks:
                    yield notification
                    if ack:
                        self._acks.add(notification.id)
            await self._acks.flush(self._options.answer_s)
            ids = {notification.id for notification in waiting}
            if ids <= before:
                return
            before = ids

    async def notifications(self, *, ack: bool = True, backlog: bool = True) -> AsyncGenerator[Notification, None]:
        """Yield notifications as they arrive; after each login first the missed ones, unless `backlog=False`.

        Each is acked when you request the next one, so it is delivered again if your code fails. With `ack=False`,
        call `ack` yourself. A notification that is not acked in time is delivered more than once.
        """
        while not self._inbox.is_over:
            if backlog and self._has_missed and not self._is_closed:
                self._has_missed = False
                try:
                    async with aclosing(self.drain_backlog(ack=ack)) as missed:
                        async for notification in missed:
                            yield notification
                except (LostError, LateError) as error:
                    _log.info("fetching the backlog failed, retrying later: %s", error)
                    self._has_missed = True
                except StateError:
                    if not self._is_closed:
                        raise
                continue
            taken = await self._take()
            if taken is not None:
                yield taken
                if ack:
                    self._acks.add(taken.id)

    async def ack(self, *ids: str) -> None:
        """Acknowledge notifications; durable when this returns."""
        for batch in _batches(ids, COMET_WRITE_COUNT_MAX):
            await self._ack(batch)

    async def ping(self) -> None:
        """Wait until the gateway answers a heartbeat."""
        await self.request(control(Op.PING))

    async def report_environ(
        self, *, network_type: int = 0, isp: int = 0, phone_type: str = "", extra: Sequence[str] = ()
    ) -> None:
        fields = {"network_type": network_type, "isp": isp, "phone_type": phone_type, "extra": list(extra)}
        await self.request(Message(kind=Kind.EVENT, name=REPORT_ENVIRON, fields=fields))

    # For StreamClient

    def _new_session(self, now_s: float) -> Session:
        return ClientSession(now_s, self._options.random, self._secret_bytes, self._settings)

    def _login(self) -> Message:
        return control(Op.LOGIN, credentials=self._credentials)

    async def _restore(self) -> None:
        for batch in _batches(self._topics, _TOPICS_PER_FRAME):
            await self._ask(control(Op.SUBSCRIBE, fields={"topics": batch}))
        self._has_missed = True
        self._inbox.wake()

    def _on_inbox_full(self) -> None:
        self._has_missed = True  # the gateway still has it

    async def _before_close(self) -> None:
        await self._acks.finish()

    def _final(self, failure: Failure) -> bool:
        if failure.code == ErrorCode.CONNECTED_ELSEWHERE:
            # After a loss it may be our own old connection, which the gateway has not noticed yet.
            return self._is_ready or not self.connections
        return failure.code in (ErrorCode.TOKEN_WRONG, ErrorCode.CLIENT_UNKNOWN)

    def _check(self, message: Message) -> None:
        self.protocol.from_message(message, Sender.CLIENT).encode()

    # Internal

    async def _ack(self, ids: list[str]) -> None:
        await self.request(control(Op.ACK, fields={"ids": ids}))
        self._acks.forget(ids)
        for each in ids:
            self._inbox.discard(each)


def _batches(items: Iterable[str], size: int) -> Iterator[list[str]]:
    rest = iter(list(items))
    while batch := list(islice(rest, size)):
        yield batch


def _check_topics(topics: list[str]) -> list[str]:
    for topic in topics:
        if not topic_allowed(topic):
            raise InputError(
                f"{topic[:64]!r} is not a comet topic: it must start with @ and contain only letters, digits and /_-@$."
            )
    return topics
