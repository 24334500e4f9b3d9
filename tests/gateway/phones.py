"""A gateway with a comet door, and what a phone hears there."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from gateway.running import Running, running_gateway
from gateway.wire import Phone
from wirelake.protocols.comet import frames

OPEN = {"auth": {"open": True}}


@asynccontextmanager
async def gateway(folder: Path, **settings: Any) -> AsyncIterator[Running]:
    async with running_gateway(folder, "comet", **({} if "identities" in settings else OPEN) | settings) as running:
        yield running


def caller(running: Running) -> int:
    return running.port("comet")


async def told(phone: Phone) -> frames.Message:
    heard = await phone.hear()
    assert isinstance(heard, frames.Message), heard
    return heard


async def backlog(phone: Phone) -> tuple[frames.Message, ...]:
    heard = await phone.ask(frames.GetMessageList())
    assert isinstance(heard, frames.MessageList), heard
    return heard.messages
