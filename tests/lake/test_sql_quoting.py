import pytest

from wirelake.lake.sql_quoting import quote_at


@pytest.mark.parametrize(
    ("asked", "meant"),
    [
        ("SELECT at, seq FROM t WHERE at > 1", 'SELECT "at", seq FROM t WHERE "at" > 1'),
        ("SELECT max(AT) FROM t ORDER BY at", 'SELECT max("AT") FROM t ORDER BY "at"'),
        ("SELECT 'é', at FROM t", "SELECT 'é', \"at\" FROM t"),
        ("SELECT t.at FROM t", 'SELECT t."at" FROM t'),
        ("SELECT 'at', \"at\", format -- at\nFROM t", "SELECT 'at', \"at\", format -- at\nFROM t"),
        ("SELECT at AT TIME ZONE 'UTC' FROM t", "SELECT \"at\" AT TIME ZONE 'UTC' FROM t"),
        ("SELECT * FROM t AT (VERSION => 1)", "SELECT * FROM t AT (VERSION => 1)"),
        ("SELECT at::date, latest FROM t", 'SELECT "at"::date, latest FROM t'),
    ],
)
def test_the_column_may_be_named_without_quotes(asked: str, meant: str) -> None:
    assert quote_at(asked) == meant
