"""What clients have in common that ask services and provide them: sisnet and esnp."""

import ssl
import time
from collections.abc import Callable
from typing import Any, Final

from msgspec.structs import replace

from wirelake.backoff import Backoff
from wirelake.clients.inbox import Inbox
from wirelake.clients.notification import Notification
from wirelake.clients.serving import Handler, ProvidedServices
from wirelake.clients.topics import TopicClient
from wirelake.clients.values import value_of
from wirelake.errors import ClientError, StateError
from wirelake.limits import (
    CLIENT_ANSWER_PACKETS_MAX,
    CLIENT_ANSWER_S,
    CLIENT_CONNECT_S,
    CLIENT_INBOX_MAX,
    CLIENT_INBOX_OVERDRAFT,
    CLIENT_READ_BYTES,
)
from wirelake.message import Credentials, Failure, Kind, Message, Op, Topic, control
from wirelake.protocols.frame import Sender

_WILL_PASS: Final = ("try again", "shutting down", "in time")  # in the reason of a refused login
_PUSHES_PER_READ_MAX: Final = CLIENT_READ_BYTES // 8  # no message of use is shorter


class ServiceClient(TopicClient):
    """What is pushed counts as delivered some time after it was written to us, whatever became of it here.

    So nothing is left out: with a full inbox nothing more is read, and after `CLIENT_INBOX_OVERDRAFT` times that much
    not even for an answer.
    """

    def __init__(
        self,
        host: str,
        port: int,
        user: str,
        token: str,
        *,
        tls: ssl.SSLContext | None = None,
        answer_s: float = CLIENT_ANSWER_S,
        connect_s: float | None = CLIENT_CONNECT_S,
        inbox_max: int = CLIENT_INBOX_MAX,
        backoff: Backoff | None = None,
        clock: Callable[[], float] = time.monotonic,
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
        self._pushes_max = inbox_max * CLIENT_INBOX_OVERDRAFT + _PUSHES_PER_READ_MAX
        self._inbox: Inbox[Notification] = Inbox(self._pushes_max)
        self._credentials = Credentials(user, token)
        self._logging_in = False
        self._services = ProvidedServices(self._say)
        self._packets: dict[str, list[Message]] = {}

    # For users

    async def publish(self, topic: str, content: bytes | str, *, type: int = 0) -> str:  # noqa: A002 (its name)
        """A durable topic: on disk when this returns; answers its id. A live name: answers nothing."""
        return await self._publish(topic, content, type)

    async def register(self, service: str, handler: Handler, *, group: str = "") -> None:
        """Provide a service; with a group, also for requests that name it.

        The handler gets a `ServiceRequest` and returns a value, or `Packets` of several.
        ServiceError answers with its reason; any other exception is a failure of the service.
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
        """Answered by the gateway."""
        await self.request(control(Op.PING))

    async def close(self) -> None:
        await super().close()
        await self._services.close()

    # For StreamClient

    def _login(self) -> Message:
        self._logging_in = True
        return control(Op.LOGIN, credentials=self._credentials)

    async def _restore(self) -> None:
        self._logging_in = False
        for service, group in self._services.names:
            await self._ask(_registration(service, group))
        await self._subscribe_again()

    def _final(self, failure: Failure) -> bool:
        return self._logging_in and not any(words in failure.text for words in _WILL_PASS)

    def _check(self, message: Message) -> None:
        self.protocol.from_message(message, Sender.CLIENT).encode()

    def _heard(self, message: Message) -> None:
        if message.kind is Kind.RESPONSE and message.more:
            self._gather(message)
        elif message.kind is not Kind.NOTIFICATION or isinstance(message.target, Topic):
            super()._heard(message)

    def _told(self, message: Message) -> None:
        if message.kind in {Kind.REQUEST, Kind.EVENT}:
            self._services.asked(message)
        else:
            super()._told(message)

    @property
    def _waiting(self) -> int:
        """What was pushed and is not taken yet."""
        return len(self._inbox)

    @property
    def _room(self) -> bool:
        return self._waiting < self._inbox_max * (CLIENT_INBOX_OVERDRAFT if self._answers else 1)

    # For a protocol's client

    async def _ask_packets(self, message: Message) -> list[Any]:
        """The value of each packet of the answer."""
        message = replace(message, correlation=message.correlation or self._new_correlation())
        gathered = self._packets[message.correlation] = []
        try:
            last = await self.request(message)
            return [value_of(packet) for packet in (*gathered, last)]
        finally:
            del self._packets[message.correlation]

    def _gather(self, message: Message) -> None:
        packets = self._packets.get(message.correlation)
        answer = self._answers.get(message.correlation)
        if packets is None or answer is None or answer.done():
            return
        packets.append(message)
        if len(packets) >= CLIENT_ANSWER_PACKETS_MAX:
            answer.set_exception(ClientError(f"the response has more than {CLIENT_ANSWER_PACKETS_MAX} packets"))

    def _say(self, message: Message) -> None:
        """What is not answered. StateError where there is no connection."""
        if self._pump is None or self._pump.closing is not None:
            raise StateError("the connection is gone")
        self._pump.say(message)


def _registration(service: str, group: str) -> Message:
    return control(Op.REGISTER, fields={"service": service, "group": group} if group else {"service": service})
