import sqlite3

from hypothesis import given
from hypothesis import strategies as st

from wirelake.commit import Commit
from wirelake.limits import STATE_STATEMENT_ROWS_MAX
from wirelake.state.batch import Batch, SingleRowStatement, Statement

SET = Statement("pairs", "INSERT OR REPLACE INTO pairs (name, value) VALUES ", "(?,?)")
DELETE = Statement("pairs", "DELETE FROM pairs WHERE name IN (", "?", ")")
RAISE = SingleRowStatement("pairs", "UPDATE pairs SET value = value + ? WHERE name = ?")

names = st.sampled_from(["a", "b", "c"])
steps = st.one_of(
    st.tuples(st.just("set"), names, st.integers(0, 9)),
    st.tuples(st.just("delete"), names, st.just(0)),
    st.tuples(st.just("raise"), names, st.integers(0, 9)),
)


def written(batch: Batch) -> dict[str, int]:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.execute("CREATE TABLE pairs (name TEXT PRIMARY KEY, value INTEGER)")
    batch.execute(connection)
    pairs = dict(connection.execute("SELECT name, value FROM pairs").fetchall())
    connection.close()
    return pairs


@given(st.lists(steps, max_size=30))
def test_a_lane_ends_as_if_each_step_had_been_written_by_itself(parts: list[tuple[str, str, int]]) -> None:
    batch = Batch(Commit())
    model: dict[str, int] = {}
    for kind, name, value in parts:
        if kind == "set":
            batch.add(SET, (name, value), name, 1)
            model[name] = value
        elif kind == "delete":
            batch.add(DELETE, (name,), None, 1)
            model.pop(name, None)
        else:
            batch.add(RAISE, (value, name), None, 1)
            model.update({name: model[name] + value} if name in model else {})
    assert written(batch) == model
    assert (batch.operations, batch.size_bytes) == (len(parts), len(parts))


def test_rows_of_any_number_are_all_written() -> None:
    for number in (1, 3, 5, STATE_STATEMENT_ROWS_MAX, STATE_STATEMENT_ROWS_MAX * 2 + 39):
        batch = Batch(Commit())
        for row in range(number):
            batch.add(SET, (str(row), row), None, 0)
        assert written(batch) == {str(row): row for row in range(number)}


def test_a_row_with_a_key_replaces_the_one_that_waits() -> None:
    batch = Batch(Commit())
    for value in range(100):
        batch.add(SET, ("a", value), "a", 0)
    assert [len(run.rows) for run in batch.lanes["pairs"]] == [1]
    assert written(batch) == {"a": 99}
