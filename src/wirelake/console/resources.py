"""Show the sessions, the topics and the devices, and one topic or device.

Past reports of devices come from the tables, which only the admin may see.
"""

from collections.abc import Callable
from typing import Final

from wirelake.broker.devices import Devices
from wirelake.broker.request_fields import check_topic
from wirelake.config import Settings
from wirelake.console.page import PageServer, Values, page_route
from wirelake.errors import InputError
from wirelake.gateway.http.errors import ApiError
from wirelake.gateway.http.request_context import RequestContext
from wirelake.gateway.http.route import BoundRoute
from wirelake.lake.store import Store
from wirelake.lake.tables import DEVICE_COMMANDS, DEVICE_LATEST, NOTIFICATIONS, READINGS
from wirelake.lake.views import is_written
from wirelake.limits import HTTP_COMMAND_MS, HTTP_COMMAND_MS_MAX
from wirelake.message import Topic
from wirelake.protocols import registry
from wirelake.protocols.protocol import DeviceCodes
from wirelake.state.store import StateStore


class ResourcePages:
    def __init__(
        self,
        server: PageServer,
        settings: Callable[[], Settings],
        state: StateStore,
        devices: Devices,
        lake: Store,
    ) -> None:
        self._server = server
        self._settings = settings
        self._state = state
        self._devices = devices
        self._lake = lake

    def routes(self) -> tuple[BoundRoute, ...]:
        bind = self._server.bind
        return (
            bind(SESSIONS, "sessions.html", self.sessions),
            bind(TOPICS, "topics.html", self.topics),
            bind(TOPIC, "topic.html", self.topic),
            bind(DEVICES, "devices.html", self.devices),
            bind(DEVICE, "device.html", self.device),
        )

    async def sessions(self, context: RequestContext) -> Values:
        return {
            "data": {
                "pending_bytes_max": self._settings().limits.pending_bytes,
                "device_protocols": device_protocols(),
            },
            "protocols": [*(protocol.name for protocol in registry.all_protocols()), "http"],
            "protocol": context.query("protocol"),
            "wanted": context.query("identity"),
        }

    async def topics(self, context: RequestContext) -> Values:
        return {"prefix": context.query("prefix")}

    async def topic(self, context: RequestContext) -> Values:
        name = context.path("topic")
        try:
            check_topic(name)
        except InputError as error:
            raise ApiError(400, str(error)) from error
        is_durable = Topic(name).is_durable
        is_subscribed = self._state.topics.subscription(context.identity, name) is not None
        in_tables = context.is_admin and is_durable and is_written(self._lake, NOTIFICATIONS)
        data = {
            "topic": name,
            "durable": is_durable,
            "shown": context.is_admin or is_subscribed,
            "in_tables": in_tables,
        }
        return {"data": data, "topic": name, "durable": is_durable, "shown": data["shown"]}

    async def devices(self, context: RequestContext) -> Values:
        return {"data": self._device_data(context), "after": context.query("after")}

    async def device(self, context: RequestContext) -> Values:
        serial = context.path("serial")
        is_known = serial in self._devices or serial in self._devices.latest
        if self._state.devices.find(serial) is None and not is_known:
            raise ApiError(404, f"no device {serial[:64]!r}: register it with wirelake device add")
        return {
            "data": self._device_data(context) | {"serial": serial},
            "serial": serial,
            "requests": {
                kind | codes.request_bit: name for codes in device_codes() for kind, name in codes.commands.items()
            },
            "wait_ms": HTTP_COMMAND_MS,
            "wait_ms_max": HTTP_COMMAND_MS_MAX,
        }

    def _device_data(self, context: RequestContext) -> Values:
        tables = [table.name for table in (DEVICE_LATEST, READINGS, DEVICE_COMMANDS) if is_written(self._lake, table)]
        return {
            "tables": tables if context.is_admin else [],
            "type_names": {kind: name for codes in device_codes() for kind, name in codes.types.items()},
            "command_names": {kind: name for codes in device_codes() for kind, name in codes.commands.items()},
            "reading_names": {
                kind: (known.name, known.unit)
                for protocol in registry.all_protocols()
                for kind, known in protocol.readings.items()
            },
            "typed_protocols": [
                protocol.name for protocol in registry.all_protocols() if protocol.device_codes is not None
            ],
        }


def device_codes() -> list[DeviceCodes]:
    """Return the numbers of all protocols that devices speak."""
    return [protocol.device_codes for protocol in registry.all_protocols() if protocol.device_codes is not None]


def device_protocols() -> list[str]:
    """Return the names of the protocols whose identities are devices' serials, earlier names included."""
    return [
        name
        for protocol in registry.all_protocols()
        if protocol.device_of is not None
        for name in (protocol.name, *protocol.aliases)
    ]


SESSIONS: Final = page_route("/sessions")
TOPICS: Final = page_route("/topics")
TOPIC: Final = page_route("/topics/{topic}")
DEVICES: Final = page_route("/devices")
DEVICE: Final = page_route("/devices/{serial}")
ROUTES: Final = (SESSIONS, TOPICS, TOPIC, DEVICES, DEVICE)
