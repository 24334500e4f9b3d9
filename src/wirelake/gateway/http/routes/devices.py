"""Manage devices, and send commands to them. A command returns the device's response."""

from collections.abc import Callable, Generator
from itertools import chain
from typing import Annotated, Any, Final, TypeVar

import msgspec
from msgspec import Meta, Struct

from wirelake.broker.devices import LatestReport
from wirelake.errors import InputError
from wirelake.gateway.devices.broadcast import BroadcastAnswer
from wirelake.gateway.devices.commands import DeviceAnswer, NewCommand, command_message, device_answer
from wirelake.gateway.devices.driver import DeviceDriver
from wirelake.gateway.devices.sessions import DeviceSessions
from wirelake.gateway.http.bodies import Name
from wirelake.gateway.http.errors import ApiError, service_error
from wirelake.gateway.http.peer import BrokerClient
from wirelake.gateway.http.request_context import RequestContext
from wirelake.gateway.http.route import LIMIT, Access, BoundRoute, Parameter, Route
from wirelake.gateway.jobs import SlicedJobRunner
from wirelake.gateway.transport.driver import GatewayDriver
from wirelake.limits import HTTP_NAMES_AT_ONCE, HTTP_ROWS_AT_ONCE
from wirelake.message import COMMAND, DEVICES_SERVICE, EVERY_DEVICE, FailureCode, Kind, Message, Operation
from wirelake.protocols import registry
from wirelake.protocols.readings import named_readings, typed_readings
from wirelake.protocols.session import Closing
from wirelake.protocols.text import parse_hex
from wirelake.roles import WILDCARD, Action
from wirelake.state.devices import DeviceRegistry
from wirelake.state.records import sort_in_steps


class NewDevice(Struct, forbid_unknown_fields=True):
    serial: Name
    type: Annotated[int, Meta(ge=0, le=255)] = 0
    key: Annotated[str, Meta(pattern="^[0-9a-fA-F]{32}$")] | None = None  # seals its commands


class NewestReading(Struct):
    """The newest value of a reading. `type` is its number, in a protocol that numbers readings."""

    name: str
    unit: str
    value: float
    type: int | None = None


class DeviceRow(Struct):
    """A device that is registered, or that reported since the gateway started.

    `heard` says whether it is online, at `address`; `takes_commands`, whether commands can be sent to it now;
    `heard_at_ms`, when it last sent something. `added_at_ms` is 0 if it is not registered. `assembling` counts its
    commands with missing packets.
    """

    serial: str
    type: int
    has_key: bool
    added_at_ms: int
    heard: bool = False
    address: str = ""
    heard_at_ms: int | None = None
    assembling: int = 0
    protocol: str = ""
    takes_commands: bool = False
    readings: list[NewestReading] = []


class AssemblingCommand(Struct):
    """A command with missing packets. The number of its packets is known once the last one has arrived."""

    command_no: int
    answer: bool
    packets: int
    packets_in_all: int | None
    missing: list[int]  # packet numbers below the highest received one
    bytes: int
    began_at_ms: int
    expires_at_ms: int


class DeviceView(DeviceRow):
    """Its telemetry is published on `topic`, unless that is empty."""

    topic: str = ""
    under_way: list[AssemblingCommand] = []


class DeviceList(Struct):
    devices: list[DeviceRow]
    next: str | None = None


_Row = TypeVar("_Row", bound=DeviceRow)


