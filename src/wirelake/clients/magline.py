"""A box: sealed requests, pushes and acks. A lost line is taken up where it was."""

import logging
import os
import ssl
import time
from collections.abc import AsyncGenerator, Callable
from typing import Any, Final

from wirelake.backoff import Backoff
from wirelake.clients.acks import AckTracker
from wirelake.clients.notification import Notification
from wirelake.clients.topics import TopicClient
from wirelake.errors import InputError, RefusedError
from wirelake.limits import CLIENT_ANSWER_S, CLIENT_CONNECT_S, CLIENT_INBOX_MAX, HTTP_COMMAND_MS
from wirelake.message import (
    COMMAND,
    DEVICES_SERVICE,
    Credentials,
    Failure,
    Kind,
    Message,
    Op,
    Operation,
    control,
)
from wirelake.protocols.magline.client import ClientSession
from wirelake.protocols.magline.opcodes import USERS_FIRST, ErrorNumber
from wirelake.protocols.magline.protocol import PROTOCOL
from wirelake.protocols.magline.session import SessionSettings
from wirelake.protocols.magline.translation import CALL
from wirelake.protocols.session import REKEY, RESUME, Closing, Session

_log = logging.getLogger(__name__)
_IDS_PER_ACK_MAX: Final = 512
_NO_SECOND_TRY: Final = frozenset({"wrong_server", "fin_replaced"})  # closings that calling again would not mend


class MaglineClient(TopicClient):
    """`pinned` is the gateway's public key, 32 bytes: another one's answer ends the client with RefusedError. Without
    it, `server_public` says after the first login what to pin. `random` gives that many fresh random bytes.

    Pings go out by themselves. A lost connection resumes its session, with the pushes that waited; where the gateway
    does not know it any more, the client logs in and subscribes again.
    """

    protocol = PROTOCOL

    def __init__(
        self,
        host: str,
        port: int,
        user: str,
        token: str,
        *,
        pinned: bytes | None = None,
        little: bool = False,
        settings: SessionSettings = SessionSettings(),
        tls: ssl.SSLContext | None = None,
        answer_s: float = CLIENT_ANSWER_S,
        connect_s: float | None = CLIENT_CONNECT_S,
        inbox_max: int = CLIENT_INBOX_MAX,
        backoff: Backoff | None = None,
        clock: Callable[[], float] = time.monotonic,
        random: Callable[[int], bytes] = os.urandom,
    ) -> None:
        """`little` speaks little-endian."""
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
        self.resumed = 0  # how many of the connections took up the session of the one before
        self.server_public = b""
        self._credentials = Credentials(user, token)
        self._pinned = pinned
        self._little = little
        self._settings = settings
        self._random = random
        self._session_to_resume: tuple[bytes, bytes] | None = None  # its sid and its resume secret
        self._resuming = False
        self._logging_in = False
        self._acks = AckTracker(self._ack, _IDS_PER_ACK_MAX)

    # For users

    async def call(self, business_cmd: int, data: bytes = b"") -> bytes:
        """Ask the service `magline/<business_cmd>`, whoever provides it; from 16 on they are the users'."""
        if business_cmd < USERS_FIRST:
            raise InputError(
                f"business_cmd {business_cmd} is reserved for the gateway: services begin at {USERS_FIRST}"
            )
        target = Operation(f"magline/{business_cmd}", CALL)
        return (await self.request(Message(kind=Kind.REQUEST, target=target, payload=data))).payload

    async def command(
        self,
        serial: str,
        type: int,  # noqa: A002 (its name)
        data: bytes = b"",
        *,
        wait_ms: int = HTTP_COMMAND_MS,
    ) -> dict[str, Any]:
        """Send a command to a device; answers what the device says, by names as in the HTTP API."""
        fields = {"serial": serial, "type": type, "data": data.hex(), "wait_ms": wait_ms}
        target = Operation(DEVICES_SERVICE, COMMAND)
        return (await self.request(Message(kind=Kind.REQUEST, target=target, fields=fields))).fields

    async def publish(self, topic: str, content: bytes | str) -> str:
        """A durable topic: on disk when this returns; answers its id. A live name: answers nothing."""
        return await self._publish(topic, content)

    async def notifications(self, *, ack: bool = True) -> AsyncGenerator[Notification, None]:
        """What is pushed, as it comes.

        Each is acked by itself when the next is asked for, so one whose work fails comes again; with `ack=False` call
        `ack` yourself. What is not acked in time comes more than once.
        """
        while not self._inbox.over:
            taken = await self._take()
            if taken is not None:
                yield taken
                if ack and taken.id:  # those of live names have none
                    self._acks.soon(taken.id)

    async def ack(self, *ids: str) -> None:
        """These are dealt with: durable when this returns."""
        for start in range(0, len(ids), _IDS_PER_ACK_MAX):
            await self._ack(list(ids[start : start + _IDS_PER_ACK_MAX]))

    async def rekey(self) -> None:
        """New keys from here on, on the same connection."""
        await self.request(Message(kind=Kind.CONTROL, name=REKEY))
        self._remember_session()

    async def ping(self) -> None:
        """A ping of your own, answered."""
        await self.request(control(Op.PING))

    # For StreamClient

    def _new_session(self, now_s: float) -> Session:
        return ClientSession(now_s, self._random, self._pinned, self._settings, little=self._little)

    def _login(self) -> Message:
        self._logging_in, self._resuming = True, self._session_to_resume is not None
        if self._session_to_resume is not None:
            sid, secret = self._session_to_resume
            return Message(kind=Kind.CONTROL, name=RESUME, fields={"sid": sid.hex(), "secret": secret.hex()})
        return control(Op.LOGIN, credentials=self._credentials)

    async def _restore(self) -> None:
        self._logging_in = False
        self._remember_session()
        if self._resuming:
            self.resumed += 1  # with the subscriptions that it had
        else:
            await self._subscribe_again()

    async def _last_words(self) -> None:
        await self._acks.finish()

    def _final(self, failure: Failure) -> bool:
        if self._resuming and failure.code == ErrorNumber.UNKNOWN_SESSION:
            _log.info("the session is no longer known: logging in again")
            self._session_to_resume = None
        return self._logging_in and failure.code == ErrorNumber.NOT_LOGGED_IN

    def _notified(self, notification: Notification) -> None:
        if notification.id not in self._acks:  # else it is on its way out
            super()._notified(notification)

    def _ended(self, closing: Closing) -> None:
        if closing.code in _NO_SECOND_TRY:
            self._refusal = RefusedError(closing.text or closing.code, ErrorNumber.FAILED)
        super()._ended(closing)

    # Inside

    def _remember_session(self) -> None:
        session = self._pump.session if self._pump is not None else None
        if isinstance(session, ClientSession):
            self._session_to_resume = (session.sid, session.resume_secret)
            self.server_public = session.server_public

    async def _ack(self, ids: list[str]) -> None:
        await self.request(control(Op.ACK, fields={"ids": ids}))
        self._acks.forget(ids)
        for each in ids:
            self._inbox.discard(each)
