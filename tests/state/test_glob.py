import pytest

from wirelake.state.glob import compile_glob


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        (b"*", [b"", b"a", b"a\nb", b"\xff"], []),
        (b"a*", [b"a", b"ab"], [b"", b"ba"]),
        (b"*a", [b"a", b"aa", b"ba", b"aba"], [b"ab", b""]),
        (b"a*b*c", [b"abc", b"axbxc", b"abbcc", b"abcbc"], [b"acb", b"ab"]),
        (b"**a**", [b"a", b"xax"], [b"x"]),
        (b"h?llo", [b"hello", b"h\nllo"], [b"hllo", b"heello"]),
        (b"h[ae]llo", [b"hello", b"hallo"], [b"hillo"]),
        (b"h[^e]llo", [b"hallo"], [b"hello"]),
        (b"h[a-c]llo", [b"hbllo"], [b"hdllo", b"h-llo"]),
        (b"h[c-a]llo", [b"hbllo"], [b"hdllo"]),
        (b"[\\]a]", [b"]", b"a"], [b"\\"]),
        (b"[a", [b"a"], [b"[a", b"b"]),
        (b"[]", [], [b"", b"]"]),
        (b"\\*", [b"*"], [b"a", b"\\*"]),
        (b"a.c", [b"a.c"], [b"abc"]),
        (b"a\\", [b"a\\"], [b"a"]),
        (b"*[0-9]x?", [b"0xa", b"aa1x1x2"], [b"x", b"0x"]),
    ],
)
def test_patterns_mean_what_redis_means(pattern: bytes, yes: list[bytes], no: list[bytes]) -> None:
    matches = compile_glob(pattern).fullmatch
    assert [key for key in yes if not matches(key)] == []
    assert [key for key in no if matches(key)] == []


def test_many_stars_do_not_take_forever() -> None:
    assert not compile_glob(b"*a" * 40 + b"b").fullmatch(b"a" * 5000)
