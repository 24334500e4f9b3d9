"""Bytes taken apart or guessed at, as `wirelake decode --json` and `wirelake identify` do it."""

import asyncio
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, field, to_builtins

from wirelake.gateway.http import examples
from wirelake.gateway.http.errors import ApiError
from wirelake.gateway.http.request_context import RequestContext
from wirelake.gateway.http.route import Route
from wirelake.limits import HTTP_DECODE_BYTES_MAX
from wirelake.protocols import registry
from wirelake.protocols.frame import Sender
from wirelake.protocols.hextext import HEX_PATTERN, parse_hex
from wirelake.protocols.identify import Guess, identify
from wirelake.protocols.inspection import as_values, inspect
from wirelake.protocols.protocol import Carrier

Hex = Annotated[str, Meta(extra_json_schema={"pattern": HEX_PATTERN})]  # parse_hex says better what is wrong with it


class DecodeRequest(Struct, forbid_unknown_fields=True):
    protocol: str
    hex: Hex
    sender: Literal["client", "server"] = field(name="from", default="client")
    transport: str | None = None  # how they travelled, where that matters


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
    """`error` is the first fault, with its place; frames before and after it are there all the same."""

    protocol: str
    sender: str = field(name="from")
    transport: str
    frames: list[FieldRow]
    rest: str  # bytes that are not a whole frame, in hex
    error: DecodeFault | None


class Unknown(Struct, forbid_unknown_fields=True):
    hex: Hex


class Guesses(Struct):
    """The likeliest first; none where nothing speaks for any."""

    guesses: list[Guess]


async def guess(_: RequestContext, given: Unknown) -> Guesses:
    data = _bytes(given.hex)
    return Guesses(await asyncio.to_thread(identify, data, registry.all_protocols()))


async def decode(_: RequestContext, given: DecodeRequest) -> dict[str, Any]:
    protocol = registry.get(given.protocol)
    data = _bytes(given.hex)
    carrier = None
    if given.transport is not None:
        names = [transport.carrier.value for transport in protocol.transports]
        if given.transport not in names:
            raise ApiError(400, f"{protocol.name} has the transports {', '.join(names)}, not {given.transport[:32]!r}")
        carrier = Carrier(given.transport)
    return await asyncio.to_thread(lambda: as_values(inspect(data, protocol, Sender(given.sender), carrier)))


def _bytes(hex_text: str) -> bytes:
    data = parse_hex(hex_text)
    if len(data) > HTTP_DECODE_BYTES_MAX:
        raise ApiError(413, f"{len(data)} bytes exceed the limit of {HTTP_DECODE_BYTES_MAX} (HTTP_DECODE_BYTES_MAX)")
    return data


def _describe_bytes(schema: dict[str, Any]) -> dict[str, Any]:
    """Which protocols there are, and by what each travels."""
    choices = []
    for protocol in registry.all_protocols():
        carriers = [transport.carrier.value for transport in protocol.transports]
        own = {"protocol": {"enum": [protocol.name]}, "transport": {"enum": [*carriers, None]}}
        choices.append({**schema, "properties": {**schema["properties"], **own}})
    return {"anyOf": choices}


_EXAMPLE_GUESSES = {
    "guesses": [
        {**to_builtins(guess), "bits": float(guess.bits), "reasons": list(guess.reasons)}
        for guess in identify(examples.FRAME, (examples.PROTOCOL,))
    ]
}

ROUTES = (
    Route(
        method="POST",
        path="/api/decode",
        summary="Decode frames, field by field, with byte offsets.",
        handle=decode,
        takes=DecodeRequest,
        describe_body=_describe_bytes,
        gives=DecodeAnswer,
        example={"protocol": examples.NAME, "hex": examples.FRAME.hex(), "from": "client"},
        example_answer=as_values(inspect(examples.FRAME, examples.PROTOCOL, Sender.CLIENT)),
    ),
    Route(
        method="POST",
        path="/api/identify",
        summary="Guess which protocol these bytes belong to, with reasons.",
        handle=guess,
        takes=Unknown,
        gives=Guesses,
        example={"hex": examples.FRAME.hex()},
        example_answer=_EXAMPLE_GUESSES,
    ),
)
