"""Devices: which serials are known; and commands, each answered with what the device says."""

from collections.abc import Generator
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct

from wirelake.gateway.devices.broadcast import BroadcastAnswer
from wirelake.gateway.devices.commands import DeviceAnswer, NewCommand, command_message, device_answer
from wirelake.gateway.devices.peer import DevicePeer
from wirelake.gateway.http.errors import ApiError, failed
from wirelake.gateway.http.names import Name
from wirelake.gateway.http.peer import HttpPeer
from wirelake.gateway.http.request_context import RequestContext
from wirelake.gateway.http.route import LIMIT, Access, Parameter, Route
from wirelake.limits import HTTP_NAMES_AT_ONCE, HTTP_ROWS_AT_ONCE
from wirelake.message import COMMAND, DEVICES_SERVICE, EVERY_DEVICE, FailureCode, Kind, Message, Operation
from wirelake.protocols.hextext import parse_hex
from wirelake.protocols.session import Closing
from wirelake.state.records import sort_in_steps

if TYPE_CHECKING:
    from wirelake.gateway.gateway import Gateway


class NewDevice(Struct, forbid_unknown_fields=True):
    serial: Name
    type: Annotated[int, Meta(ge=0, le=255)] = 0
    key: Annotated[str, Meta(pattern="^[0-9a-fA-F]{32}$")] | None = None  # its commands are sealed with it


class DeviceRow(Struct):
    """`heard` says whether it spoke lately; commands for it go where it did. `assembling` counts its commands of which
    packets are missing."""

    serial: str
    type: int
    has_key: bool
    added_at_ms: int
    heard: bool = False
    address: str = ""
    heard_at_ms: int | None = None
    assembling: int = 0


class AssemblingCommand(Struct):
    """A command that is not whole yet. How many packets it has is known once the last one came."""

    command_no: int
    answer: bool
    packets: int
    packets_in_all: int | None
    missing: list[int]  # packet numbers, of those before the highest that came
    bytes: int
    began_at_ms: int
    expires_at_ms: int


class DeviceView(DeviceRow):
    """`added_at_ms` is 0 for one that is not registered, and heard because its protocol's `open` lets anybody in.

    Its telemetry is published on `topic`, where that is not empty.
    """

    topic: str = ""
    under_way: list[AssemblingCommand] = []


class DeviceList(Struct):
    devices: list[DeviceRow]
    next: str | None = None


async def add(exchange: RequestContext, new: NewDevice) -> DeviceRow:
    key = None if new.key is None else parse_hex(new.key)
    now_ms = exchange.gateway.now_ms()
    await exchange.gateway.state.devices.add(new.serial, new.type, key, now_ms)
    return DeviceRow(new.serial, new.type, key is not None, now_ms)


async def list_devices(exchange: RequestContext, _: None) -> DeviceList:
    return await exchange.gateway.jobs.result(exchange.share, _list(exchange, exchange.rows_max))


def _list(exchange: RequestContext, rows_max: int) -> Generator[None, None, DeviceList]:
    after, peers, devices = exchange.query("after"), exchange.gateway.devices.peers, exchange.gateway.state.devices
    serials: list[str] = []
    for place, serial in enumerate(devices.serials()):
        if serial > after:
            serials.append(serial)
        if place % HTTP_NAMES_AT_ONCE == 0:
            yield
    wanted = (yield from sort_in_steps(serials))[: rows_max + 1]
    found = [device for device in map(devices.find, wanted) if device is not None]
    rows = []
    for place, device in enumerate(found[:rows_max]):
        if place % HTTP_ROWS_AT_ONCE == 0:
            yield
        row = DeviceRow(device.serial, device.type, device.key is not None, device.added_at_ms)
        _add_heard(row, exchange.gateway, peers.get(device.serial))
        rows.append(row)
    return DeviceList(rows, rows[-1].serial if len(found) > rows_max else None)


async def show(exchange: RequestContext, _: None) -> DeviceView:
    gateway, serial = exchange.gateway, exchange.path("serial")
    device, peer = gateway.state.devices.find(serial), gateway.devices.peers.get(serial)
    if device is not None:
        view = DeviceView(serial, device.type, device.key is not None, device.added_at_ms)
    elif peer is not None:
        view = DeviceView(serial, peer.device_type, has_key=False, added_at_ms=0)
    else:
        raise _unknown(serial)
    _add_heard(view, gateway, peer)
    if gateway.broker.devices_topic:
        view.topic = f"{gateway.broker.devices_topic}/{serial}"
    if peer is not None:
        assembly_s = gateway.devices.settings.assembly_s
        view.under_way = [
            AssemblingCommand(
                command_no=each.command_no,
                answer=each.answer,
                packets=each.packets,
                packets_in_all=None if each.last is None else each.last + 1,
                missing=list(each.missing),
                bytes=each.bytes,
                began_at_ms=_at_ms(gateway, each.first_at_s),
                expires_at_ms=_at_ms(gateway, each.first_at_s + assembly_s),
            )
            for each in peer.under_way()
        ]
    return view


