"""Show bytes as a tree of fields. The page's URL holds what is shown, so that it can be shared."""

from wirelake.console.page import Context, page
from wirelake.gateway.http.request_context import RequestContext
from wirelake.limits import HTTP_DECODE_BYTES_MAX
from wirelake.protocols import registry


async def view(_: RequestContext) -> Context:
    protocols = {
        protocol.name: {
            "title": protocol.title,
            "transports": list(dict.fromkeys(transport.carrier.value for transport in protocol.transports)),
        }
        for protocol in registry.all_protocols()
    }
    return {"data": {"protocols": protocols, "bytes_max": HTTP_DECODE_BYTES_MAX}, "protocols": protocols}


ROUTES = (page("/inspector", "inspector.html", view),)
