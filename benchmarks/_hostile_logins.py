"""Attacks on logins and on the HTTP door, for the table in hostile.py. None of them needs more than one address."""

import asyncio
import contextlib
import itertools
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from wirelake.protocols.comet.frames import Auth
from wirelake.protocols.redis.frames import Command
from wirelake.state.tokens import new_token

HOST = "127.0.0.1"
UNFINISHED = 1100
WRONG_TOKENS = 2000
GUESSERS = 200
RECONNECTING = 200
RECONNECT_PAUSE_S = 0.2  # or what is measured is how busy this process is, which also beats the innocent's heart
HOSTILE = "hostile"


class Target(Protocol):
    """A gateway under attack."""

    @property
    def ports(self) -> dict[str, int]: ...

    @property
    def tokens(self) -> dict[str, str]: ...


async def unfinished_logins(target: Target) -> None:
    """Forms whose end never comes, again as soon as one is cut off."""
    request = (
        b"POST /login HTTP/1.1\r\nhost: 127.0.0.1\r\nsec-fetch-site: same-origin\r\ncontent-length: 8000\r\n\r\n"
        b"token=" + b"x" * 1000
    )

    async def send() -> None:
        while True:
            reader, writer = await asyncio.open_connection(HOST, target.ports["http"])
            writer.write(request)
            with contextlib.suppress(OSError):
                await reader.read()
            writer.close()

    await asyncio.gather(*(send() for _ in range(UNFINISHED)))


async def wrong_tokens(target: Target) -> None:
    """Requests with tokens that nobody has, with and without a name, all at once and again."""
    numbers = itertools.count()

    async def send() -> None:
        reader, writer = await asyncio.open_connection(HOST, target.ports["http"])
        while True:
            number = next(numbers)
            guess = new_token() if number % 2 else f"{HOSTILE}:guess {number}"
            writer.write(
                f"GET /api/topics HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {guess}\r\n\r\n".encode()
            )
            while (line := await reader.readline()) not in {b"\r\n", b""}:
                if line.lower().startswith(b"content-length:"):
                    size = int(line.split(b":")[1])
            await reader.readexactly(size)

    await asyncio.gather(*(send() for _ in range(WRONG_TOKENS)))


async def wrong_logins(target: Target) -> None:
    """Guesses by comet, of a name that exists and of names that do not, each on a new connection."""
    numbers = itertools.count()

    async def guess() -> None:
        while True:
            number = next(numbers)
            reader, writer = await asyncio.open_connection(HOST, target.ports["comet"])
            writer.write(Auth(HOSTILE if number % 2 else f"nobody {number}", f"guess {number}").encode())
            with contextlib.suppress(OSError):
                await reader.read()
            writer.close()

    await asyncio.gather(*(guess() for _ in range(GUESSERS)))


async def reconnecting(target: Target) -> None:
    """Clients with the right token that connect, log in and leave, over and over."""
    login = Command((b"AUTH", HOSTILE.encode(), target.tokens[HOSTILE].encode())).encode()

    async def connect() -> None:
        while True:
            reader, writer = await asyncio.open_connection(HOST, target.ports["redis"])
            writer.write(login)
            await reader.readline()
            writer.close()
            await asyncio.sleep(RECONNECT_PAUSE_S)

    await asyncio.gather(*(connect() for _ in range(RECONNECTING)))


LOGIN_ATTACKS: Final[tuple[tuple[str, Callable[[Target], Awaitable[None]]], ...]] = (
    (f"{UNFINISHED:,} unfinished POST /login", unfinished_logins),
    (f"{WRONG_TOKENS:,} wrong tokens by HTTP, again and again", wrong_tokens),
    (f"{GUESSERS} guess logins, each on a new connection", wrong_logins),
    (f"{RECONNECTING} reconnect and log in, again and again", reconnecting),
)
