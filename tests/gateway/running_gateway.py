"""A real gateway in the test's own event loop, with only the listeners that the test names, on free ports."""

import asyncio
import functools
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from wirelake.address import Address
from wirelake.clock import SteadyClock
from wirelake.config import default_settings, settings_type
from wirelake.console.pages import console_pages
from wirelake.gateway.gateway import Gateway
from wirelake.gateway.transport.tcp import TcpListener
from wirelake.message import COMMAND, DEVICES_SERVICE, EVERY_DEVICE, Device, Kind, Message, Operation
from wirelake.protocols import registry
from wirelake.protocols.text import read_json
from wirelake.state.notifications import StoredNotification
from wirelake.state.tokens import hash_token

HOST = "127.0.0.1"
WAIT_S = 60.0  # for what should arrive at once; only a failing test waits so long

hashed = functools.cache(hash_token)  # slow by design, and the tests use few tokens


class Requester:
    """Send requests to devices and services as a peer of the broker, with the admin's rights; receive the answers."""

    protocol = "test"
    identity = "asker"
    sends_acks = False
    takes_commands = False
    takes_broadcasts = False
    is_admin = True
    address = ""
    pulls_backlog = False
    encoding_key = None
    is_congested = False
    bytes_in = bytes_written = bytes_drained = 0

    def __init__(self, gateway: Gateway) -> None:
        self.id = gateway.sessions.new_id()
        self._gateway = gateway
        self._answers: dict[str, asyncio.Future[Message]] = {}

    def encode_notification(self, message: Message) -> bytes:
        raise NotImplementedError

    def write(self, data: bytes) -> None:
        raise NotImplementedError

    def close(self, closing: object) -> None:
        raise NotImplementedError

    def send(self, message: Message) -> None:
        self._answers[message.correlation].set_result(message)

    async def ask(self, message: Message) -> Message:
        correlation = str(len(self._answers))
        answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._answers[correlation] = answer
        gateway = self._gateway
        request = msgspec.structs.replace(message, correlation=correlation)
        gateway.broker.handle(self, request, gateway.now_s(), gateway.now_ms())
        gateway.flush_soon()
        async with asyncio.timeout(WAIT_S):
            return await answer


