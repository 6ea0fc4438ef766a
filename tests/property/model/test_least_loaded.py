"""The least loaded, found by a heap that is corrected late: the one that a look at everyone finds."""

from hypothesis import given
from hypothesis import strategies as st

from odradek.model.least_loaded import LeastLoaded


@given(
    st.lists(st.integers(0, 5), min_size=1, max_size=8),
    st.lists(st.tuples(st.booleans(), st.integers(0, 7)), max_size=60),
)
def test_it_is_the_first_of_those_with_the_smallest_load_whichever_else_gets_more(
    loads_at_first: list[int], changes: list[tuple[bool, int]]
) -> None:
    loads = dict(enumerate(loads_at_first))
    least_loaded = LeastLoaded(list(loads), loads)
    for is_given_to_the_least, other in changes:
        least = min(loads, key=loads.__getitem__)
        assert least_loaded.find() == least
        loads[least if is_given_to_the_least else other % len(loads)] += 1
