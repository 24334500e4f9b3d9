"""Show bytes as a tree of fields, and the timeline of one message. The URL names what is shown, so it can be shared."""

from typing import Final

from wirelake.console.page import PageServer, Values, page_route
from wirelake.console.resources import device_protocols
from wirelake.errors import AccessDeniedError
from wirelake.gateway.http.errors import ApiError
from wirelake.gateway.http.request_context import RequestContext
from wirelake.gateway.http.route import BoundRoute
from wirelake.gateway.http.routes.messages import Tracer
from wirelake.limits import HTTP_DECODE_BYTES_MAX
from wirelake.protocols import registry
from wirelake.roles import LOG
from wirelake.tracing.timeline import TraceEvent

ICONS: Final = {
    "publish": "✎",
    "route": "⇢",
    "deliver": "⇉",
    "unsayable": "✗",
    "ack": "✓",
    "expire": "⌛",
    "open": "○",
    "close": "●",
    "login": "☺",
    "refuse": "✗",
    "fault": "✗",
    "quarantine": "✗",
}
_OTHER: Final = "·"


class InspectorPages:
    def __init__(self, server: PageServer, tracer: Tracer) -> None:
        self._server = server
        self._tracer = tracer

    def routes(self) -> tuple[BoundRoute, ...]:
        bind = self._server.bind
        return (bind(INSPECTOR, "inspector.html", self.inspector), bind(TRACE, "trace.html", self.trace))

    async def inspector(self, context: RequestContext) -> Values:
        protocols = {
            protocol.name: {
                "title": protocol.title,
                "transports": list(dict.fromkeys(transport.carrier.value for transport in protocol.transports)),
            }
            for protocol in registry.all_protocols()
        }
        return {
            "data": {"protocols": protocols, "bytes_max": HTTP_DECODE_BYTES_MAX},
            "protocols": protocols,
            "sees_log": context.rights.sees(LOG),
        }

    async def trace(self, context: RequestContext) -> Values:
        wanted = context.query("id").strip()
        values: Values = {
            "wanted": wanted,
            "found": None,
            "failed": "",
            "sees_log": context.rights.sees(LOG),
            "icon": _icon,
            "protocols": {protocol.name for protocol in registry.all_protocols()},
            "device_protocols": device_protocols(),
        }
        if wanted:
            try:
                values["found"] = await self._tracer.trace(context, wanted)
            except ApiError as error:
                values["failed"] = error.detail
            except AccessDeniedError as error:
                values["failed"] = f"You may not see this, or it does not exist ({error})."
        return values


def _icon(event: TraceEvent) -> str:
    if event.what == "frame":
        return "→" if event.direction == "in" else "←"
    return ICONS.get(event.what, _OTHER)


INSPECTOR: Final = page_route("/inspector")
TRACE: Final = page_route("/trace")
ROUTES: Final = (INSPECTOR, TRACE)
