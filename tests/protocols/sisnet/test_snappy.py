import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.sisnet.strategies import any_frames
from wirelake.errors import LimitError, ProtocolError
from wirelake.protocols.sisnet import snappy
from wirelake.protocols.sisnet.binary import BinaryAnswer, BinaryRequest
from wirelake.protocols.sisnet.envelope import SisnetFrame
from wirelake.protocols.sisnet.forms import DataLine, Json


def test_known_answer() -> None:
    assert snappy.unpack(b"\x05\x10hello") == b"hello"
    assert snappy.unpack(b"\x08\x0cabcd\x01\x04") == b"abcdabcd"  # a copy: 4 bytes from 4 back
    assert snappy.pack(b"hello") == b"\x05\x10hello"
    assert len(snappy.pack(b"a" * 10_000)) < 600


@given(st.binary(max_size=500))
def test_round_trip(data: bytes) -> None:
    assert snappy.unpack(snappy.pack(data)) == data


@given(st.binary(max_size=60))
def test_any_bytes_are_unpacked_or_refused_by_name(data: bytes) -> None:
    code = ""
    try:
        snappy.unpack(data, 1000)
    except ProtocolError as error:
        code = error.code
    assert code in {"", "bad_snappy", "sisnet_inflated_bytes_max"}


@pytest.mark.parametrize("data", [b"", b"\x05", b"\x05\x00", b"\xff" * 6])
def test_what_is_not_snappy(data: bytes) -> None:
    with pytest.raises(ProtocolError) as caught:
        snappy.unpack(data)
    assert caught.value.code == "bad_snappy"


def test_content_that_would_grow_too_long_is_refused_by_its_head() -> None:
    assert snappy.unpack(snappy.pack(b"x" * 100), 100) == b"x" * 100
    with pytest.raises(LimitError):
        snappy.unpack(snappy.pack(b"x" * 101), 100)
    with pytest.raises(LimitError):
        snappy.unpack(b"\xff\xff\xff\xff\x0f" + b"\x00")


@given(any_frames)
def test_frames_keep_all_but_their_contents(frame: SisnetFrame) -> None:
    packed = snappy.pack_frame(frame)
    assert type(packed) is type(frame)
    assert snappy.unpack_frame(packed) == frame


def test_only_contents_are_packed() -> None:
    line = DataLine("n", "set", "k", "s", b"hello")
    assert snappy.pack_frame(line) == DataLine("n", "set", "k", "s", b"\x05\x10hello")
    request = BinaryRequest(message_name="n", command=b"get", ask=b"hello")
    assert snappy.pack_frame(request) == BinaryRequest(message_name="n", command=b"get", ask=b"\x05\x10hello")
    ok = BinaryAnswer(message_name="n")
    assert snappy.pack_frame(ok) is ok
    text = Json.of("n", {"ans": 0})
    assert snappy.pack_frame(text) is text
