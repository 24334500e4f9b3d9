"""The first page: what goes on now, and whether the sums agree."""

from wirelake.console.page import Context, page
from wirelake.console.snapshot import take
from wirelake.gateway.http.request_context import RequestContext


async def view(exchange: RequestContext) -> Context:
    gateway = exchange.gateway
    doors = {name: str(door.address) for name, door in gateway.listeners.items()}
    return {"data": take(exchange.api), "doors": doors, "started_ms": gateway.started_ms, "folder": str(gateway.folder)}


ROUTES = (page("/", "overview.html", view),)
