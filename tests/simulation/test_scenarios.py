"""The storage and the broker under crashes, disk errors and a bad network. The first seed of each test runs twice,
and the traces are compared; `make sim` does that with all of them.

Where a test crashes everywhere, it leaves out what repeats another crash (`FirstLife`), and all but `ALIKE` of the points with
one operation on one kind of file. Kills and power cuts come by turns: `python -m tests.simulation --every-point` does both, at
every point, and `make sim` runs it with the seeds of storage and followers.
"""

from __future__ import annotations

import pytest
from tests.simulation.fault_plan import FaultPlan, PlannedFault
from tests.simulation.sweep import FirstLife, run_once, run_twice
from tests.simulation.tried_seeds import firsts

from odradek.testing.sim.disk_faults import GROWING, SYNCS

pytestmark = pytest.mark.sim
ALIKE = 6
EXHAUSTED = (28, 40, 43, 61)
"""Short runs that between them have rolls, retention, deleted records, a full disk, rotten indexes, two directories."""

FOLLOWERS_EXHAUSTED = (4, 25, 30)
"""The same for a follower's log: rolls, cuts of sealed segments and of the active one, new beginnings."""


def _keep_their_promises(scenario: str, seeds: range) -> None:
    first = seeds[0]
    run = run_twice(scenario, first, FaultPlan.draw(first))
    assert run.failure is None, run.command
    for seed in seeds[1:]:
        _survives(scenario, seed, FaultPlan.draw(seed))


def _survives(scenario: str, seed: int, plan: FaultPlan) -> None:
    run, _ = run_once(scenario, seed, plan)
    assert run.failure is None, run.command


def _survives_a_crash_at_any_point(scenario: str, seed: int, *, part: int = 0, parts: int = 1) -> None:
    """A kill or a power cut, by turns, and another crash in the life that recovers; one of several parts of that."""
    points = FirstLife.of(scenario, seed).changes_of_a_kind(ALIKE)
    for number, point in list(enumerate(points))[part::parts]:
        kind = "power" if number % 2 else "kill"
        second = PlannedFault("power" if point % 2 else "kill", 1 + point % 60)
        _survives(scenario, seed, FaultPlan(((PlannedFault(kind, point),), (second,))))


def _survives_crashes_by_turns(scenario: str, seed: int, *, part: int, parts: int, step: int = 1) -> None:
    """A kill, a power cut, a kill, ... at every `step`th point of a life; one of several parts of that."""
    points = FirstLife.of(scenario, seed).changes_of_a_kind(ALIKE)[::step]
    for number, point in list(enumerate(points))[part::parts]:
        kind = "power" if number % 2 else "kill"
        _survives(scenario, seed, FaultPlan(((PlannedFault(kind, point),),)))


@pytest.mark.parametrize("first", firsts("storage", 20))
def test_storage_keeps_its_promises_under_the_faults_of_many_seeds(first: int) -> None:
    _keep_their_promises("storage", range(first, first + 20))


@pytest.mark.parametrize("first", firsts("broker", 10))
def test_the_broker_keeps_its_promises_under_the_faults_of_many_seeds(first: int) -> None:
    _keep_their_promises("broker", range(first, first + 10))


@pytest.mark.parametrize("part", range(2))
@pytest.mark.parametrize("seed", EXHAUSTED)
def test_a_crash_at_any_io_point_and_another_while_recovering_lose_nothing(seed: int, part: int) -> None:
    _survives_a_crash_at_any_point("storage", seed, part=part, parts=2)


@pytest.mark.parametrize("part", range(3))
def test_the_broker_survives_a_crash_at_any_io_point_of_its_first_life(part: int) -> None:
    _survives_crashes_by_turns("broker", 14, part=part, parts=3)


def _fails_and_loses_nothing(kind: str, target: str, points: list[int]) -> None:
    for point in points:
        faults = (PlannedFault(kind, point, target),)
        _survives("storage", 43, FaultPlan((faults, (PlannedFault("power", 90),))))


@pytest.mark.parametrize("part", range(2))
def test_a_disk_error_at_any_io_point_acknowledges_nothing_that_is_lost(part: int) -> None:
    life = FirstLife.of("storage", 43)
    _fails_and_loses_nothing("eio", "", [*life.changes, *life.looks[::3]][part::2])


