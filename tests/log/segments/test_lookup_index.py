from collections.abc import Sequence
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from wirelake.log.segments.lookup_index import (
    PARTS_MAX,
    IndexedRange,
    LookupIndex,
    encode_index,
    index_path,
    list_indexes,
    part_rows,
)
from wirelake.log.segments.lookup_keys import Hashes, KeyKind, LookupKey, hash_texts, session_key

SALT = 7


def write(folder: Path, parts: Sequence[Hashes], rows: int = 640, first_seq: int = 100) -> Path:
    folder.mkdir(exist_ok=True)
    path = index_path(folder, first_seq)
    path.write_bytes(encode_index(IndexedRange(first_seq, first_seq + rows, 5, 9, SALT), parts, 1))
    return path


def hashes(*keys: LookupKey) -> Hashes:
    return np.array([value for key in keys for value in key.hashes(1)], np.uint64)


def find(folder: Path, *keys: LookupKey) -> list[range]:
    index = LookupIndex.open(folder, 100, SALT)
    assert index is not None
    with index:
        assert index.is_valid()
        return index.find(keys)


@pytest.mark.parametrize("count", [0, 1, 63, 64, 65, 1000, 100_000])
def test_a_segment_has_parts_of_equal_size(count: int) -> None:
    rows = part_rows(100, 100 + count)
    assert rows * PARTS_MAX >= count
    assert rows == 1 or (rows - 1) * PARTS_MAX < count


def test_each_key_leads_to_the_parts_that_have_it(folder: Path) -> None:
    parts = [hashes(session_key(f"s-{number}"), session_key("everywhere")) for number in range(64)]
    write(folder, parts)
    assert find(folder, session_key("s-0")) == [range(100, 110)]
    assert find(folder, session_key("s-63"), session_key("s-7")) == [range(170, 180), range(730, 740)]
    assert len(find(folder, session_key("everywhere"))) == 64
    assert find(folder, session_key("nowhere")) == []
    assert list_indexes(folder) == [100]


def test_the_last_part_ends_with_the_segment(folder: Path) -> None:
    write(folder, [hashes(session_key("a")), hashes(session_key("b"))], rows=65)
    assert find(folder, session_key("b")) == [range(102, 104)]
    write(folder, [np.empty(0, np.uint64)] * 32 + [hashes(session_key("c"))], rows=65)
    assert find(folder, session_key("c")) == [range(164, 165)]


def test_no_key_of_a_large_index_is_missed_and_hardly_any_other_is_found(folder: Path) -> None:
    random = Random(1)
    sessions = [f"{random.getrandbits(40):x}-{number}" for number in range(20_000)]
    parts = [hash_texts(KeyKind.SESSION, pa.array(sessions[number::64])) for number in range(64)]
    path = write(folder, parts)
    assert path.stat().st_size < 20_000 * 4 + 500, "four bytes for a key, and a little"
    index = LookupIndex.open(folder, 100, SALT)
    assert index is not None
    with index:
        for number, session in enumerate(sessions[:1000]):
            part = number % 64
            assert range(100 + part * 10, 110 + part * 10) in index.find([session_key(session)])
        others = sum(len(index.find([session_key(f"other-{number}")])) for number in range(1000))
    assert others <= 2


@pytest.mark.parametrize("change", ["head", "table", "cut", "empty", "version", "another log", "another segment"])
def test_what_is_not_a_valid_index_is_none(folder: Path, change: str) -> None:
    path = write(folder, [hashes(session_key(f"s-{number}")) for number in range(64)])
    raw = bytearray(path.read_bytes())
    if change == "head":
        raw[20] ^= 1
    elif change == "table":
        raw[74] ^= 1
    elif change == "cut":
        raw = raw[:76]
    elif change == "empty":
        raw = bytearray()
    elif change == "version":
        raw[8] += 1
    path.write_bytes(raw)
    if change == "another segment":
        path.rename(index_path(folder, 200))
    first_seq = 200 if change == "another segment" else 100
    assert LookupIndex.open(folder, first_seq, SALT + (change == "another log")) is None


def test_a_damaged_bucket_is_noticed_by_whoever_reads_it(folder: Path) -> None:
    path = write(folder, [hashes(session_key(f"s-{number}")) for number in range(64)])
    raw = bytearray(path.read_bytes())
    raw[-1] ^= 1
    path.write_bytes(raw)
    index = LookupIndex.open(folder, 100, SALT)
    assert index is not None
    with index:
        index.find([session_key("s-1")])
        assert index.is_damaged
        assert not index.is_valid()
