"""Phones that all come back at once after a restart: how long until each is logged in.

    ./dev bench logins

Once with generated tokens, which are checked with a keyed hash, and once with tokens that people chose, which take
scrypt. A phone whose login is refused as busy, or times out, calls again after a pause, as a real one does.
"""

import asyncio
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

import uvloop
from rich.console import Console
from rich.table import Table
from servers import pin_load, wirelake

from wirelake.gateway.auth.keys import KeyFiles
from wirelake.protocols.comet.frames import Auth
from wirelake.state.store import StateStore
from wirelake.state.tokens import TokenHash, hash_token, new_token

PHONES = 2_000
GOAL_S = 10.0
GIVE_UP_S = 240.0
CHOSEN = "chosen by a person"
PAUSE_FIRST_S = 0.2
PAUSE_MAX_S = 30.0
SUCCESS = 2  # the type of a frame auth_success
SETTINGS = {"WIRELAKE_AUTH_OPEN": "false", "WIRELAKE_LIMITS_CONNECTIONS_PER_ADDRESS": "20000"}


def prepare(folder: Path, tokens: dict[str, str]) -> None:
    """Add the identities. One slow hash serves for all chosen tokens: they are alike."""
    chosen: TokenHash = hash_token(CHOSEN)
    store = StateStore(folder / "state.db")
    key = KeyFiles(folder / "keys").token_key(store.identities)
    for name, token in tokens.items():
        store.identities.add(name, chosen if token == CHOSEN else key.hash(token), time.time_ns() // 1_000_000)
    store.barrier().wait(60)
    store.close()


async def log_in(port: int, name: str, token: str, start_s: float) -> tuple[float, asyncio.StreamWriter]:
    """Seconds until this phone was logged in; its connection stays open."""
    pause_s = PAUSE_FIRST_S
    while True:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(Auth(name, token).encode())
            head = await reader.readexactly(3)
            if head[2] == SUCCESS:
                return time.perf_counter() - start_s, writer
            writer.close()
        except (OSError, asyncio.IncompleteReadError):
            pass
        await asyncio.sleep(random.uniform(0, pause_s))
        pause_s = min(pause_s * 2, PAUSE_MAX_S)


async def storm(port: int, tokens: dict[str, str]) -> list[float]:
    """Seconds until each was logged in; those that were not in time are missing."""
    start_s = time.perf_counter()
    phones = [asyncio.create_task(log_in(port, name, token, start_s)) for name, token in tokens.items()]
    done, late = await asyncio.wait(phones, timeout=GIVE_UP_S)
    for task in late:
        task.cancel()
    await asyncio.gather(*late, return_exceptions=True)
    for task in done:
        task.result()[1].close()
    return sorted(task.result()[0] for task in done)


def main() -> int:
    pin_load()
    table = Table(title=f"{PHONES:,} phones from one address log in after a restart, s", title_justify="left")
    for column in ("tokens", "logged in", "median", "p99", "last", "goal"):
        table.add_column(column, justify="right" if column != "tokens" else "left")
    late = False
    for kind in ("generated", "chosen"):
        tokens = {f"phone-{number}": new_token() if kind == "generated" else CHOSEN for number in range(PHONES)}
        with tempfile.TemporaryDirectory() as folder:
            prepare(Path(folder), tokens)
            with wirelake(Path(folder), **SETTINGS) as ports:
                taken = uvloop.run(storm(ports["comet"], tokens))
        is_bound = kind == "generated"
        late |= is_bound and (len(taken) < PHONES or taken[-1] > GOAL_S)
        p99 = taken[int(len(taken) * 0.99)]
        goal = f"{GOAL_S:.0f}" if is_bound else "–"
        table.add_row(
            kind, f"{len(taken):,}", f"{statistics.median(taken):.2f}", f"{p99:.2f}", f"{taken[-1]:.2f}", goal
        )
    Console(width=100).print(table)
    return 1 if late else 0


if __name__ == "__main__":
    sys.exit(main())
