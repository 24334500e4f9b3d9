from hypothesis import given
from hypothesis import strategies as st

from wirelake.state.notification import id_of, id_runs, parse_id

IDS = st.one_of(
    st.builds(id_of, st.just("e"), st.integers(1, 3), st.integers(0, 40)),
    st.sampled_from(["", "e", "e--", "e-1-01", "e-1-A", "x-1-1", "e-1-", "e-1-+2"]),
)
IN_A_ROW = st.builds(
    lambda number, first, count: [id_of("e", number, first + place) for place in range(count)],
    st.integers(1, 2),
    st.integers(0, 300),
    st.integers(1, 30),
)


@given(st.lists(st.one_of(st.lists(IDS, max_size=3), IN_A_ROW), max_size=6))
def test_runs_hold_the_ids_that_are_known_and_no_others(lists: list[list[str]]) -> None:
    texts = [text for some in lists for text in some]
    places = [place for text in texts if (place := parse_id("e", text)) is not None and place[1]]
    runs = list(id_runs("e", texts))
    assert [(number, place) for number, first, last in runs for place in range(first, last + 1)] == places