def _add_heard(row: DeviceRow, gateway: "Gateway", peer: DevicePeer | None) -> None:
    if peer is not None:
        row.heard, row.address, row.assembling = True, peer.address, peer.assembling
        row.heard_at_ms = _at_ms(gateway, peer.last_received_s)


def _at_ms(gateway: "Gateway", moment_s: float) -> int:
    """What the gateway's own clock means, as a time of day."""
    return gateway.now_ms() + round((moment_s - gateway.now_s()) * 1000)


def _unknown(serial: str) -> ApiError:
    return ApiError(404, f"no device {serial[:64]!r}")


async def remove(exchange: RequestContext, _: None) -> None:
    serial = exchange.path("serial")
    commit = exchange.gateway.state.devices.remove(serial)
    if commit is None:
        raise _unknown(serial)
    peer = exchange.gateway.devices.peers.get(serial)
    if peer is not None:
        peer.close(Closing("device_removed", "this device was removed"))
    await commit


async def command(exchange: RequestContext, new: NewCommand) -> DeviceAnswer | BroadcastAnswer:
    gateway = exchange.gateway
    serial = exchange.path("serial")
    if serial == EVERY_DEVICE:  # percent-encoded, which the other route does not match
        return await broadcast(exchange, new)
    request = command_message(serial, new, source=exchange.identity, correlation=exchange.id)
    if serial not in gateway.broker.devices:
        if gateway.state.devices.find(serial) is None:
            raise _unknown(serial)
        raise ApiError(409, f"device {serial[:64]!r} is offline", "not_heard")
    (answer,) = await HttpPeer(exchange).ask(request, new.wait_ms / 1000)
    said = device_answer(serial, answer)
    if said is None:
        failure = answer.failure
        if failure is None or failure.code == FailureCode.TIMEOUT:
            raise ApiError(504, f"device {serial[:64]!r} did not answer within {new.wait_ms} ms")
        raise ApiError(failure.code if 400 <= failure.code < 600 else 504, failure.text)
    return said


async def broadcast(exchange: RequestContext, new: NewCommand) -> BroadcastAnswer:
    request = Message(
        kind=Kind.REQUEST,
        target=Operation(DEVICES_SERVICE, COMMAND, EVERY_DEVICE),
        correlation=exchange.id,
        fields=msgspec.to_builtins(new),
    )
    (answer,) = await HttpPeer(exchange).ask(request, new.wait_ms / 1000)
    if answer.failure is not None:
        raise failed(answer.failure)
    return msgspec.convert(answer.fields, BroadcastAnswer)


_DEVICE: Final[dict[str, Any]] = {
    "serial": "1234",
    "type": 6,
    "has_key": True,
    "added_at_ms": 1_700_000_000_000,
    "heard": True,
    "address": "192.0.2.7:40000",
    "heard_at_ms": 1_700_000_500_000,
    "assembling": 1,
}

ROUTES = (
    Route(
        method="POST",
        path="/api/devices",
        summary="Add a device.",
        handle=add,
        access=Access.ADMIN,
        takes=NewDevice,
        gives=DeviceRow,
        status=201,
        recorded=True,
        secrets=("key",),
        refusals=(409, 507),
        example={"serial": "1234", "type": 6, "key": "000102030405060708090a0b0c0d0e0f"},
        example_answer={"serial": "1234", "type": 6, "has_key": True, "added_at_ms": 1_700_000_000_000},
    ),
    Route(
        method="GET",
        path="/api/devices",
        summary="List the devices by serial, without their keys.",
        handle=list_devices,
        gives=DeviceList,
        parameters=(
            Parameter("after", "Return serials after this one."),
            LIMIT,
        ),
        example_answer={"devices": [_DEVICE], "next": None},
    ),
    Route(
        method="GET",
        path="/api/devices/{serial}",
        summary="Get a device and its commands that are being reassembled.",
        handle=show,
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
    ),
    Route(
        method="DELETE",
        path="/api/devices/{serial}",
        summary="Remove a device.",
        handle=remove,
        access=Access.ADMIN,
        status=204,
        recorded=True,
        parameters=(Parameter("serial", "Serial of the device."),),
    ),
    Route(
        method="POST",
        path="/api/devices/*/commands",
        summary="Send a command to every device and return the responses.",
        handle=broadcast,
        takes=NewCommand,
        gives=BroadcastAnswer,
        recorded=True,
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
    ),
    Route(
        method="POST",
        path="/api/devices/{serial}/commands",
        summary="Send a command to a device and return its response.",
        handle=command,
        takes=NewCommand,
        gives=DeviceAnswer,
        recorded=True,
        parameters=(Parameter("serial", "Serial of the device."),),
        refusals=(409, 501, 502, 504),
        example={"type": 130, "data": "0a0b", "wait_ms": 5000},
        example_answer={"serial": "1234", "type": 2, "error": 0, "device_time": 1_700_000_000, "data": "0c0d"},
    ),
)
