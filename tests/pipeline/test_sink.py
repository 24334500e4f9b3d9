import pickle
from pathlib import Path

import pytest

from pipeline.batches import Run
from pipeline.checking import check_tables, seqs_of
from pipeline.traffic import fill
from wirelake.lake.tables import TABLES
from wirelake.log.segments.log import SegmentLog
from wirelake.pipeline.commit.checkpoint import CONSUMER
from wirelake.pipeline.commit.manifests import ManifestStore
from wirelake.pipeline.recovery import is_commit_error
from wirelake.pipeline.sink import CommitError, read_commit_times, tables_source


def test_a_batch_is_planned_computed_and_committed(log: SegmentLog, data: Path) -> None:
    fill(log, 300)
    run = Run(data)
    messages = run.compute(0, 0, 200)
    assert ManifestStore(run.plan.paths.checkpoint).batches() == []
    run.writer.commit(messages, 0)
    run.writer.commit(run.compute(1, 200, 300), 1)
    check_tables(data)
    assert log.committed_offset(CONSUMER) == 300
    times = read_commit_times(data)
    assert times.batch == 1
    assert times.phases_s.keys() == {"ingest", "reduce", "manifest", "delta"}


def test_a_batch_that_has_a_manifest_is_committed_without_tasks(log: SegmentLog, data: Path) -> None:
    fill(log, 200)
    obstacle = data / "lake" / TABLES["silver.messages"].folder / "_delta_log"
    run = Run(data)
    messages = run.compute(0, 0, 200)
    obstacle.write_text("not a folder")
    with pytest.raises(CommitError, match="cannot commit batch 0") as failure:
        run.writer.commit(messages, 0)
    assert not is_commit_error(failure.value)  # by its text, as Spark passes it on
    files = run.files
    run.writer.abort(messages, 0)
    assert run.files == files, "the manifest needs them"
    assert seqs_of(data, "bronze.frames") == list(range(200)), "other tables have the batch"
    obstacle.unlink()
    again = Run(data)
    assert again.reader.partitions({"seq": 0}, {"seq": 200}) == []
    again.writer.commit([], 0)
    check_tables(data)
    assert run.files == files


def test_an_aborted_batch_leaves_no_files(log: SegmentLog, data: Path) -> None:
    fill(log, 300)
    run = Run(data)
    run.writer.commit(run.compute(0, 0, 100), 0)
    files = run.files
    messages = run.compute(1, 100, 300)
    assert run.files > files
    run.writer.abort([None, *messages[:1]], 1)  # what a failed task wrote is in no message
    assert run.files == files
    run.writer.commit(run.compute(1, 100, 300), 1)
    check_tables(data)


def test_of_two_drivers_both_commit_what_the_first_has_written(log: SegmentLog, data: Path) -> None:
    fill(log, 300)
    first, second = Run(data), Run(data)
    messages, others = first.compute(0, 0, 300), second.compute(0, 0, 300)
    first.writer.commit(messages, 0)
    files = {name for name in first.files if second.plan.run not in name}
    second.writer.commit(others, 0)
    assert second.files == files, "the second deletes its own"
    check_tables(data)
    second.writer.abort(others, 0)
    assert second.files == files


def test_a_task_that_was_tried_again_leaves_no_files(log: SegmentLog, data: Path) -> None:
    fill(log, 200)
    run = Run(data)
    run.compute(0, 0, 200)  # the first attempt: its result was lost
    messages = run.compute(0, 0, 200)
    messages[0].figures["retried"] = 1
    run.writer.commit(messages, 0)
    check_tables(data)
    manifest = ManifestStore(run.plan.paths.checkpoint).last()
    assert manifest is not None
    needed = {path.rpartition("/")[2] for path in manifest.paths}
    assert run.files == needed


def test_executors_get_neither_keys_nor_credentials(log: SegmentLog, data: Path) -> None:
    fill(log, 10)
    run = Run(data)
    for sent in (run.reader, run.writer):
        assert run.plan.run.encode() not in pickle.dumps(sent)
    assert "StreamPlan" in repr(run.plan)
    assert str(data) not in repr(run.plan)
    assert tables_source(run.plan, {}).name() == "wirelake_tables"
