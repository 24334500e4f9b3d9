"""Show the timeline of one message. The page's URL names the message, so that it can be shared."""

from typing import Final

from wirelake.console.devices import device_protocols
from wirelake.console.page import Context, page
from wirelake.gateway.http.errors import ApiError
from wirelake.gateway.http.request_context import RequestContext
from wirelake.gateway.http.routes.messages import traced
from wirelake.protocols import registry
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


async def view(exchange: RequestContext) -> Context:
    wanted = exchange.query("id").strip()
    protocols = {protocol.name for protocol in registry.all_protocols()}
    context: Context = {
        "wanted": wanted,
        "found": None,
        "failed": "",
        "icon": _icon,
        "protocols": protocols,
        "device_protocols": device_protocols(),
    }
    if wanted:
        try:
            context["found"] = await traced(exchange, wanted)
        except ApiError as error:
            context["failed"] = error.detail
    return context


def _icon(event: TraceEvent) -> str:
    if event.what == "frame":
        return "→" if event.direction == "in" else "←"
    return ICONS.get(event.what, _OTHER)


ROUTES = (page("/trace", "trace.html", view),)
