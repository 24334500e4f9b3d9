"""What the workbench finds in frames of our own protocols, of whose codecs it knows nothing, and in random bytes."""

import random
import time
from functools import reduce
from operator import xor
from pathlib import Path
from typing import Any

import pytest
from fastcrc import crc8, crc16, crc32
from hypothesis import given, settings
from hypothesis import strategies as st

from wirelake.errors import InputError
from wirelake.workbench.analysis import Analysis, analyse, limit
from wirelake.workbench.draft import decodes
from wirelake.workbench.evidence import Proposal, Sample
from wirelake.workbench.limits import WORKBENCH_BYTES_MAX, WORKBENCH_CONFIDENT_BITS, WORKBENCH_FRAMES_MAX
from wirelake.workbench.samples import parse_samples
from workbench.traffic import CONVERSATIONS, beacon_samples, recorded, samples_of, segments_of

# Offset, size and order; of a length also what it counts, of a checksum also which it is. None: there is none to find.
EXPECTED: dict[str, dict[str, Any]] = {
    "comet": {"length": (0, 2, "big", "rest", 0), "checksum": None, "opcode": (2, 1)},
    "magline": {"length": (12, 4, "big", "rest", 0), "checksum": None, "opcode": (3, 1), "counter": (8, 4)},
    "apostol": {
        "length": (0, 1, "big", "rest", 0),
        "checksum": (-2, 2, "little", "CRC-16/MODBUS"),
        "opcode": (2, 1),
        "counter": (12, 1),
    },
    # No length of its own, but records with sizes. What is asked for is a text; the flag says whether it is a question.
    "esnp": {"length": None, "checksum": None, "records": (0, 4, "big")},
    "beacon": {"length": (1, 1, "big", "rest", -2), "checksum": None, "opcode": None, "constant": (0, 1)},
}


def found_in(samples: list[Sample], *, are_segments: bool = False) -> Analysis:
    return analyse(samples, time.monotonic, are_segments=are_segments, within_s=600)


def brief(finding: Proposal | None) -> Any:
    if finding is None:
        return None
    place = (finding.offset, finding.size)
    match finding.kind:
        case "length":
            return (*place, finding.order, finding.counts, finding.plus)
        case "checksum":
            return (*place, finding.order, finding.algorithm)
        case "records":
            return (*place, finding.order)
    return place


def check(name: str, found: Analysis) -> None:
    assert {kind: brief(found.best(kind)) for kind in EXPECTED[name]} == EXPECTED[name]
    assert all(finding.bits >= WORKBENCH_CONFIDENT_BITS for finding in found.findings)
    assert found.is_complete
    if EXPECTED[name]["length"] is not None:
        assert found.draft_decodes == found.distinct, "the draft decodes every sample"


@pytest.mark.parametrize("name", CONVERSATIONS)
async def test_it_finds_the_layout_of_our_protocols(tmp_path: Path, name: str) -> None:
    recording = await recorded(name, tmp_path)
    check(name, found_in(samples_of(name, recording)))
    cut = found_in(segments_of(recording), are_segments=True)
    check(name, cut)
    assert cut.was_cut is (EXPECTED[name]["length"] is not None)


def test_it_finds_the_layout_of_an_installed_protocol() -> None:
    check("beacon", found_in(beacon_samples()))


def test_frames_that_share_a_segment_are_cut_by_their_length() -> None:
    frames = [sample.frame for sample in beacon_samples(200)]
    dice, segments = random.Random(1), []
    while frames:
        count = dice.choice((1, 1, 1, 2, 3))
        segments.append(Sample(b"".join(frames[:count]), "one"))
        del frames[:count]
    found = found_in(segments, are_segments=True)
    assert (found.was_cut, found.frames) == (True, 200)
    check("beacon", found)


# ── chance


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), count=st.integers(1, 120), size=st.integers(0, 48), cut=st.booleans())
def test_random_bytes_yield_nothing(seed: int, count: int, size: int, cut: bool) -> None:
    dice = random.Random(seed)
    samples = [Sample(dice.randbytes(size or dice.randrange(1, 80)), "one") for _ in range(count)]
    found = found_in(samples, are_segments=cut)
    assert found.findings == ()
    assert found.draft == ""


def test_the_same_frame_again_is_no_evidence() -> None:
    assert found_in([Sample(bytes.fromhex("0003aabbcc"))] * 500).findings == ()


def test_frames_of_one_size_show_no_length() -> None:
    dice = random.Random(2)
    found = found_in([Sample(b"\x00\x0a" + dice.randbytes(10)) for _ in range(100)])
    assert found.best("length") is None
    constant = found.best("constant")
    assert constant is not None
    assert constant.values == (0x00, 0x0A)
    assert found.draft_decodes == found.distinct, "frames of a fixed size can be described without a length"


# ── one kind after the other


@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("order", ["big", "little"])
@pytest.mark.parametrize(("counts", "plus"), [("rest", 0), ("frame", 0), ("rest", -2), ("frame", 3)])
def test_lengths(size: int, order: Any, counts: str, plus: int) -> None:
    dice, samples = random.Random(5), []
    for _ in range(80):
        body = dice.randbytes(dice.randrange(2, 90))
        value = len(body) + plus + (2 + size if counts == "frame" else 0)
        samples.append(Sample(b"\xa5\x5a" + value.to_bytes(size, order) + body))
    found = found_in(samples)
    length = found.best("length")
    assert length is not None
    assert (length.counts, length.plus, length.agree) == (counts, plus, 80)
    least = 2 if order == "little" else 2 + size - 1  # high bytes that are always zero may count as another field
    assert length.offset <= least < length.offset + length.size
    assert found.draft_decodes == 80


