"""Exported .ksy files: they compile, and read every type of field as the decoder does."""

from pathlib import Path
from typing import Any

import pytest
from kaitaistruct import KaitaiStructError

from layout.export.comparison import compare_kaitai
from layout.export.kaitai_compiler import compile_ksy, parse
from layout.export.samples import LAYOUTS, samples
from layout.sampler import SAMPLER, Colour, Marks, protocol
from wirelake.layout import FrameSet
from wirelake.layout.export.kaitai import kaitai_struct
from wirelake.protocols.frame import Sender
from wirelake.protocols.inspection import as_values, inspect


def is_readable(layout: FrameSet, frame: bytes, sender: Sender) -> bool:
    """Return whether also the frames inside a frame can be read: if not, Kaitai Struct cannot read the one around."""
    return inspect(frame, protocol(layout), sender).failure is None


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.name)
def test_streams_of_frames(layout: FrameSet, tmp_path: Path, kaitai: Path) -> None:
    reader = compile_ksy(kaitai, tmp_path, layout.name, kaitai_struct(layout, layout.name))
    sent = samples(layout)
    compared = 0
    for sender in Sender:
        frames = [frame for by, frame in sent if by is sender and is_readable(layout, frame, sender)]
        streams = frames if layout.envelope.is_datagram else [b"".join(frames)]
        read = [fields for stream in streams for fields in parse(reader, stream, sender)]
        assert len(read) == len(frames)
        for frame, fields in zip(frames, read, strict=True):
            (found,) = as_values(inspect(frame, protocol(layout), sender))["frames"]
            compared += compare_kaitai(found, frame, fields, layout)
    assert compared >= len(sent)


def marks(**changes: Any) -> bytes:
    values = {"version": 3, "colour": Colour.RED, "level": 0, "params": 1, "tenths": 1, "sign": b"OK", "count": 1}
    return Marks(**{**values, "size": 1, "frame": "f", **changes}).encode()


@pytest.mark.parametrize(("place", "byte"), [(0, 0xCB), (7, 4), (8, 3), (10, 0x80), (13, 0x4E)])
def test_wrong_values_are_refused(tmp_path: Path, kaitai: Path, place: int, byte: int) -> None:
    """Refuse other constants, values that are not in a closed set, and reserved bits."""
    reader = compile_ksy(kaitai, tmp_path, "sampler", kaitai_struct(SAMPLER, "sampler"))
    frame = bytearray(marks())
    assert len(parse(reader, bytes(frame), Sender.CLIENT)) == 1
    assert frame[place] != byte
    frame[place] = byte
    with pytest.raises(KaitaiStructError):
        parse(reader, bytes(frame), Sender.CLIENT)
