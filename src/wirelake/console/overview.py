"""Show the start page: current traffic, and whether the ledger balances."""

from wirelake.console.page import Context, page
from wirelake.console.snapshot import take
from wirelake.gateway.http.request_context import RequestContext


async def view(exchange: RequestContext) -> Context:
    gateway = exchange.gateway
    listeners = {name: str(listener.address) for name, listener in gateway.listeners.items()}
    return {
        "data": take(exchange.api),
        "listeners": listeners,
        "started_ms": gateway.started_ms,
        "folder": str(gateway.folder),
    }


ROUTES = (page("/", "overview.html", view),)