class Running:
    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self._requester = Requester(gateway)

    def port(self, listener: str) -> int:
        return self.gateway.listeners[listener].address.port

    async def open_listener(self, setting: str, port: int) -> None:
        """Open one more listener of a running gateway."""
        ((protocol, carriers),) = [
            (protocol, protocol.listeners[setting])
            for protocol in registry.all_protocols()
            if setting in protocol.listeners
        ]
        listener = TcpListener(self.gateway.transport, protocol, setting, Address(HOST, port), carriers[0])
        await listener.open(None)
        self.gateway.listeners[setting] = listener

    async def add_identity(self, name: str, token: str, *roles: str, at_once: bool = True) -> None:
        """Add an identity; with `at_once`, its first login need not wait for the slow check of the token."""
        identities = self.gateway.state.identities
        await identities.add(name, hashed(token), self.gateway.now_ms(), roles)
        identity = identities.find(name)
        if at_once and identity is not None:
            identities.remember_verified(name, identity.tokens[0], token)

    async def assign(self, identity: str, *roles: str) -> None:
        """Give an identity these roles instead of those it had."""
        commit = self.gateway.roles.assign(identity, roles)
        assert commit is not None
        await commit

    async def add_device(self, serial: str, type: int = 0, key: bytes | None = None) -> None:  # noqa: A002
        await self.gateway.state.devices.add(serial, type, key, self.gateway.now_ms())

    async def publish(self, topic: str, content: bytes | str, type: int = 0) -> str:  # noqa: A002
        """Publish a notification, wait until it is durable, and return its id."""
        payload = content.encode() if isinstance(content, str) else content
        message = Message(kind=Kind.NOTIFICATION, payload=payload, type=type)
        published, commit = self.gateway.broker.publish(topic, message, "test", self.gateway.now_ms())
        self.gateway.flush_soon()
        if commit is not None:
            await commit
        return published.id

    async def command(
        self, serial: str, command_type: int, data: bytes = b"", *, device_type: int = 0, **headers: Any
    ) -> Message:
        """Send a command to a device, and return its answer."""
        target = Device(serial, device_type)
        fields = {"command_type": command_type}
        return await self._requester.ask(
            Message(kind=Kind.REQUEST, target=target, fields=fields, payload=data, headers=headers)
        )

    async def broadcast(self, command_type: int, data: bytes = b"", wait_ms: int = 10_000) -> dict[str, Any]:
        """Send a command to all devices, and return their answers."""
        fields = {"type": command_type, "data": data.hex(), "wait_ms": wait_ms}
        target = Operation(DEVICES_SERVICE, COMMAND, EVERY_DEVICE)
        return (await self._requester.ask(Message(kind=Kind.REQUEST, target=target, fields=fields))).fields

    def records(self, event: str = "", **columns: str) -> list[dict[str, Any]]:
        """Return the durable records of the log, with their notes parsed."""
        rows = [row for batch in self.gateway.log.read() for row in batch.to_pylist()]
        found = [row for row in rows if not event or row["event"] == event]
        found = [row for row in found if all(row[name] == value for name, value in columns.items())]
        return [{**row, "note": read_json(row["note"].encode()) if row["note"] else {}} for row in found]

    async def undecodable_records(self, count: int = 1, **columns: str) -> list[dict[str, Any]]:
        """Return the records of bytes that could not be split or decoded, once there are so many."""
        async with asyncio.timeout(WAIT_S):
            while (
                len(found := [row for kind in ("quarantine", "fault") for row in self.records(kind, **columns)]) < count
            ):
                await asyncio.sleep(0.005)
        return found

    async def recorded(self, event: str, count: int = 1, **columns: str) -> list[dict[str, Any]]:
        """Return the records once there are so many."""
        async with asyncio.timeout(WAIT_S):
            while len(found := self.records(event, **columns)) < count:
                await asyncio.sleep(0.01)
        return found

    def waiting(self, identity: str) -> list[StoredNotification]:
        """Return the notifications that the identity has not acked."""
        return self.gateway.state.topics.backlog(identity)


@asynccontextmanager
async def running_gateway(
    folder: Path,
    *listeners: str,
    ports: Mapping[str, int] | None = None,
    identities: Iterable[tuple[str, ...]] = (),
    devices: Iterable[tuple[str, int, bytes | None]] = (),
    accept_loss: bool = False,
    clock: SteadyClock | None = None,
    **settings: Any,
) -> AsyncIterator[Running]:
    """Run a gateway with these sections of wirelake.toml; the folder may have data of an earlier gateway.

    An identity is a name, a token and its roles.
    """
    listen = dict.fromkeys(default_settings().listen.__struct_fields__, "off")
    listen |= {listener: f"{HOST}:{(ports or {}).get(listener, 0)}" for listener in listeners}
    chosen = msgspec.convert({"data": str(folder / "data"), "listen": listen, **settings}, settings_type())
    gateway = Gateway(chosen, console_pages, accept_loss=accept_loss, clock=clock)
    await gateway.open()
    try:
        running = Running(gateway)
        for name, token, *roles in identities:
            if gateway.state.identities.find(name) is None:
                await running.add_identity(name, token, *roles)
        for serial, device_type, key in devices:
            if gateway.state.devices.find(serial) is None:
                await running.add_device(serial, device_type, key)
        yield running
    finally:
        await gateway.close()


async def until(condition: Any) -> None:
    """Wait until a condition is true."""
    async with asyncio.timeout(WAIT_S):
        while not condition():
            await asyncio.sleep(0.005)
