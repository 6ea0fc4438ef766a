"""A set of ranges holds what was added, and says what to write down so that another one holds the same."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from odradek.dead_letters.redriven import RangeSet

steps = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 12)), max_size=30)


@given(steps)
def test_it_holds_what_was_added_and_nothing_else(added: list[tuple[int, int]]) -> None:
    ranges, model = RangeSet(), set[int]()
    for start, size in added:
        ranges.add(start, start + size)
        model.update(range(start, start + size))
    assert [offset for offset in range(80) if offset in ranges] == sorted(model)
    ends = [bound for pair in ranges for bound in pair]
    assert ends == sorted(set(ends))  # they neither overlap nor touch


@given(steps, st.integers(0, 80))
def test_the_changes_that_it_tells_make_the_same_set(added: list[tuple[int, int]], below: int) -> None:
    ranges, written = RangeSet(), dict[int, int]()

    def write(changes: dict[int, int | None]) -> None:
        for start, end in changes.items():
            if end is None:
                del written[start]
            else:
                written[start] = end

    for start, size in added:
        write(ranges.add(start, start + size))
    assert written == dict(ranges)
    write(ranges.drop_below(below))
    assert written == dict(ranges)
    assert list(RangeSet(written)) == list(ranges)
    assert all(end > below for _, end in ranges)


def test_adding_what_is_there_changes_nothing() -> None:
    ranges = RangeSet({10: 20})
    assert ranges.add(12, 20) == {}
    assert ranges.add(5, 5) == {}
    assert ranges.add(20, 25) == {10: 25}
    assert ranges.add(0, 10) == {10: None, 0: 25}
    assert ranges.end_of(3) == 25
    assert ranges.end_of(25) is None
