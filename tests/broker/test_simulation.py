"""Random operations on the broker with a clock of its own, beside simple models. The seed is in the test's name."""

from pathlib import Path

import pytest

from broker.simulation import World
from wirelake.state.store import StateStore

SEEDS = 250
STEPS = 80


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_the_broker_does_as_the_models_say(seed: int, tmp_path: Path) -> None:
    await simulate(seed, tmp_path)


async def simulate(seed: int, folder: Path) -> None:
    store = StateStore(folder / "state.db")
    store.database.write_connection.execute(
        "PRAGMA synchronous = OFF"
    )  # the order of things is tested here, not the disk
    world = World(seed, store)
    try:
        await world.run(STEPS)
    except AssertionError as error:
        error.add_note(f"seed {seed}\n" + "\n".join(world.history[-40:]))
        raise
    finally:
        store.close()