class DeviceRoutes:
    def __init__(
        self,
        client: BrokerClient,
        registry: DeviceRegistry,
        sessions: DeviceSessions,
        jobs: SlicedJobRunner,
        now_s: Callable[[], float],
        now_ms: Callable[[], int],
    ) -> None:
        self._client = client
        self._registry = registry
        self._sessions = sessions
        self._jobs = jobs
        self._now_s = now_s
        self._now_ms = now_ms

    def routes(self) -> tuple[BoundRoute, ...]:
        return (
            ADD.bind(self.add),
            LIST.bind(self.list_devices),
            SHOW.bind(self.show),
            REMOVE.bind(self.remove),
            BROADCAST.bind(self.broadcast),
            COMMAND_DEVICE.bind(self.command),
        )

    async def add(self, context: RequestContext, new: NewDevice) -> DeviceRow:
        key = None if new.key is None else parse_hex(new.key)
        context.audited |= {"type": new.type, "has_key": key is not None}
        now_ms = self._now_ms()
        await self._registry.add(new.serial, new.type, key, now_ms)
        return DeviceRow(new.serial, new.type, key is not None, now_ms)

    async def list_devices(self, context: RequestContext, _: None) -> DeviceList:
        return await self._jobs.result(context.share, self._list(context, context.rows_max))

    def _list(self, context: RequestContext, rows_max: int) -> Generator[None, None, DeviceList]:
        registry, latest = self._registry, self._client.broker.devices.latest
        after, rights = context.query("after"), context.rights
        serials: list[str] = []
        unregistered = (serial for serial in list(latest) if registry.find(serial) is None)
        for place, serial in enumerate(chain(registry.serials(), unregistered)):
            if serial > after and rights.sees(f"devices/{serial}"):
                serials.append(serial)
            if place % HTTP_NAMES_AT_ONCE == 0:
                yield
        wanted = (yield from sort_in_steps(serials))[: rows_max + 1]
        rows = []
        for place, serial in enumerate(wanted[:rows_max]):
            if place % HTTP_ROWS_AT_ONCE == 0:
                yield
            row = self._row(DeviceRow, serial)
            if row is not None:  # it was not removed meanwhile
                rows.append(row)
        return DeviceList(rows, wanted[rows_max - 1] if len(wanted) > rows_max else None)

    async def show(self, context: RequestContext, _: None) -> DeviceView:
        serial = context.path("serial")
        self._client.authorize(context, Action.SEE, f"devices/{serial}")
        peer = self._sessions.peers.get(serial)
        view = self._row(DeviceView, serial)
        if view is None:
            raise _unknown(serial)
        topic = self._client.broker.devices_topic
        if topic:
            view.topic = f"{topic}/{serial}"
        if peer is not None:
            assembly_s = peer.assembly_s
            view.under_way = [
                AssemblingCommand(
                    command_no=each.command_no,
                    answer=each.answer,
                    packets=each.packets,
                    packets_in_all=None if each.last is None else each.last + 1,
                    missing=list(each.missing),
                    bytes=each.bytes,
                    began_at_ms=self._wall_ms(each.first_at_s),
                    expires_at_ms=self._wall_ms(each.first_at_s + assembly_s),
                )
                for each in peer.under_way()
            ]
        return view

    def _row(self, kind: type[_Row], serial: str) -> _Row | None:
        """Return a device; None if it is not registered, not online, and did not report."""
        devices = self._client.broker.devices
        device, latest, peer = self._registry.find(serial), devices.latest.get(serial), devices.find(serial)
        if device is None and latest is None and serial not in devices:
            return None
        row = kind(serial, 0, has_key=False, added_at_ms=0)
        if device is not None:
            row.type, row.has_key, row.added_at_ms = device.type, device.key is not None, device.added_at_ms
        if latest is not None:
            row.protocol, row.heard_at_ms = latest.protocol, latest.at_ms
            row.readings = _newest(latest)
        if isinstance(peer, GatewayDriver):
            row.heard, row.address, row.protocol = True, peer.address, peer.protocol
            row.takes_commands = peer.takes_commands
            row.heard_at_ms = self._wall_ms(peer.last_received_s)
        if isinstance(peer, DeviceDriver):
            row.assembling = peer.assembling
            if device is None:
                row.type = peer.device_type
        return row

    def _wall_ms(self, at_s: float) -> int:
        """Convert a time of the event loop's clock to wall time."""
        return self._now_ms() + round((at_s - self._now_s()) * 1000)

    async def remove(self, context: RequestContext, _: None) -> None:
        serial = context.path("serial")
        commit = self._registry.remove(serial)
        if commit is None:
            raise _unknown(serial)
        peer = self._sessions.peers.get(serial)
        if peer is not None:
            peer.close(Closing("device_removed", "this device was removed"))
        self._client.broker.devices.forget(serial)
        await commit

    async def command(self, context: RequestContext, new: NewCommand) -> DeviceAnswer | BroadcastAnswer:
        serial = context.path("serial")
        if serial == EVERY_DEVICE:  # percent-encoded, which the route of broadcasts does not match
            return await self.broadcast(context, new)
        self._client.authorize(context, Action.COMMAND, serial)
        request = command_message(serial, new, source=context.identity, correlation=context.id)
        devices = self._client.broker.devices
        if devices.find(serial) is None:
            if self._registry.find(serial) is None and serial not in devices.latest:
                raise _unknown(serial)
            raise ApiError(409, f"device {serial[:64]!r} is offline", "not_heard")
        (response,) = await self._client.request(context, request, new.wait_ms / 1000)
        answer = device_answer(serial, response)
        if answer is None:
            failure = response.failure
            if failure is None or failure.code == FailureCode.TIMEOUT:
                raise ApiError(504, f"device {serial[:64]!r} did not answer within {new.wait_ms} ms")
            raise ApiError(failure.code if 400 <= failure.code < 600 else 504, failure.text)
        return answer

    async def broadcast(self, context: RequestContext, new: NewCommand) -> BroadcastAnswer:
        if not context.rights.allows(Action.COMMAND, WILDCARD):
            raise self._client.broker.access.denied(context, Action.COMMAND, EVERY_DEVICE)
        request = Message(
            kind=Kind.REQUEST,
            target=Operation(DEVICES_SERVICE, COMMAND, EVERY_DEVICE),
            correlation=context.id,
            fields=msgspec.to_builtins(new),
        )
        (response,) = await self._client.request(context, request, new.wait_ms / 1000)
        if response.failure is not None:
            raise service_error(response.failure)
        return msgspec.convert(response.fields, BroadcastAnswer)


