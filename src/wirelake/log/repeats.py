"""Large frames that a segment holds already are written as a reference to what they repeat.

A value of a megabyte that is asked for again and again would fill the log with copies of itself. So of every large
frame the tail is looked for (see repeat_index.py): its last bytes, a multiple of 4 KiB, without a head of one to five
KiB in which a request's number or a time may stand. If a frame of the same segment has the same tail, the block holds
the head alone, and says where the tail is. Readers put both together (see `SegmentMap.batch`): nobody above the log
sees a difference.

References stay inside a segment, because a segment is removed as a whole: who can read the reference can read what it
refers to. They point to whole frames, never to another reference.

    count | for each: row, offset of the block with the tail (0: this one), row there, tail bytes | zeros to 64 | batch

All numbers are i64, little endian.
"""

from array import array
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import pyarrow as pa
from msgspec import json

from wirelake.log.block import Bytes, aligned
from wirelake.log.schema import BYTES, SCHEMA, TEXT

MISSING: Final = "missing_tail_bytes"  # in the note of a record whose tail was lost: so much is missing
THIS_BLOCK: Final = 0
_NUMBERS: Final = 4
_NUMBER_BYTES: Final = 8
_FRAME: Final = SCHEMA.get_field_index("frame")
_NOTE: Final = SCHEMA.get_field_index("note")

SourceFrames = Callable[[int], Any]  # a block's offset → its frames as they are stored; None if it was lost


class Reference(NamedTuple):
    row: int
    offset: int
    source_row: int
    tail_bytes: int


def write_body(batch: Any, references: list[Reference]) -> Bytes:
    """Return the body of a block with these references."""
    frames = batch.column(_FRAME)
    heads = [frames[each.row].as_buffer().to_pybytes()[: -each.tail_bytes] for each in references]
    short = batch.set_column(_FRAME, SCHEMA.field(_FRAME), _with_rows(frames, references, heads, BYTES))
    numbers = array("q", [len(references), *(number for each in references for number in each)]).tobytes()
    return b"".join((numbers.ljust(aligned(len(numbers)), b"\0"), short.serialize()))


def read_body(body: Any, schema: Any) -> tuple[list[Reference], Any]:
    """Return the references and the batch as it is stored."""
    view = memoryview(body)
    count = int.from_bytes(view[:_NUMBER_BYTES], "little")
    end = _NUMBER_BYTES * (1 + _NUMBERS * count)
    numbers = view[_NUMBER_BYTES:end].cast("q").tolist()
    references = [Reference(*numbers[at : at + _NUMBERS]) for at in range(0, len(numbers), _NUMBERS)]
    return references, pa.ipc.read_record_batch(body.slice(aligned(end)), schema)


def expand(batch: Any, references: list[Reference], source: SourceFrames) -> Any:
    """Return the records with whole frames. Where the tail is lost, the frame is the head, and the note says so."""
    frames, notes = batch.column(_FRAME), batch.column(_NOTE)
    whole: list[bytes] = []
    lost: list[tuple[Reference, str]] = []
    for each in references:
        head = frames[each.row].as_py()
        stored = frames if each.offset == THIS_BLOCK else source(each.offset)
        if stored is None:
            whole.append(head)
            note = notes[each.row].as_py()
            values = {**(json.decode(note) if note else {}), MISSING: each.tail_bytes}
            lost.append((each, json.encode(values).decode()))
        else:
            tail = memoryview(stored[each.source_row].as_buffer())[-each.tail_bytes :]
            whole.append(b"".join((head, tail)))
    batch = batch.set_column(_FRAME, SCHEMA.field(_FRAME), _with_rows(frames, references, whole, BYTES))
    if lost:
        texts = _with_rows(notes, [each for each, _ in lost], [text for _, text in lost], TEXT)
        batch = batch.set_column(_NOTE, SCHEMA.field(_NOTE), texts)
    return batch


def _with_rows(column: Any, references: list[Reference], values: list[Any], kind: Any) -> Any:
    """Return the column with these rows replaced."""
    pieces: list[Any] = []
    done = 0
    for each, value in zip(references, values, strict=True):
        pieces += [column.slice(done, each.row - done), pa.array([value], kind)]
        done = each.row + 1
    return pa.concat_arrays([*pieces, column.slice(done)])
