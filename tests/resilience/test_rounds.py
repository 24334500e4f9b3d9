"""A few rounds of what `./dev chaos` does for longer."""

import random
from pathlib import Path

import pytest

from resilience.power import compiler
from resilience.rounds import Chaos
from resilience.workload import TABLE, TOPICS

KILLS = 3
POWER_FAILURES = 2


@pytest.mark.parametrize("power_failures", [0, POWER_FAILURES])
def test_what_was_promised_survives_under_mixed_load(tmp_path: Path, power_failures: int) -> None:
    if power_failures and compiler() is None:
        pytest.skip("no C compiler on this machine: simulated power failures are left out")
    seed = random.randrange(2**32)
    (tmp_path / "workshop").mkdir()
    chaos = Chaos(tmp_path / "data", tmp_path / "workshop", seed, print)
    chaos.run(0 if power_failures else KILLS, power_failures)
    assert not chaos.model.problems, f"seed {seed}: " + "\n".join(chaos.model.problems)
    for name in (*TOPICS, TABLE["sdb"]):
        assert chaos.model.promised[name], f"seed {seed}: {name} had no load"
    assert chaos.model.acked
