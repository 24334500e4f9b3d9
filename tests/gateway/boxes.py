"""A gateway with a magline door, and a box that is logged in there."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from gateway.box import Box
from gateway.running import Running, running_gateway
from wirelake.message import Credentials, Kind, Message, Op, control

BOX = ("box", "t0ken")
LOGIN = control(Op.LOGIN, credentials=Credentials(*BOX), correlation="in")


def resume(sid: bytes, secret: bytes) -> Message:
    """What a client session is told to resume the session of this sid and resume secret."""
    return Message(kind=Kind.CONTROL, name="resume", fields={"sid": sid.hex(), "secret": secret.hex()})


@asynccontextmanager
async def gateway(folder: Path, *doors: str, **settings: Any) -> AsyncIterator[Running]:
    async with running_gateway(folder, "magline", *doors, identities=[BOX], **settings) as running:
        yield running


@asynccontextmanager
async def logged_in(folder: Path, *, little: bool = False, **settings: Any) -> AsyncIterator[tuple[Running, Box]]:
    async with gateway(folder, **settings) as running, await Box.call(running, *BOX, little=little) as box:
        yield running, box
