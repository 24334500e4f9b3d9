import pytest

from wirelake.errors import ProtocolError
from wirelake.protocols.tree import Dissector


def test_fields_stand_where_they_were_read() -> None:
    d = Dissector(b"\x01\x00\x02\x00\x00\x00\x03abcd\xfe", "thing")
    assert d.u8("a") == 1
    with d.group("inner") as inner:
        assert d.u16("b") == 2
        assert d.u32("c") == 3
    assert d.text("d", 2) == "ab"
    assert d.raw("e", 2, "raw") == b"cd"
    assert d.number("f", "b") == -2
    d.finish()
    assert (inner.offset, inner.size) == (1, 6)
    assert [(leaf.name, leaf.offset, leaf.size) for leaf in d.root.leaves()] == [
        ("a", 0, 1), ("b", 1, 2), ("c", 3, 4), ("d", 7, 2), ("e", 9, 2), ("f", 11, 1),
    ]  # fmt: skip
    assert d.root.find("inner", "c").value == 3


def test_little_endian() -> None:
    assert Dissector(b"\x01\x00", "thing", big_endian=False).u16("a") == 1


def test_reads_stop_at_the_end_and_at_the_window() -> None:
    d = Dissector(b"abcd", "thing")
    d.raw("a", 2)
    with pytest.raises(ProtocolError, match="b needs 2 bytes, 1 are left") as caught, d.window(1):
        d.raw("b", 2)
    assert caught.value.offset == 3
    with pytest.raises(ProtocolError, match="2 bytes too many") as caught:
        d.finish()
    assert (caught.value.code, caught.value.offset) == ("trailing", 2)
    with pytest.raises(ProtocolError), d.window(5):
        pass


def test_bad_text_is_refused_at_the_bad_byte() -> None:
    with pytest.raises(ProtocolError) as caught:
        Dissector(b"ok\xff", "thing").text("a", 3)
    assert (caught.value.code, caught.value.offset) == ("bad_utf8", 2)
