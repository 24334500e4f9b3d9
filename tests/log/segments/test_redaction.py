import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from log import crash_redactor
from log.records import AT_US
from log.redacting import blank_passwords
from wirelake.errors import InputError, InUseError
from wirelake.files import TEMP_SUFFIX
from wirelake.log.segments.format import HEADER_BYTES, list_segments, segment_path
from wirelake.log.segments.indexer import ensure_index
from wirelake.log.segments.integrity import verify_log
from wirelake.log.segments.log import SegmentLog
from wirelake.log.segments.lookup import LogLookup
from wirelake.log.segments.lookup_keys import session_key
from wirelake.log.segments.mapped_segment import BlockState, MappedSegment
from wirelake.log.segments.reader import LogReader
from wirelake.log.segments.redaction import preview_redaction, redact_log
from wirelake.log.segments.settings import LogSettings

SECRET = b"s3cr3tt0k3n"
ROWS = 64
SETTINGS = LogSettings(segment_bytes=16 * 1024, fsync=False)


def frame_of(seq: int) -> bytes:
    return b"%d password=%b user=ann" % (seq, SECRET) if seq % 10 == 3 else b"%d nothing " % seq * (seq % 40)


@pytest.fixture
def written(folder: Path) -> Path:
    """Write several segments, every tenth record with a secret, and a consumer's offset."""
    log = SegmentLog(folder, SETTINGS)
    for seq in range(ROWS):
        log.append(AT_US + seq, "x", "frame", "in", f"s{seq % 7}", "me", "10.0.0.1:5", frame_of(seq), f"n{seq}").wait(9)
    log.commit_offset("pipeline", 50)
    log.close()
    for first in list_segments(folder):
        ensure_index(folder, first, None)
    return folder


def rows_in(folder: Path) -> list[dict[str, Any]]:
    return [row for batch in LogReader(folder).read() for row in batch.to_pylist()]


def content_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def blanked(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row | {"frame": row["frame"].replace(SECRET, b"*" * len(SECRET))} for row in rows]


def assert_redacted(folder: Path, before: list[dict[str, Any]]) -> None:
    assert not [name for name, content in content_of(folder).items() if SECRET in content]
    assert rows_in(folder) == blanked(before)
    assert verify_log(folder).damages == []


def test_secrets_are_blanked_and_nothing_else_changes(written: Path) -> None:
    before, files = rows_in(written), content_of(written)
    found = redact_log(written, blank_passwords, AT_US)
    assert found.segments == len(list_segments(written)) > 2
    assert found.rewritten == sorted(name for name, content in files.items() if SECRET in content)
    assert_redacted(written, before)
    after = content_of(written)
    for name in files.keys() - {"lock"}:
        assert len(after[name]) == len(files[name])
        if not name.endswith(".seg"):
            assert after[name] == files[name], "lookup indexes, offsets and the watermark stay"


def test_a_second_run_changes_nothing(written: Path) -> None:
    redact_log(written, blank_passwords, AT_US)
    files = content_of(written)
    inodes = [segment_path(written, first).stat().st_ino for first in list_segments(written)]
    assert redact_log(written, blank_passwords, AT_US).rewritten == []
    assert content_of(written) == files
    assert [segment_path(written, first).stat().st_ino for first in list_segments(written)] == inodes


def test_a_preview_touches_nothing(written: Path) -> None:
    files = content_of(written)
    found = preview_redaction(written, blank_passwords)
    assert content_of(written) == files
    assert found == redact_log(written, blank_passwords, AT_US)


def test_only_records_of_the_time_are_changed(written: Path) -> None:
    redact_log(written, blank_passwords, AT_US, since_us=AT_US + 23, until_us=AT_US + 53)
    with_secret = [row["seq"] for row in rows_in(written) if SECRET in row["frame"]]
    assert with_secret == [3, 13, 53, 63]
    assert verify_log(written).damages == []


def test_lookups_and_the_next_writer_work_as_before(written: Path) -> None:
    found = list(LogLookup(written).ranges([session_key("s3")]))
    redact_log(written, blank_passwords, AT_US)
    assert list(LogLookup(written).ranges([session_key("s3")])) == found
    log = SegmentLog(written, SETTINGS)
    assert (log.recovery.clean, log.recovery.damages, log.next_seq) == (True, [], ROWS)
    assert log.committed_offset("pipeline") == 50
    log.close()


def test_a_reader_goes_on_with_the_segment_that_it_has_open(written: Path) -> None:
    before = rows_in(written)
    batches = LogReader(written).read()
    seen = next(batches).to_pylist()
    redact_log(written, blank_passwords, AT_US)
    rows = seen + [row for batch in batches for row in batch.to_pylist()]
    assert blanked(rows) == blanked(before)