def _newest(latest: LatestReport) -> list[NewestReading]:
    try:
        protocol = registry.get(latest.protocol)
    except InputError:
        return []
    if protocol.device_codes is not None:
        found = typed_readings(protocol, [(kind, latest.typed[kind].get("value")) for kind in sorted(latest.typed)])
    else:
        found = named_readings(protocol, latest.fields, latest.units)
    return [NewestReading(each.name, each.unit, each.value, each.type) for each in found]


def _unknown(serial: str) -> ApiError:
    return ApiError(404, f"no device {serial[:64]!r}")


_DEVICE: Final[dict[str, Any]] = {
    "serial": "1234",
    "type": 6,
    "has_key": True,
    "added_at_ms": 1_700_000_000_000,
    "heard": True,
    "address": "192.0.2.7:40000",
    "heard_at_ms": 1_700_000_500_000,
    "assembling": 1,
    "protocol": "meter",
    "takes_commands": True,
    "readings": [{"name": "voltage", "unit": "V", "value": 230.5, "type": 1}],
}

ADD: Final = Route(
    method="POST",
    path="/api/devices",
    operation_id="devices.add",
    summary="Add a device.",
    access=Access.ADMIN,
    takes=NewDevice,
    gives=DeviceRow,
    status=201,
    is_recorded=True,
    audit="device.add",
    audit_target="serial",
    secrets=("key",),
    refusals=(409, 507),
    example={"serial": "1234", "type": 6, "key": "000102030405060708090a0b0c0d0e0f"},
    example_answer={"serial": "1234", "type": 6, "has_key": True, "added_at_ms": 1_700_000_000_000},
)

LIST: Final = Route(
    method="GET",
    path="/api/devices",
    operation_id="devices.list_devices",
    summary="List the devices that one may see, registered or reporting, by serial, without their keys.",
    gives=DeviceList,
    parameters=(
        Parameter("after", "Return serials after this one."),
        LIMIT,
    ),
    example_answer={"devices": [_DEVICE], "next": None},
)

SHOW: Final = Route(
    method="GET",
    path="/api/devices/{serial}",
    operation_id="devices.show",
    summary="Get a device and its commands that are being reassembled.",
    gives=DeviceView,
    parameters=(Parameter("serial", "Serial of the device."),),
    example_answer=_DEVICE
    | {
        "topic": "@devices/1234",
        "under_way": [
            {
                "command_no": 7,
                "answer": False,
                "packets": 2,
                "packets_in_all": 4,
                "missing": [1, 2],
                "bytes": 400,
                "began_at_ms": 1_700_000_500_000,
                "expires_at_ms": 1_700_000_530_000,
            }
        ],
    },
)

REMOVE: Final = Route(
    method="DELETE",
    path="/api/devices/{serial}",
    operation_id="devices.remove",
    summary="Remove a device.",
    access=Access.ADMIN,
    status=204,
    is_recorded=True,
    audit="device.remove",
    audit_target="serial",
    parameters=(Parameter("serial", "Serial of the device."),),
)

BROADCAST: Final = Route(
    method="POST",
    path="/api/devices/*/commands",
    operation_id="devices.broadcast",
    summary="Send a command to every device and return the responses.",
    takes=NewCommand,
    gives=BroadcastAnswer,
    is_recorded=True,
    refusals=(501, 504),
    example={"type": 130, "data": "0a0b", "wait_ms": 5000},
    example_answer={
        "devices": 3,
        "receipts": 2,
        "answered": 1,
        "omitted": 0,
        "answers": [{"serial": "1234", "type": 2, "error": 0, "device_time": 1_700_000_000, "data": "0c0d"}],
        "unanswered": [
            {"serial": "1235", "receipt": True, "reason": "timeout"},
            {"serial": "1236", "receipt": False, "reason": "not heard from"},
        ],
    },
)

COMMAND_DEVICE: Final = Route(
    method="POST",
    path="/api/devices/{serial}/commands",
    operation_id="devices.command",
    summary="Send a command to a device and return its response.",
    takes=NewCommand,
    gives=DeviceAnswer,
    is_recorded=True,
    parameters=(Parameter("serial", "Serial of the device."),),
    refusals=(409, 501, 502, 504),
    example={"type": 130, "data": "0a0b", "wait_ms": 5000},
    example_answer={"serial": "1234", "type": 2, "error": 0, "device_time": 1_700_000_000, "data": "0c0d"},
)

ROUTES: Final = (ADD, LIST, SHOW, REMOVE, BROADCAST, COMMAND_DEVICE)
