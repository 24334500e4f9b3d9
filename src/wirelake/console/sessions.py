"""Show the connected sessions with their rates and lag, and disconnect one after confirmation."""

from wirelake.console.devices import device_protocols
from wirelake.console.page import Context, page
from wirelake.gateway.http.request_context import RequestContext
from wirelake.protocols import registry


async def view(exchange: RequestContext) -> Context:
    protocols = [*(protocol.name for protocol in registry.all_protocols()), "http"]
    return {
        "data": {
            "pending_bytes_max": exchange.gateway.settings.limits.pending_bytes,
            "device_protocols": device_protocols(),
        },
        "protocols": protocols,
        "protocol": exchange.query("protocol"),
        "wanted": exchange.query("identity"),
    }


ROUTES = (page("/sessions", "sessions.html", view),)
