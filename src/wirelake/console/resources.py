"""Show the sessions, the topics and the devices, and one topic or device.

Past reports of devices come from the tables, for who may query them.
"""

from collections.abc import Callable
from typing import Final

from wirelake.broker.broker import Broker
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
from wirelake.roles import LOG, WILDCARD, Action
from wirelake.state.store import StateStore

_DEVICE_TABLES: Final = (DEVICE_LATEST, READINGS, DEVICE_COMMANDS)


class ResourcePages:
    def __init__(
        self,
        server: PageServer,
        settings: Callable[[], Settings],
        state: StateStore,
        broker: Broker,
        lake: Store,
    ) -> None:
        self._server = server
        self._broker = broker
        self._settings = settings
        self._state = state
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
                "own": "" if context.is_admin else context.identity,
                "may_disconnect": context.rights.is_admin,
                "sees_log": context.rights.sees(LOG),
            },
            "sees_all": context.rights.sees(f"sessions/{WILDCARD}"),
            "protocols": [*(protocol.name for protocol in registry.all_protocols()), "http"],
            "protocol": context.query("protocol"),
            "wanted": context.query("identity"),
        }

    async def topics(self, context: RequestContext) -> Values:
        return {"prefix": context.query("prefix"), "sees_all": context.rights.sees(f"topics/{WILDCARD}")}

    async def topic(self, context: RequestContext) -> Values:
        name = context.path("topic")
        try:
            check_topic(name)
        except InputError as error:
            raise ApiError(400, str(error)) from error
        rights, is_durable = context.rights, Topic(name).is_durable
        is_seen, may_subscribe = rights.sees(f"topics/{name}"), rights.allows(Action.SUBSCRIBE, name)
        is_subscribed = self._state.topics.subscription(context.identity, name) is not None
        in_tables = is_durable and rights.allows(Action.QUERY, NOTIFICATIONS.name)
        about = {
            "topic": name,
            "durable": is_durable,
            "shown": is_seen or (is_subscribed and may_subscribe),
            "may_subscribe": may_subscribe,
        }
        data = about | {"in_tables": in_tables and is_written(self._lake, NOTIFICATIONS)}
        return {**about, "data": data, "is_seen": is_seen, "may_publish": rights.allows(Action.PUBLISH, name)}

    async def devices(self, context: RequestContext) -> Values:
        data, has_tables = self._device_data(context), _may_query_any(context)
        return {"data": data, "after": context.query("after"), "has_tables": has_tables}

    async def device(self, context: RequestContext) -> Values:
        serial = context.path("serial")
        self._broker.access.authorize(context, Action.SEE, f"devices/{serial}")
        devices = self._broker.devices
        is_known = serial in devices or serial in devices.latest
        if self._state.devices.find(serial) is None and not is_known:
            raise ApiError(404, f"no device {serial[:64]!r}: register it with wirelake device add")
        return {
            "data": self._device_data(context)
            | {
                "serial": serial,
                "sees_reports": context.rights.sees(f"topics/{self._broker.devices_topic}/{serial}"),
            },
            "has_tables": _may_query_any(context),
            "serial": serial,
            "may_command": context.rights.allows(Action.COMMAND, serial),
            "requests": {
                kind | codes.request_bit: name for codes in device_codes() for kind, name in codes.commands.items()
            },
            "wait_ms": HTTP_COMMAND_MS,
            "wait_ms_max": HTTP_COMMAND_MS_MAX,
        }

    def _device_data(self, context: RequestContext) -> Values:
        return {
            "tables": [
                table.name
                for table in _DEVICE_TABLES
                if context.rights.allows(Action.QUERY, table.name) and is_written(self._lake, table)
            ],
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


def _may_query_any(context: RequestContext) -> bool:
    return any(context.rights.allows(Action.QUERY, table.name) for table in _DEVICE_TABLES)


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
