"""A real gateway in the test's own event loop, with only the doors that are asked for, on ports of its own."""

import asyncio
import functools
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from wirelake.address import Address
from wirelake.config import default_settings, settings_type
from wirelake.console.pages import PAGES
from wirelake.gateway.gateway import Gateway
from wirelake.gateway.transport.tcp import TcpListener
from wirelake.message import COMMAND, DEVICES_SERVICE, EVERY_DEVICE, Device, Kind, Message, Operation
from wirelake.protocols import registry
from wirelake.protocols.jsontext import read_json
from wirelake.state.identities import hash_token
from wirelake.state.notifications import StoredNotification

HOST = "127.0.0.1"
WAIT_S = 60.0  # what should come at once; only a failing test waits so long

hashed = functools.cache(hash_token)  # slow by design, and the tests use few tokens


class Asker:
    """A peer of the broker's own: asks devices and services, and gets the answers."""

    protocol = "test"
    identity = "asker"
    sends_acks = False
    pulls_backlog = False
    encoding_key = None
    is_congested = False
    bytes_in = bytes_written = bytes_drained = 0

    def __init__(self, gateway: Gateway) -> None:
        self.id = gateway.new_id()
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
        asked = msgspec.structs.replace(message, correlation=correlation)
        gateway.broker.handle(self, asked, gateway.now_s(), gateway.now_ms())
        gateway.flush_soon()
        async with asyncio.timeout(WAIT_S):
            return await answer


class Running:
    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self._asker = Asker(gateway)

    def port(self, door: str) -> int:
        return self.gateway.listeners[door].address.port

    async def open_door(self, setting: str, port: int) -> None:
        """One more, when everything behind it is there."""
        ((protocol, carriers),) = [
            (protocol, protocol.listeners[setting])
            for protocol in registry.all_protocols()
            if setting in protocol.listeners
        ]
        door = TcpListener(self.gateway, protocol, setting, Address(HOST, port), carriers[0])
        await door.open(None)
        self.gateway.listeners[setting] = door

    async def add_identity(self, name: str, token: str, *, at_once: bool = True) -> None:
        """`at_once`: the first login need not wait for the slow check of the token."""
        identities = self.gateway.state.identities
        await identities.add(name, hashed(token), self.gateway.now_ms())
        identity = identities.find(name)
        if at_once and identity is not None:
            identities.remember_verified(identity, token)

    async def add_device(self, serial: str, type: int = 0, key: bytes | None = None) -> None:  # noqa: A002
        await self.gateway.state.devices.add(serial, type, key, self.gateway.now_ms())

    async def publish(self, topic: str, content: bytes | str, type: int = 0) -> str:  # noqa: A002
        """Durable when this returns; answers its id."""
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
        """Ask a device."""
        target = Device(serial, device_type)
        fields = {"command_type": command_type}
        return await self._asker.ask(
            Message(kind=Kind.REQUEST, target=target, fields=fields, payload=data, headers=headers)
        )

    async def broadcast(self, command_type: int, data: bytes = b"", wait_ms: int = 10_000) -> dict[str, Any]:
        """Ask all devices."""
        fields = {"type": command_type, "data": data.hex(), "wait_ms": wait_ms}
        target = Operation(DEVICES_SERVICE, COMMAND, EVERY_DEVICE)
        return (await self._asker.ask(Message(kind=Kind.REQUEST, target=target, fields=fields))).fields

    def records(self, event: str = "", **columns: str) -> list[dict[str, Any]]:
        """What is durable in the log, with the notes read."""
        rows = [row for batch in self.gateway.log.read() for row in batch.to_pylist()]
        found = [row for row in rows if not event or row["event"] == event]
        found = [row for row in found if all(row[name] == value for name, value in columns.items())]
        return [{**row, "note": read_json(row["note"].encode()) if row["note"] else {}} for row in found]

    async def unread(self, count: int = 1, **columns: str) -> list[dict[str, Any]]:
        """So many records of bytes that could not be read: cut into frames, or decoded."""
        async with asyncio.timeout(WAIT_S):
            while (
                len(found := [row for kind in ("quarantine", "fault") for row in self.records(kind, **columns)]) < count
            ):
                await asyncio.sleep(0.005)
        return found

    async def recorded(self, event: str, count: int = 1, **columns: str) -> list[dict[str, Any]]:
        """The records, once there are so many."""
        async with asyncio.timeout(WAIT_S):
            while len(found := self.records(event, **columns)) < count:
                await asyncio.sleep(0.01)
        return found

    def waiting(self, identity: str) -> list[StoredNotification]:
        """What the identity has not acked."""
        return self.gateway.state.topics.backlog(identity)


@asynccontextmanager
async def running_gateway(
    folder: Path,
    *doors: str,
    ports: Mapping[str, int] | None = None,
    identities: Iterable[tuple[str, str]] = (),
    devices: Iterable[tuple[str, int, bytes | None]] = (),
    accept_loss: bool = False,
    **settings: Any,
) -> AsyncIterator[Running]:
    """`settings` are sections of wirelake.toml. The data folder may be that of a gateway that ran before."""
    listen = dict.fromkeys(default_settings().listen.__struct_fields__, "off")
    listen |= {door: f"{HOST}:{(ports or {}).get(door, 0)}" for door in doors}
    chosen = msgspec.convert({"data": str(folder / "data"), "listen": listen, **settings}, settings_type())
    gateway = Gateway(chosen, PAGES, accept_loss=accept_loss)
    await gateway.open()
    try:
        running = Running(gateway)
        for name, token in identities:
            if gateway.state.identities.find(name) is None:
                await running.add_identity(name, token)
        for serial, device_type, key in devices:
            if gateway.state.devices.find(serial) is None:
                await running.add_device(serial, device_type, key)
        yield running
    finally:
        await gateway.close()


async def until(condition: Any) -> None:
    """A condition that becomes true soon."""
    async with asyncio.timeout(WAIT_S):
        while not condition():
            await asyncio.sleep(0.005)