def test_a_sync_that_fails_anywhere_acknowledges_nothing_that_is_lost() -> None:
    _fails_and_loses_nothing("eio", "sync", FirstLife.of("storage", 43).operations(SYNCS))


def test_a_disk_that_is_full_anywhere_acknowledges_nothing_that_is_lost() -> None:
    _fails_and_loses_nothing("enospc", "", FirstLife.of("storage", 43).operations(GROWING))


@pytest.mark.parametrize("first", firsts("transactions", 10))
def test_transactions_keep_their_promises_under_the_faults_of_many_seeds(first: int) -> None:
    _keep_their_promises("transactions", range(first, first + 10))


@pytest.mark.parametrize("part", range(3))
def test_a_crash_at_io_points_of_all_kinds_tears_no_transaction(part: int) -> None:
    _survives_crashes_by_turns("transactions", 15, part=part, parts=3, step=3)


@pytest.mark.parametrize("first", firsts("groups", 10))
def test_groups_keep_their_promises_under_the_faults_of_many_seeds(first: int) -> None:
    _keep_their_promises("groups", range(first, first + 10))


@pytest.mark.parametrize("part", range(2))
def test_a_group_survives_a_crash_at_any_io_point_of_the_brokers_first_life(part: int) -> None:
    _survives_crashes_by_turns("groups", 11, part=part, parts=2)


@pytest.mark.parametrize("first", firsts("consumer_groups", 10))
def test_consumer_groups_keep_their_promises_under_the_faults_of_many_seeds(first: int) -> None:
    _keep_their_promises("consumer_groups", range(first, first + 10))


@pytest.mark.parametrize("first", firsts("large_targets", 10))
def test_groups_keep_their_promises_when_targets_come_late(first: int) -> None:
    _keep_their_promises("large_targets", range(first, first + 10))


@pytest.mark.parametrize("part", range(2))
def test_a_consumer_group_survives_a_crash_at_io_points_of_the_brokers_first_life(part: int) -> None:
    _survives_crashes_by_turns("consumer_groups", 3, part=part, parts=2, step=2)


@pytest.mark.parametrize("first", firsts("streams_groups", 10))
def test_streams_groups_keep_their_promises_under_the_faults_of_many_seeds(first: int) -> None:
    _keep_their_promises("streams_groups", range(first, first + 10))


@pytest.mark.parametrize("part", range(2))
def test_a_streams_group_survives_a_crash_at_io_points_of_the_brokers_first_life(part: int) -> None:
    _survives_crashes_by_turns("streams_groups", 3, part=part, parts=2, step=2)


@pytest.mark.parametrize("first", firsts("shares", 5))
def test_share_groups_keep_their_promises_under_the_faults_of_many_seeds(first: int) -> None:
    _keep_their_promises("shares", range(first, first + 5))


@pytest.mark.parametrize("first", firsts("rude", 10))
def test_rude_clients_harm_no_polite_ones_and_leave_nothing_behind(first: int) -> None:
    _keep_their_promises("rude", range(first, first + 10))


@pytest.mark.parametrize("first", firsts("disks", 4))
def test_full_and_slow_disks_harm_their_brokers_alone(first: int) -> None:
    _keep_their_promises("disks", range(first, first + 4))


@pytest.mark.parametrize("part", range(2))
def test_a_share_group_survives_a_crash_at_io_points_of_the_brokers_first_life(part: int) -> None:
    _survives_crashes_by_turns("shares", 3, part=part, parts=2, step=2)


@pytest.mark.parametrize("first", firsts("compaction", 20))
def test_compaction_keeps_its_promises_under_the_faults_of_many_seeds(first: int) -> None:
    _keep_their_promises("compaction", range(first, first + 20))


@pytest.mark.parametrize("first", firsts("follower", 25))
def test_a_follower_s_log_is_its_leader_s_under_the_faults_of_many_seeds(first: int) -> None:
    _keep_their_promises("follower", range(first, first + 25))


@pytest.mark.parametrize("seed", FOLLOWERS_EXHAUSTED)
def test_a_follower_s_log_survives_a_crash_at_any_io_point_and_another_while_recovering(seed: int) -> None:
    _survives_a_crash_at_any_point("follower", seed)
