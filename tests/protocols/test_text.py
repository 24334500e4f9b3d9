import pytest
from hypothesis import given
from hypothesis import strategies as st

from wirelake.errors import LimitError, ProtocolError
from wirelake.limits import JSON_DEPTH_MAX
from wirelake.protocols.text import read_json, write_json


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused_by_name(data: bytes) -> None:
    offset = 0
    try:
        read_json(data)
    except ProtocolError as error:
        offset = error.offset
    assert 0 <= offset <= len(data)


@pytest.mark.parametrize(
    ("data", "code", "offset"),
    [
        (b'{"a": x}', "bad_json", 16),
        (b'"\xff"', "bad_utf8", 10),
        (b"[" * 100_000, "json_depth_max", 10),
        (b"", "bad_json", 10),
        (b"1e999", "bad_json", 15),
    ],
)
def test_the_place_is_named(data: bytes, code: str, offset: int) -> None:
    with pytest.raises(ProtocolError) as caught:
        read_json(data, 10)
    assert (caught.value.code, caught.value.offset) == (code, offset)


def test_what_is_written_is_compact() -> None:
    assert write_json({"a": [1, "ü", b"\xff"]}) == '{"a":[1,"ü","/w=="]}'.encode()


@pytest.mark.parametrize(
    "data",
    [
        b"[" * JSON_DEPTH_MAX + b"]" * JSON_DEPTH_MAX,
        b'{"a":' * JSON_DEPTH_MAX + b"1" + b"}" * JSON_DEPTH_MAX,
        b"[" + b",".join([b'["]]{{",1]'] * 500) + b"]",
        b'["' + b"[" * 500 + b'"]',
        rb'["\"[[[[\\"' + b",[]" * 200 + b"]",
    ],
)
def test_what_is_within_the_depth_is_read_and_written(data: bytes) -> None:
    assert read_json(write_json(read_json(data))) == read_json(data)


@pytest.mark.parametrize(
    "data",
    [
        b"[" * (JSON_DEPTH_MAX + 1) + b"]" * (JSON_DEPTH_MAX + 1),
        b'{"a":[' * JSON_DEPTH_MAX + b"1" + b"]}" * JSON_DEPTH_MAX,
        b'["]",' * (JSON_DEPTH_MAX + 1) + b"1" + b',"["]' * (JSON_DEPTH_MAX + 1),
        rb'["\"]",' * (JSON_DEPTH_MAX + 1) + b"1" + rb',"[\""]' * (JSON_DEPTH_MAX + 1),
    ],
)
def test_deeper_json_is_refused_whatever_its_strings_hold(data: bytes) -> None:
    with pytest.raises(LimitError) as caught:
        read_json(data, 7)
    assert (caught.value.code, caught.value.offset) == ("json_depth_max", 7)


@pytest.mark.parametrize(
    "data",
    [
        b"[" + b"{}," * 200_000 + b"{}]",
        b"[" + b"[]," * 900_000 + b"[]]",
        b"[" + b"1," * 4_100_000 + b"1]",
        b"[" + b'"",' * 4_100_000 + b'""]',
    ],
    ids=["objects", "lists", "numbers", "texts"],
)
def test_json_that_takes_too_long_to_read_is_refused(data: bytes) -> None:
    with pytest.raises(LimitError) as caught:
        read_json(data, 7)
    assert (caught.value.code, caught.value.offset) == ("json_weight_max", 7)


@pytest.mark.parametrize(
    "data",
    [
        b"[" + b'{"time":1,"price":2.5},' * 99_999 + b"{}]",
        b'["' + b"a,{[:" * 2_000_000 + b'"]',
        b'["' + rb"\",{" * 1_000_000 + b'"]',
    ],
    ids=["many records", "a long text with commas", "escaped quotes"],
)
def test_large_json_that_is_read_fast_is_read(data: bytes) -> None:
    assert isinstance(read_json(data), list)
