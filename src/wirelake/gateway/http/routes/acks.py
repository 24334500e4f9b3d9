"""Acks by HTTP: for whoever reads `GET /api/subscribe`, which has no way back, and wants no notification twice."""

from typing import Annotated

from msgspec import Meta, Struct

from wirelake.gateway.http.request_context import RequestContext
from wirelake.gateway.http.route import Route
from wirelake.limits import HTTP_ACKS_MAX


class AckRequest(Struct, forbid_unknown_fields=True):
    """The ids of notifications that this identity has got. Ids that mean nothing are passed over."""

    ids: Annotated[list[str], Meta(max_length=HTTP_ACKS_MAX)]


async def ack(exchange: RequestContext, acks: AckRequest) -> None:
    await exchange.gateway.broker.durable.on_ack(exchange.identity, acks.ids)


ROUTES = (
    Route(
        method="POST",
        path="/api/acks",
        summary="Acknowledge notifications by their ids: they are not delivered to this identity again.",
        handle=ack,
        takes=AckRequest,
        status=204,
        recorded=True,
        example={"ids": ["3f9a2c-1-7"]},
    ),
)
