"""The sequence fuzzer, briefly. `fuzz/sequences.py` runs it for longer."""

import random
from pathlib import Path

from resilience.process import GatewayProcess
from resilience.sequences import SETTINGS, fuzz
from resilience.speakers import SPEAKERS

SECONDS = 20.0


async def test_any_sequence_of_frames_and_failures_leaves_nothing_behind(tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    gateway = GatewayProcess(tmp_path / "data", SETTINGS)
    gateway.start()
    try:
        outcome, problems = await fuzz(gateway, SECONDS, seed)
        assert not problems, f"seed {seed}: " + "\n".join(problems)
    finally:
        code = gateway.stop()
    assert code == 0, "it still ends in peace"
    assert set(outcome.sessions) == {speaker.listener for speaker in SPEAKERS}
    assert outcome.disk_failures > 3