@pytest.mark.parametrize("order", ["big", "little"])
@pytest.mark.parametrize("start", [0, 1, 3])
@pytest.mark.parametrize(
    ("name", "size", "compute"),
    [
        ("CRC-8/SMBUS", 1, crc8.smbus),
        ("CRC-16/MODBUS", 2, crc16.modbus),
        ("CRC-16/XMODEM", 2, crc16.xmodem),
        ("CRC-32/ISO-HDLC", 4, crc32.iso_hdlc),
        ("XOR of all bytes", 1, lambda data: reduce(xor, data, 0)),
        ("sum of all bytes, 8 bits", 1, lambda data: sum(data) & 0xFF),
        ("sum of all bytes, negated, 16 bits", 2, lambda data: -sum(data) & 0xFFFF),
    ],
)
def test_checksums(name: str, size: int, compute: Any, start: int, order: Any) -> None:
    dice, samples = random.Random(5), []
    for _ in range(60):
        body = dice.randbytes(dice.randrange(2, 90))
        frame = bytes((len(body) + size,)) + body
        samples.append(Sample(frame + compute(frame[start:]).to_bytes(size, order)))
    found = found_in(samples)
    checksum = found.best("checksum")
    assert checksum is not None
    assert (checksum.offset, checksum.size, checksum.algorithm) == (-size, size, name)
    assert checksum.covers == (start, size)
    assert checksum.order == order or size == 1
    if start <= 1:
        assert "Checksum(" in found.draft
        broken = [samples[0].frame[:-1] + bytes((samples[0].frame[-1] ^ 1,))]
        assert decodes(found.draft, broken) == 0, "the draft checks it"
    assert found.draft_decodes == 60


def test_a_checksum_before_what_it_covers() -> None:
    dice, samples = random.Random(5), []
    for _ in range(60):
        body = dice.randbytes(dice.randrange(2, 90))
        samples.append(Sample(b"\x7e" + crc16.modbus(body).to_bytes(2, "big") + body))
    checksum = found_in(samples).best("checksum")
    assert checksum is not None
    assert (checksum.offset, checksum.order, checksum.algorithm, checksum.covers) == (1, "big", "CRC-16/MODBUS", (3, 0))


@pytest.mark.parametrize(
    ("size", "per_second", "unit"), [(4, 1, "seconds"), (8, 1, "seconds"), (8, 1000, "milliseconds")]
)
@pytest.mark.parametrize("order", ["big", "little"])
def test_timestamps(size: int, per_second: int, unit: str, order: Any) -> None:
    dice, at = random.Random(5), 1_790_000_000 * per_second
    samples = []
    for _ in range(60):
        at += dice.randrange(1, 90 * per_second)
        samples.append(Sample(b"\x11" + at.to_bytes(size, order) + dice.randbytes(6)))
    found = found_in(samples).best("timestamp")
    assert found is not None
    assert (found.offset, found.size, found.order) == (1, size, order)
    assert f"{unit} since 1970: 2026-09" in found.text


@pytest.mark.parametrize(("size", "step"), [(1, 1), (2, 1), (2, 3), (4, 1)])
def test_counters(size: int, step: int) -> None:
    dice = random.Random(5)
    numbers = [(250 + index * step) % 256**size for index in range(60)]
    found = found_in([Sample(each.to_bytes(size) + dice.randbytes(8)) for each in numbers]).best("counter")
    assert found is not None
    assert f"grows by {step} " in found.text
    assert found.offset + found.size == size


def test_texts_behind_their_length() -> None:
    dice = random.Random(5)
    texts = ["".join(dice.choices("abcdefgh", k=dice.randrange(4, 25))).encode() for _ in range(60)]
    found = found_in([Sample(b"\x01\xff" + len(text).to_bytes(2) + text + b"\x00\x80") for text in texts])
    assert any(each.text == "text behind its length, a u16 big" for each in found.findings)


# ── limits


def test_the_samples_are_limited() -> None:
    many = [Sample(index.to_bytes(4)) for index in range(10 * WORKBENCH_FRAMES_MAX)]
    kept = limit(many)
    assert len(kept) == WORKBENCH_FRAMES_MAX
    assert kept[-1].frame > many[len(many) * 8 // 10].frame, "they are taken from everywhere"
    large = limit([Sample(bytes(60_000))] * 500)
    assert 0 < sum(len(sample.frame) for sample in large) <= WORKBENCH_BYTES_MAX


def test_when_the_time_is_over_it_says_so() -> None:
    clock = iter(range(100_000))
    found = analyse(beacon_samples(), lambda: float(next(clock)), within_s=3)
    assert not found.is_complete
    assert found.best("length") is not None, "what was found until then is there"


def test_lines_of_hex() -> None:
    assert parse_samples("# two\n00 01\n\n  ff\n") == [Sample(b"\x00\x01"), Sample(b"\xff")]
    with pytest.raises(InputError, match="line 2: "):
        parse_samples("00\n0g\n")
    with pytest.raises(InputError, match="no frames given"):
        parse_samples("# nothing\n")
