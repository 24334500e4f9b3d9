"""The devices; and one of them: its readings, its packets that wait for others, and commands to it.

What it reported in the past is in the tables, which are the admin's to see.
"""

from wirelake.console.page import Context, page
from wirelake.gateway.http.errors import ApiError
from wirelake.gateway.http.exchange import Exchange
from wirelake.lake.query import is_written
from wirelake.lake.tables import DEVICE_COMMANDS, DEVICE_LATEST, READINGS
from wirelake.limits import HTTP_COMMAND_MS, HTTP_COMMAND_MS_MAX
from wirelake.protocols.apostol.opcodes import COMMAND_NAMES, DEVICE_TYPE_NAMES, REQUEST_BIT


async def view(exchange: Exchange) -> Context:
    return {"data": _data(exchange), "after": exchange.query("after")}


async def view_one(exchange: Exchange) -> Context:
    gateway, serial = exchange.gateway, exchange.path("serial")
    if gateway.state.devices.find(serial) is None and serial not in gateway.devices.peers:
        raise ApiError(404, f"there is no device {serial[:64]!r}")
    return {
        "data": _data(exchange) | {"serial": serial},
        "serial": serial,
        "requests": {kind | REQUEST_BIT: name for kind, name in COMMAND_NAMES.items()},
        "wait_ms": HTTP_COMMAND_MS,
        "wait_ms_max": HTTP_COMMAND_MS_MAX,
    }


def _data(exchange: Exchange) -> Context:
    lake = exchange.gateway.folder / "lake"
    tables = [table.name for table in (DEVICE_LATEST, READINGS, DEVICE_COMMANDS) if is_written(lake, table)]
    return {
        "tables": tables if exchange.admin else [],
        "type_names": DEVICE_TYPE_NAMES,
        "command_names": COMMAND_NAMES,
    }


ROUTES = (
    page("/devices", "devices.html", view),
    page("/devices/{serial}", "device.html", view_one),
)
