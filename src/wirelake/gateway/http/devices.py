"""Devices: which serials are known; and commands, each answered with what the device says."""

from msgspec import Struct

from wirelake.gateway.device_commands import DeviceAnswer, NewCommand, command_message, device_answer
from wirelake.gateway.http.errors import ApiError
from wirelake.gateway.http.exchange import Exchange
from wirelake.gateway.http.peer import HttpPeer
from wirelake.gateway.http.route import Access, Parameter, Route
from wirelake.protocols.hextext import parse_hex
from wirelake.protocols.session import Closing


class NewDevice(Struct, forbid_unknown_fields=True):
    serial: str
    type: int = 0
    key: str | None = None  # 16 bytes in hex; its commands are sealed with it


class DeviceRow(Struct):
    """`heard` says whether it spoke lately; commands for it go where it did."""

    serial: str
    type: int
    has_key: bool
    added_at_ms: int
    heard: bool = False
    address: str = ""


class DeviceList(Struct):
    devices: list[DeviceRow]
    next: str | None = None


async def add(exchange: Exchange, new: NewDevice) -> DeviceRow:
    key = None if new.key is None else parse_hex(new.key)
    now_ms = exchange.gateway.now_ms()
    await exchange.gateway.state.devices.add(new.serial, new.type, key, now_ms)
    return DeviceRow(new.serial, new.type, key is not None, now_ms)


async def list_devices(exchange: Exchange, _: None) -> DeviceList:
    after, rows_max, peers = exchange.query("after"), exchange.rows_max, exchange.gateway.devices.peers
    found = [device for device in exchange.gateway.state.devices.list() if device.serial > after][: rows_max + 1]
    rows = []
    for device in found[:rows_max]:
        row = DeviceRow(device.serial, device.type, device.key is not None, device.added_at_ms)
        if device.serial in peers:
            row.heard, row.address = True, peers[device.serial].address
        rows.append(row)
    return DeviceList(rows, rows[-1].serial if len(found) > rows_max else None)


async def remove(exchange: Exchange, _: None) -> None:
    serial = exchange.path("serial")
    commit = exchange.gateway.state.devices.remove(serial)
    if commit is None:
        raise ApiError(404, f"there is no device {serial[:64]!r}")
    peer = exchange.gateway.devices.peers.get(serial)
    if peer is not None:
        peer.end(Closing("device_removed", "this device was removed"))
    await commit


async def command(exchange: Exchange, new: NewCommand) -> DeviceAnswer:
    gateway = exchange.gateway
    serial = exchange.path("serial")
    request = command_message(serial, new, source=exchange.identity, correlation=exchange.id)
    if serial not in gateway.broker.devices:
        known = gateway.state.devices.find(serial) is not None
        text = f"device {serial[:64]!r} has not been heard from" if known else f"there is no device {serial[:64]!r}"
        raise ApiError(409 if known else 404, text, "not_heard" if known else "")
    (answer,) = await HttpPeer(exchange).ask(request, new.wait_ms / 1000)
    said = device_answer(serial, answer)
    if said is None:
        failure = answer.failure
        status = failure.code if failure is not None and 400 <= failure.code < 600 else 504
        raise ApiError(status, failure.text if failure is not None else "no answer")
    return said


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
        summary="The devices, by serial. Never their keys.",
        handle=list_devices,
        gives=DeviceList,
        parameters=(
            Parameter("after", "Only serials after this one."),
            Parameter("limit", "At most so many.", "integer"),
        ),
        example_answer={
            "devices": [
                {
                    "serial": "1234",
                    "type": 6,
                    "has_key": True,
                    "added_at_ms": 1_700_000_000_000,
                    "heard": True,
                    "address": "192.0.2.7:40000",
                }
            ],
            "next": None,
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
        parameters=(Parameter("serial", "Of the device."),),
        refusals=(404,),
    ),
    Route(
        method="POST",
        path="/api/devices/{serial}/commands",
        summary="Send a command to a device, and answer with what it says.",
        handle=command,
        takes=NewCommand,
        gives=DeviceAnswer,
        recorded=True,
        parameters=(Parameter("serial", "Of the device."),),
        refusals=(404, 409, 502, 504),
        example={"type": 130, "data": "0a0b", "wait_ms": 5000},
        example_answer={"serial": "1234", "type": 2, "error": 0, "device_time": 1_700_000_000, "data": "0c0d"},
    ),
)
