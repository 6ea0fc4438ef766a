"""When a disk counts as full or slow, and when it no longer does."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from odradek.storage.directories.disk_condition import DiskCondition, SlowDiskLimits

LIMITS = SlowDiskLimits(sync_s=1.0, after_s=30.0)
OFF = SlowDiskLimits(sync_s=0.0, after_s=30.0)


def run_syncs(disk: DiskCondition, since: float, for_s: int, seconds: float, *, step_s: float = 0.5) -> float:
    """Syncs of so many seconds each, one after another; returns the time when they are over."""
    for number in range(int(for_s / step_s)):
        disk.synced(seconds, since + number * step_s, LIMITS)
    return since + for_s


def spaces(disk: DiskCondition, since: float, *, has_space: bool = True) -> float:
    """Looks every two seconds until the disk is full no longer; returns how long that took."""
    now = since
    while disk.is_full:
        assert now < since + 1000
        disk.saw_space(now, has_space=has_space)
        now += 2.0
    return now - since


def test_a_disk_is_full_from_the_first_append_that_failed_until_there_was_space_for_a_while() -> None:
    disk = DiskCondition()
    assert disk.ran_full(0.0)
    assert not disk.ran_full(1.0), "it is no news"
    disk.saw_space(2.0, has_space=False)
    assert not disk.saw_space(4.0, has_space=True), "it may be gone at once"
    disk.saw_space(6.0, has_space=False)
    assert not disk.saw_space(8.0, has_space=True), "the time counts from the last look without space"
    assert disk.saw_space(10.0, has_space=True)
    assert not disk.is_full


def test_a_disk_that_fills_up_again_and_again_stays_full_for_longer_each_time() -> None:
    disk, now, holds = DiskCondition(), 0.0, []
    for _ in range(8):
        disk.ran_full(now)
        holds.append(spaces(disk, now))
        now += holds[-1] + 1
    assert holds == sorted(holds)
    assert 20 * holds[0] > holds[-1] > 8 * holds[0]
    disk.ran_full(now + 10_000)
    assert spaces(disk, now + 10_000) == holds[0], "what is long ago does not count"


def test_a_disk_is_slow_when_its_syncs_were_for_long() -> None:
    disk = DiskCondition()
    now = run_syncs(disk, 0.0, 29, 2.0)
    assert not disk.is_slow
    now = run_syncs(disk, now, 8, 2.0)
    assert disk.is_slow
    now = run_syncs(disk, now, 60, 0.7)
    assert disk.is_slow, "it is below the bound, and not below half of it"
    run_syncs(disk, now, 40, 0.1)
    assert not disk.is_slow


def test_one_sync_in_fifty_counts_and_one_in_a_thousand_does_not() -> None:
    for share, is_slow in ((50, True), (1000, False)):
        disk = DiskCondition()
        for number in range(8000):
            disk.synced(2.0 if number % share == 0 else 0.01, number / 200, LIMITS)
        assert disk.is_slow is is_slow


def test_a_disk_that_becomes_slow_again_soon_must_be_well_for_longer() -> None:
    disk = DiskCondition()
    now = run_syncs(disk, 0.0, 40, 2.0)
    now = run_syncs(disk, now, 45, 0.1)
    assert not disk.is_slow
    now = run_syncs(disk, now, 45, 2.0)
    assert disk.is_slow
    now = run_syncs(disk, now, 45, 0.1)
    assert disk.is_slow
    run_syncs(disk, now, 45, 0.1)
    assert not disk.is_slow


def test_a_pause_without_syncs_makes_no_disk_slow() -> None:
    disk, now = DiskCondition(), 0.0
    for _ in range(10):
        now = run_syncs(disk, now, 8, 2.0)
        for _ in range(10):
            now += 2.0
            disk.looked(now, LIMITS)
    assert not disk.is_slow


def test_a_bound_of_zero_calls_no_disk_slow_and_forgets_one_that_was() -> None:
    disk = DiskCondition()
    now = run_syncs(disk, 0.0, 40, 2.0)
    assert disk.is_slow
    assert disk.looked(now, OFF)
    assert not disk.is_slow
    assert not disk.synced(9.0, now + 1, OFF)


@given(
    st.lists(
        st.tuples(st.floats(0, 10), st.sampled_from(["full", "space", "none", "sync"]), st.floats(0, 5)),
        max_size=200,
    )
)
def test_the_caller_learns_of_exactly_the_changes(events: list[tuple[float, str, float]]) -> None:
    disk, now = DiskCondition(), 0.0
    for pause, event, seconds in events:
        now += pause
        before = disk.is_full, disk.is_slow
        if event == "full":
            changed = disk.ran_full(now)
        elif event == "sync":
            changed = disk.synced(seconds, now, LIMITS)
        else:
            changed = disk.saw_space(now, has_space=event == "space")
        assert changed == ((disk.is_full, disk.is_slow) != before)
