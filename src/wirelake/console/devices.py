"""Show the devices, and one device: its readings, commands being reassembled, and commands to it.

Past reports come from the tables, which only the admin may see.
"""

from wirelake.console.page import Context, page
from wirelake.gateway.http.errors import ApiError
from wirelake.gateway.http.request_context import RequestContext
from wirelake.lake.query import is_written
from wirelake.lake.tables import DEVICE_COMMANDS, DEVICE_LATEST, READINGS
from wirelake.limits import HTTP_COMMAND_MS, HTTP_COMMAND_MS_MAX
from wirelake.protocols import registry
from wirelake.protocols.protocol import DeviceCodes


async def view(exchange: RequestContext) -> Context:
    return {"data": _data(exchange), "after": exchange.query("after")}


async def view_one(exchange: RequestContext) -> Context:
    gateway, serial = exchange.gateway, exchange.path("serial")
    if gateway.state.devices.find(serial) is None and serial not in gateway.devices.peers:
        raise ApiError(404, f"no device {serial[:64]!r}: register it with wirelake device add")
    return {
        "data": _data(exchange) | {"serial": serial},
        "serial": serial,
        "requests": {
            kind | codes.request_bit: name for codes in device_codes() for kind, name in codes.commands.items()
        },
        "wait_ms": HTTP_COMMAND_MS,
        "wait_ms_max": HTTP_COMMAND_MS_MAX,
    }


def device_codes() -> list[DeviceCodes]:
    """Return the numbers of all protocols that devices speak."""
    return [protocol.device_codes for protocol in registry.all_protocols() if protocol.device_codes is not None]


def device_protocols() -> list[str]:
    """Return the names of the protocols whose identities are devices' serials, earlier names included."""
    return [
        name
        for protocol in registry.all_protocols()
        if protocol.frames_name_devices
        for name in (protocol.name, *protocol.aliases)
    ]


def _data(exchange: RequestContext) -> Context:
    lake = exchange.gateway.folder / "lake"
    tables = [table.name for table in (DEVICE_LATEST, READINGS, DEVICE_COMMANDS) if is_written(lake, table)]
    return {
        "tables": tables if exchange.admin else [],
        "type_names": {kind: name for codes in device_codes() for kind, name in codes.types.items()},
        "command_names": {kind: name for codes in device_codes() for kind, name in codes.commands.items()},
    }


ROUTES = (
    page("/devices", "devices.html", view),
    page("/devices/{serial}", "device.html", view_one),
)
