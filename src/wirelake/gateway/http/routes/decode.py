"""Decode bytes, and identify their protocol, like `wirelake decode --json` and `wirelake identify`."""

import asyncio
from typing import Annotated, Any, Final, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, field, to_builtins

from wirelake.gateway.http.bodies import EXAMPLE_FRAME, EXAMPLE_NAME, EXAMPLE_PROTOCOL
from wirelake.gateway.http.errors import ApiError
from wirelake.gateway.http.request_context import RequestContext
from wirelake.gateway.http.route import BoundRoute, Route
from wirelake.limits import HTTP_DECODE_BYTES_MAX
from wirelake.protocols import registry
from wirelake.protocols.frame import Sender
from wirelake.protocols.inspection import Guess, as_values, identify, inspect
from wirelake.protocols.protocol import Carrier
from wirelake.protocols.text import HEX_PATTERN, parse_hex

Hex = Annotated[str, Meta(extra_json_schema={"pattern": HEX_PATTERN})]  # checked by parse_hex, with a better error


class DecodeRequest(Struct, forbid_unknown_fields=True):
    protocol: str
    hex: Hex
    sender: Literal["client", "server"] = field(name="from", default="client")
    transport: str | None = None  # if the protocol has several


class FieldRow(Struct, omit_defaults=True):
    """`size` bytes at `offset`. Values that are bytes are hex."""

    name: str
    offset: int
    size: int
    value: Any = None
    note: str = ""
    children: list["FieldRow"] | UnsetType = UNSET


class DecodeFault(Struct):
    code: str
    message: str
    offset: int


class DecodeAnswer(Struct):
    """`error` is the first fault, with its offset; `frames` has the frames before and after it too."""

    protocol: str
    sender: str = field(name="from")
    transport: str
    frames: list[FieldRow]
    rest: str  # bytes of an incomplete frame, in hex
    error: DecodeFault | None


class Unknown(Struct, forbid_unknown_fields=True):
    hex: Hex


class Guesses(Struct):
    """The most likely protocol first; empty if there is no evidence for any."""

    guesses: list[Guess]


class DecodeRoutes:
    def routes(self) -> tuple[BoundRoute, ...]:
        return (DECODE.bind(self.decode), IDENTIFY.bind(self.identify))

    async def decode(self, _: RequestContext, body: DecodeRequest) -> dict[str, Any]:
        protocol = registry.get(body.protocol)
        data = _bytes(body.hex)
        carrier = None
        if body.transport is not None:
            names = [transport.carrier.value for transport in protocol.transports]
            if body.transport not in names:
                text = f"{protocol.name} has the transports {', '.join(names)}, not {body.transport[:32]!r}"
                raise ApiError(400, text)
            carrier = Carrier(body.transport)
        return await asyncio.to_thread(lambda: as_values(inspect(data, protocol, Sender(body.sender), carrier)))

    async def identify(self, _: RequestContext, body: Unknown) -> Guesses:
        data = _bytes(body.hex)
        return Guesses(await asyncio.to_thread(identify, data, registry.all_protocols()))


def _bytes(hex_text: str) -> bytes:
    data = parse_hex(hex_text)
    if len(data) > HTTP_DECODE_BYTES_MAX:
        raise ApiError(413, f"{len(data)} bytes exceed the limit of {HTTP_DECODE_BYTES_MAX} (HTTP_DECODE_BYTES_MAX)")
    return data


def _describe_bytes(schema: dict[str, Any]) -> dict[str, Any]:
    """List the protocols, each with its transports."""
    choices = []
    for protocol in registry.all_protocols():
        carriers = [transport.carrier.value for transport in protocol.transports]
        own = {"protocol": {"enum": [protocol.name]}, "transport": {"enum": [*carriers, None]}}
        choices.append({**schema, "properties": {**schema["properties"], **own}})
    return {"anyOf": choices}


_EXAMPLE_GUESSES: Final = {
    "guesses": [
        {**to_builtins(guess), "bits": float(guess.bits), "reasons": list(guess.reasons)}
        for guess in identify(EXAMPLE_FRAME, (EXAMPLE_PROTOCOL,))
    ]
}

DECODE: Final = Route(
    method="POST",
    path="/api/decode",
    operation_id="decode.decode",
    summary="Decode frames, field by field, with byte offsets.",
    takes=DecodeRequest,
    describe_body=_describe_bytes,
    gives=DecodeAnswer,
    example={"protocol": EXAMPLE_NAME, "hex": EXAMPLE_FRAME.hex(), "from": "client"},
    example_answer=as_values(inspect(EXAMPLE_FRAME, EXAMPLE_PROTOCOL, Sender.CLIENT)),
)

IDENTIFY: Final = Route(
    method="POST",
    path="/api/identify",
    operation_id="decode.guess",
    summary="Guess which protocol these bytes belong to, with reasons.",
    takes=Unknown,
    gives=Guesses,
    example={"hex": EXAMPLE_FRAME.hex()},
    example_answer=_EXAMPLE_GUESSES,
)

ROUTES: Final = (DECODE, IDENTIFY)
