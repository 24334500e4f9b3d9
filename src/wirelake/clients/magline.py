"""Connect a box over magline: encrypted requests, pushes and acks, and sessions that survive a lost connection."""

import logging
from collections.abc import AsyncGenerator
from typing import Any, Final, Unpack

from wirelake.clients.client import DEFAULT_OPTIONS, ClientOptions, DeprecatedOptions, TopicClient, resolve_options
from wirelake.clients.notification import AckTracker, Notification
from wirelake.errors import InputError, RefusedError
from wirelake.limits import HTTP_COMMAND_MS
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
from wirelake.protocols.magline.constants import USERS_FIRST, ErrorNumber
from wirelake.protocols.magline.protocol import PROTOCOL
from wirelake.protocols.magline.session import SessionSettings
from wirelake.protocols.magline.translation import CALL
from wirelake.protocols.session import REKEY, RESUME, Closing, Session

_log = logging.getLogger(__name__)
_IDS_PER_ACK_MAX: Final = 512
_FINAL_CLOSINGS: Final = frozenset({"wrong_server", "fin_replaced"})  # after which reconnecting is pointless


class MaglineClient(TopicClient):
    """Call services, publish and subscribe as a box.

    `pinned` is the gateway's public key, 32 bytes: a gateway with another key ends the client with RefusedError. After
    the first login without it, `server_public` is the key to pin. `little` uses little-endian integers.

    Pings are sent automatically. After a lost connection the client resumes its session with the pushes that waited; if
    the gateway no longer has the session, the client logs in and subscribes again.
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
        options: ClientOptions = DEFAULT_OPTIONS,
        **deprecated: Unpack[DeprecatedOptions],
    ) -> None:
        options = resolve_options(options, deprecated)
        super().__init__(host, port, options=options)
        self.resumed = 0  # number of connections that resumed the session of the one before
        self.server_public = b""
        self._credentials = Credentials(user, token)
        self._pinned = pinned
        self._little = little
        self._settings = settings
        self._session_to_resume: tuple[bytes, bytes] | None = None  # its sid and its resume secret
        self._is_resuming = False
        self._is_logging_in = False
        self._acks = AckTracker(self._ack, _IDS_PER_ACK_MAX)

    # For users

    async def call(self, business_cmd: int, data: bytes = b"") -> bytes:
        """Call the service `magline/<business_cmd>`, whoever provides it; users' services begin at 16."""
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
        """Send a command to a device and return its response, with names as in the HTTP API."""
        fields = {"serial": serial, "type": type, "data": data.hex(), "wait_ms": wait_ms}
        target = Operation(DEVICES_SERVICE, COMMAND)
        return (await self.request(Message(kind=Kind.REQUEST, target=target, fields=fields))).fields

    async def publish(self, topic: str, content: bytes | str) -> str:
        """Publish to a durable topic and return the id, once it is on disk; "" for a live topic."""
        return await self._publish(topic, content)

    async def notifications(self, *, ack: bool = True) -> AsyncGenerator[Notification, None]:
        """Yield notifications as they arrive.

        Each is acked when you request the next one, so it is delivered again if your code fails. With `ack=False`,
        call `ack` yourself. A notification that is not acked in time is delivered more than once.
        """
        while not self._inbox.is_over:
            taken = await self._take()
            if taken is not None:
                yield taken
                if ack and taken.id:  # notifications of live topics have none
                    self._acks.add(taken.id)

    async def ack(self, *ids: str) -> None:
        """Acknowledge notifications; durable when this returns."""
        for start in range(0, len(ids), _IDS_PER_ACK_MAX):
            await self._ack(list(ids[start : start + _IDS_PER_ACK_MAX]))

    async def rekey(self) -> None:
        """Change to new keys on the same connection."""
        await self.request(Message(kind=Kind.CONTROL, name=REKEY))
        self._remember_session()

    async def ping(self) -> None:
        """Wait until the gateway answers a ping."""
        await self.request(control(Op.PING))

    # For StreamClient

    def _new_session(self, now_s: float) -> Session:
        return ClientSession(now_s, self._options.random, self._pinned, self._settings, little=self._little)

    def _login(self) -> Message:
        self._is_logging_in, self._is_resuming = True, self._session_to_resume is not None
        if self._session_to_resume is not None:
            sid, secret = self._session_to_resume
            return Message(kind=Kind.CONTROL, name=RESUME, fields={"sid": sid.hex(), "secret": secret.hex()})
        return control(Op.LOGIN, credentials=self._credentials)

    async def _restore(self) -> None:
        self._is_logging_in = False
        self._remember_session()
        if self._is_resuming:
            self.resumed += 1  # the session kept its subscriptions
        else:
            await self._subscribe_again()

    async def _before_close(self) -> None:
        await self._acks.finish()

    def _final(self, failure: Failure) -> bool:
        if self._is_resuming and failure.code == ErrorNumber.UNKNOWN_SESSION:
            _log.info("the gateway no longer has the session: logging in again")
            self._session_to_resume = None
        return self._is_logging_in and failure.code == ErrorNumber.NOT_LOGGED_IN

    def _on_notification(self, notification: Notification) -> None:
        if notification.id not in self._acks:  # else its ack is under way
            super()._on_notification(notification)

    def _on_session_closed(self, closing: Closing) -> None:
        if closing.code in _FINAL_CLOSINGS:
            self._refusal = RefusedError(closing.text or closing.code, ErrorNumber.FAILED)
        super()._on_session_closed(closing)

    # Internal

    def _remember_session(self) -> None:
        session = self._driver.session if self._driver is not None else None
        if isinstance(session, ClientSession):
            self._session_to_resume = (session.sid, session.resume_secret)
            self.server_public = session.server_public

    async def _ack(self, ids: list[str]) -> None:
        await self.request(control(Op.ACK, fields={"ids": ids}))
        self._acks.forget(ids)
        for each in ids:
            self._inbox.discard(each)
