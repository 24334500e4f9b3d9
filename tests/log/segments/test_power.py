"""The power goes at every step of a writer's life: whatever was acknowledged by then is there afterwards."""

from pathlib import Path
from random import Random

import pytest

from log.faults import PowerFiles, Snapshot
from log.records import append, check, fill, seqs_in
from wirelake.log.segments.log import SegmentLog
from wirelake.log.segments.reader import LogReader
from wirelake.log.segments.settings import LogSettings

SETTINGS = LogSettings(segment_bytes=16 * 1024)


def written(folder: Path, records: int, files: PowerFiles) -> None:
    """A writer's life from opening to closing, its acknowledgements noted as they come."""
    log = SegmentLog(folder, SETTINGS, files)

    def note(seq: int) -> None:
        files.acknowledged_seq = files.committed_seq = seq

    random = Random(records)
    for _ in range(records):
        commit = append(log)
        commit.add_done_callback(lambda commit: note(commit.result().stop))
        if random.random() < 0.3:
            commit.wait(10)
    log.close()


def check_restored(snapshot: Snapshot, source: Path, target: Path, random: Random) -> None:
    snapshot.restore(source, target, random)
    target.mkdir(exist_ok=True)
    log = SegmentLog(target, SETTINGS)
    assert log.recovery.rows_lost == 0
    assert log.next_seq >= snapshot.acknowledged_seq
    assert check(log.read()) == list(range(log.next_seq))
    fill(log, 3)
    log.close()
    assert seqs_in(target) == list(range(log.next_seq))


@pytest.mark.parametrize("seed", range(3))
def test_what_was_acknowledged_survives_a_power_failure_at_any_step(tmp_path: Path, seed: int) -> None:
    source = tmp_path / "source"
    files = PowerFiles()
    written(source, 150 + seed, files)
    assert files.acknowledged_seq == 150 + seed
    assert {"create", "write", "fsync", "fsync_data", "fsync_dir"} <= {each.operation for each in files.snapshots}
    random = Random(seed)
    steps = sorted(random.sample(range(len(files.snapshots)), min(120, len(files.snapshots))))
    for step in steps:
        check_restored(files.snapshots[step], source, tmp_path / f"step-{step}", random)


def test_a_power_failure_while_the_last_one_is_mended(tmp_path: Path) -> None:
    source = tmp_path / "source"
    files = PowerFiles()
    written(source, 60, files)
    random = Random(1)
    for step in random.sample(range(len(files.snapshots) // 2, len(files.snapshots)), 8):
        first = files.snapshots[step]
        again = tmp_path / f"first-{step}"
        first.restore(source, again, random)
        mending = PowerFiles()
        mending.adopt(again)
        mending.acknowledged_seq = first.acknowledged_seq
        SegmentLog(again, SETTINGS, mending).close()
        mending.committed_seq = first.committed_seq
        for number, second in enumerate(mending.snapshots):
            check_restored(second, again, tmp_path / f"second-{step}-{number}", random)


def test_readers_take_nothing_that_is_not_committed(folder: Path) -> None:
    """At every step of the writer, a reader sees no more than what was synced."""

    class Watched(PowerFiles):
        def snapshot(self, operation: str) -> None:
            if operation == "fsync_data":  # the block is written, and not yet synced
                seen.append((len(seqs_in(folder)), self.acknowledged_seq))

    seen: list[tuple[int, int]] = []
    written(folder, 40, Watched())
    assert len(seen) > 3
    assert all(rows == acknowledged for rows, acknowledged in seen)
    assert LogReader(folder).next_seq == 40
