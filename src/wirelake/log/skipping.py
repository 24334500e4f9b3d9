"""Let a log go on behind records that are lost: no seq is ever given twice.

The lost records become holes, as damaged blocks do: readers step over them and count them.
"""

import time
from pathlib import Path

from wirelake.errors import StorageError
from wirelake.log.block import HEADER_BYTES, ROWS_MAX, Header, Kind, write_header
from wirelake.log.files import Files
from wirelake.log.lock import WriterLock
from wirelake.log.mark import Mark
from wirelake.log.recovery import recover
from wirelake.log.segment import FIRST_BLOCK, Place, segment_path, write_head
from wirelake.log.segmentwriter import seal_segment


def skip_records(folder: Path, from_seq: int, to_seq: int) -> None:
    """Begin the next record at `to_seq`; the log says of those from `from_seq` on that they are lost.

    The log must not be open. Where it has records, `from_seq` is its end.
    """
    files = Files()
    now_us = time.time_ns() // 1000
    lock = WriterLock(folder)
    try:
        salt = recover(folder, files, now_us).salt
        for first in range(from_seq, to_seq, ROWS_MAX):
            _write_hole(folder, files, first, min(first + ROWS_MAX, to_seq), now_us, salt)
        mark = Mark(folder, writable=True)
        mark.move(to_seq)
        mark.flush()
    except OSError as error:
        raise StorageError(f"the log in {folder} cannot be continued at record {to_seq}: {error}") from error
    finally:
        lock.release()


def _write_hole(folder: Path, files: Files, first_seq: int, end_seq: int, now_us: int, salt: int) -> None:
    """A sealed segment that holds nothing else."""
    hole = Header(Kind.HOLE, end_seq - first_seq, first_seq, 0, now_us, now_us, 0)
    fd = files.create(segment_path(folder, first_seq))
    try:
        files.write(fd, [write_head(first_seq, now_us, salt)], 0)
        files.write(fd, [write_header(hole, salt)], FIRST_BLOCK)
        places = [Place(first_seq, FIRST_BLOCK, now_us, now_us)]
        seal_segment(files, fd, places, FIRST_BLOCK + HEADER_BYTES, first_seq, end_seq, salt)
    finally:
        files.close(fd)
    files.fsync_dir(folder)
