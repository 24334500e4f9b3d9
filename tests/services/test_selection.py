from typing import Any

import pytest

from wirelake.services.selection import Format, Names, read_selection

NAMED = {"key": "a", "sdb": "day"}


@pytest.mark.parametrize(
    ("options", "since", "until", "count", "newest"),
    [
        ({}, None, None, None, True),
        ({"min": 5}, 5, None, None, False),
        ({"max": "7"}, None, 7, None, True),
        ({"count": 3}, None, None, 3, True),
        ({"count": 3, "min": 5.0}, 5, None, 3, False),
        ({"count": -3, "min": 5}, 5, None, 3, True),
        ({"msg": [11, "x", {"min": 16}]}, 16, None, None, False),
        ({"msg": [{"min": 16, "key": "other"}], "min": 1}, 1, None, None, False),
    ],
)
def test_ranges(options: dict[str, Any], since: Any, until: Any, count: Any, *, newest: bool) -> None:
    found = read_selection({**options, **NAMED}, "get")
    assert (found.since, found.until, found.count, found.newest) == (since, until, count, newest)
    assert found.names == Names("a", "day")


def test_names() -> None:
    assert Names("a", "day").is_single
    assert not Names("a,b", "day").is_single
    assert not Names("a", "*").is_single
    assert Names("a,b,a", "x,y").each() == [("a", "x"), ("b", "x"), ("a", "y"), ("b", "y")]
    assert read_selection({"key": 600600, "sdb": "day"}, "get").names.keys == "600600", (
        "a number is taken for its digits"
    )


def test_fields_and_forms() -> None:
    rows = [(1, 2.5), (2, 3.5)]
    plain = read_selection(NAMED, "get")
    assert plain.apply(("time", "x"), rows) == rows
    some = read_selection({**NAMED, "fields": "x,time"}, "get")
    assert some.apply(("time", "x"), rows) == [[2.5, 1], [3.5, 2]]
    objects = read_selection({**NAMED, "fields": ["x"], "format": "json"}, "get")
    assert objects.apply(("time", "x"), rows) == [{"x": 2.5}, {"x": 3.5}]
    everything = read_selection({**NAMED, "fields": True, "format": Format.ARRAY}, "get")
    assert (everything.fields, everything.describe) == ((), True)