def test_a_log_that_is_being_written_is_refused_but_can_be_looked_at(written: Path) -> None:
    log = SegmentLog(written, SETTINGS)
    try:
        log.append(AT_US, "x", "frame", "in", "", "", "", b"password=" + SECRET).wait(9)
        with pytest.raises(InUseError, match="stop the gateway first"):
            redact_log(written, blank_passwords, AT_US)
        name = segment_path(written, ROWS).name
        assert preview_redaction(written, blank_passwords).rewritten[-1] == name
    finally:
        log.close()
    assert redact_log(written, blank_passwords, AT_US).rewritten[-1] == name


def test_there_is_no_log(folder: Path) -> None:
    folder.mkdir()
    with pytest.raises(InputError, match="no log"):
        redact_log(folder, blank_passwords, AT_US)
    assert list(folder.iterdir()) == []


# Frames that share a tail


def test_the_tail_that_frames_share_is_blanked_in_all_of_them(folder: Path) -> None:
    log = SegmentLog(folder, SETTINGS)
    tail = b"." * 9_000 + b" password=" + SECRET + b" " + b"." * 20_000
    for number in range(3):
        log.append(AT_US, "x", "frame", "in", "", "", "", b"%d" % number * 2_000 + tail).wait(9)
    log.append_many(AT_US, "x", "frame", "in", "", "", "", [b"a" * 3_000 + tail, b"b" * 3_000 + tail]).wait(9)
    log.append(AT_US, "x", "frame", "in", "", "", "", b"password=" + SECRET + b" " + b"c" * 2_000 + tail).wait(9)
    log.close()
    assert content_of(folder)[segment_path(folder, 0).name].count(SECRET) < 6, "some of them are references"
    before = rows_in(folder)
    redact_log(folder, blank_passwords, AT_US)
    assert_redacted(folder, before)


# Damage


def damage_block(folder: Path, seq: int) -> Path:
    first = max(first for first in list_segments(folder) if first <= seq)
    segment = MappedSegment(segment_path(folder, first), first, None)
    block = next(block for block in segment.scan() if block.first_seq <= seq < block.end_seq)
    with segment.path.open("r+b") as file:
        file.seek(block.offset + HEADER_BYTES + 8)
        file.write(b"\xff\x00\xff")
    return segment.path


def test_a_damaged_block_is_reported_and_the_rest_is_redacted(written: Path) -> None:
    path = damage_block(written, 13)
    found = redact_log(written, blank_passwords, AT_US)
    assert [(damage.segment, damage.rows) for damage in found.damages] == [(path.name, 1)]
    assert [row["seq"] for row in rows_in(written) if SECRET in row["frame"]] == []
    assert SECRET in path.read_bytes(), "where in a damaged block a secret is, nobody knows"


def test_the_bytes_of_a_hole_are_blanked(written: Path) -> None:
    path = damage_block(written, 63)
    assert int(path.stem) == list_segments(written)[-1]
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 8)  # as after a crash: the next writer looks at all blocks
    found = redact_log(written, blank_passwords, AT_US)
    assert found.damages == []
    first = int(path.stem)
    assert BlockState.HOLE in [block.state for block in MappedSegment(path, first, None).scan()]
    assert SECRET not in path.read_bytes()
    assert verify_log(written).rows_lost_before == 1


# Crashes


@pytest.fixture
def redactor() -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-m", crash_redactor.__name__]
    tests = Path(__file__).parent.parent.parent
    with subprocess.Popen(command, cwd=tests, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()


def test_killed_at_any_step_every_segment_is_the_old_or_the_new_one(
    written: Path, tmp_path: Path, redactor: "subprocess.Popen[str]"
) -> None:
    assert redactor.stdin is not None
    assert redactor.stdout is not None
    before, old = rows_in(written), content_of(written)
    complete = tmp_path / "complete"
    shutil.copytree(written, complete)
    redact_log(complete, blank_passwords, AT_US)
    new = content_of(complete)
    step, mixed = 0, 0
    while True:
        copy = tmp_path / f"step{step}"
        shutil.copytree(written, copy)
        redactor.stdin.write(f"{step} {copy}\n")
        redactor.stdin.flush()
        if redactor.stdout.readline().strip() == "done":
            break
        found = content_of(copy)
        segments = [name for name in old if name.endswith(".seg")]
        assert all(found[name] in (old[name], new[name]) for name in segments)
        mixed += (
            0
            < sum(found[name] == new[name] != old[name] for name in segments)
            < sum(new[name] != old[name] for name in segments)
        )
        assert blanked(rows_in(copy)) == blanked(before)
        assert verify_log(copy).damages == []
        redact_log(copy, blank_passwords, AT_US)  # the second run does the rest
        assert_redacted(copy, before)
        assert not list(copy.rglob(f"*{TEMP_SUFFIX}"))
        step += 1
    assert step == 5 * sum(new[name] != content for name, content in old.items() if name.endswith(".seg"))
    assert mixed
