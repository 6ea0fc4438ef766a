"""Sets of offsets as runs behave as sets."""

from __future__ import annotations

import pytest

pytest.importorskip("numpy", reason="numpy is absent")

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from odradek.archive.checks.offset_runs import OffsetRuns, spell

offsets = st.lists(st.integers(0, 60), max_size=40)


def runs(members: list[int]) -> OffsetRuns:
    return OffsetRuns.of(np.array(members, np.int64))


def members(offset_runs: OffsetRuns) -> set[int]:
    return {number for start, end in offset_runs for number in range(start, end)}


@given(offsets)
def test_a_set_holds_its_members_once_in_as_few_runs_as_possible(listed: list[int]) -> None:
    offset_runs = runs(listed)
    assert members(offset_runs) == set(listed)
    assert len(offset_runs) == len(set(listed))
    assert all(
        after > end for (_, end), (after, _) in zip(list(offset_runs), list(offset_runs)[1:], strict=False)
    )


@given(st.lists(offsets, max_size=5))
def test_union(several: list[list[int]]) -> None:
    assert members(OffsetRuns.union(map(runs, several))) == set().union(*several)
    assert OffsetRuns.union(map(runs, several)) == runs([offset for listed in several for offset in listed])


@given(offsets, offsets)
def test_difference_and_intersection(mine: list[int], other: list[int]) -> None:
    assert members(runs(mine).minus(runs(other))) == set(mine) - set(other)
    assert members(runs(mine).within(runs(other))) == set(mine) & set(other)
    assert runs(mine).minus(runs(other)) == runs(sorted(set(mine) - set(other)))


def test_between_holds_the_start_and_not_the_end() -> None:
    assert members(OffsetRuns.between(3, 6)) == {3, 4, 5}
    assert len(OffsetRuns.between(3, 3)) == 0


def test_runs_are_spelled_for_people() -> None:
    assert spell(runs([5, 7, 8, 9, 11, 13, 14])) == "5, 7-9, 11 and 1 runs more"
