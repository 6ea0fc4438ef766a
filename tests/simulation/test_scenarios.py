"""The storage and the broker under crashes, disk errors and a bad network. The first seed of each test runs twice,
and the traces are compared; `make sim` does that with all of them.
"""

from __future__ import annotations

import pytest
from tests.simulation.fault_plan import FaultPlan, PlannedFault
from tests.simulation.sweep import crash_points, run_once, run_twice

pytestmark = pytest.mark.sim
EXHAUSTED = (28, 40, 43, 61)
"""Short runs that between them have rolls, retention, deleted records, a full disk, rotten indexes, two directories."""

FOLLOWERS_EXHAUSTED = (4, 25, 30)
"""The same for a follower's log: rolls, cuts of sealed segments and of the active one, new beginnings."""


def _keep_their_promises(scenario: str, seeds: range) -> None:
    first = seeds[0]
    run = run_twice(scenario, first, FaultPlan.draw(first))
    assert run.failure is None, run.command
    for seed in seeds[1:]:
        run, _ = run_once(scenario, seed, FaultPlan.draw(seed))
        assert run.failure is None, run.command


@pytest.mark.parametrize("first", range(0, 160, 20))
def test_storage_keeps_its_promises_under_the_faults_of_many_seeds(first: int) -> None:
    _keep_their_promises("storage", range(first, first + 20))


@pytest.mark.parametrize("first", range(0, 40, 10))
def test_the_broker_keeps_its_promises_under_the_faults_of_many_seeds(first: int) -> None:
    _keep_their_promises("broker", range(first, first + 10))


@pytest.mark.parametrize("kind", ["kill", "power"])
@pytest.mark.parametrize("seed", EXHAUSTED)
def test_a_crash_at_any_io_point_and_another_while_recovering_lose_nothing(seed: int, kind: str) -> None:
    for point in range(1, crash_points("storage", seed) + 1):
        second = PlannedFault("power" if point % 2 else "kill", 1 + point % 60)
        run, _ = run_once("storage", seed, FaultPlan(((PlannedFault(kind, point),), (second,))))
        assert run.failure is None, run.command


@pytest.mark.parametrize("kind", ["kill", "power"])
@pytest.mark.parametrize("first", [1, 2])
def test_the_broker_survives_a_crash_at_any_io_point_of_its_first_life(first: int, kind: str) -> None:
    for point in range(first, crash_points("broker", 14) + 1, 2):
        run, _ = run_once("broker", 14, FaultPlan(((PlannedFault(kind, point),),)))
        assert run.failure is None, run.command


@pytest.mark.parametrize(("kind", "target"), [("eio", ""), ("eio", "sync"), ("enospc", "")])
def test_a_disk_error_at_any_io_point_acknowledges_nothing_that_is_lost(kind: str, target: str) -> None:
    for point in range(1, crash_points("storage", 43) + 1):
        faults = (PlannedFault(kind, point, target),)
        run, _ = run_once("storage", 43, FaultPlan((faults, (PlannedFault("power", 90),))))
        assert run.failure is None, run.command


@pytest.mark.parametrize("first", range(0, 60, 10))
def test_transactions_keep_their_promises_under_the_faults_of_many_seeds(first: int) -> None:
    _keep_their_promises("transactions", range(first, first + 10))


@pytest.mark.parametrize("first", [1, 2])
def test_a_crash_at_io_points_of_all_kinds_tears_no_transaction(first: int) -> None:
    for point in range(first, crash_points("transactions", 15) + 1, 3):
        kind = "power" if point % 2 else "kill"
        run, _ = run_once("transactions", 15, FaultPlan(((PlannedFault(kind, point),),)))
        assert run.failure is None, run.command


@pytest.mark.parametrize("first", range(0, 20, 10))
def test_groups_keep_their_promises_under_the_faults_of_many_seeds(first: int) -> None:
    _keep_their_promises("groups", range(first, first + 10))


@pytest.mark.parametrize("kind", ["kill", "power"])
def test_a_group_survives_a_crash_at_any_io_point_of_the_brokers_first_life(kind: str) -> None:
    for point in range(1, crash_points("groups", 11) + 1):
        run, _ = run_once("groups", 11, FaultPlan(((PlannedFault(kind, point),),)))
        assert run.failure is None, run.command


@pytest.mark.parametrize("first", range(0, 20, 10))
def test_consumer_groups_keep_their_promises_under_the_faults_of_many_seeds(first: int) -> None:
    _keep_their_promises("consumer_groups", range(first, first + 10))


@pytest.mark.parametrize("first", [0, 10])
def test_groups_keep_their_promises_when_targets_come_late(first: int) -> None:
    _keep_their_promises("large_targets", range(first, first + 10))


@pytest.mark.parametrize("kind", ["kill", "power"])
def test_a_consumer_group_survives_a_crash_at_any_io_point_of_the_brokers_first_life(kind: str) -> None:
    for point in range(1, crash_points("consumer_groups", 3) + 1, 4):
        run, _ = run_once("consumer_groups", 3, FaultPlan(((PlannedFault(kind, point),),)))
        assert run.failure is None, run.command


@pytest.mark.parametrize("first", range(0, 10, 5))
def test_share_groups_keep_their_promises_under_the_faults_of_many_seeds(first: int) -> None:
    _keep_their_promises("shares", range(first, first + 5))


@pytest.mark.parametrize("first", range(0, 40, 10))
def test_rude_clients_harm_no_polite_ones_and_leave_nothing_behind(first: int) -> None:
    _keep_their_promises("rude", range(first, first + 10))


@pytest.mark.parametrize("kind", ["kill", "power"])
def test_a_share_group_survives_a_crash_at_any_io_point_of_the_brokers_first_life(kind: str) -> None:
    points = crash_points("shares", 3)
    for point in range(1, points + 1, max(points // 25, 1)):
        run, _ = run_once("shares", 3, FaultPlan(((PlannedFault(kind, point),),)))
        assert run.failure is None, run.command


@pytest.mark.parametrize("first", range(0, 80, 20))
def test_compaction_keeps_its_promises_under_the_faults_of_many_seeds(first: int) -> None:
    _keep_their_promises("compaction", range(first, first + 20))


@pytest.mark.parametrize("first", range(0, 200, 25))
def test_a_follower_s_log_is_its_leader_s_under_the_faults_of_many_seeds(first: int) -> None:
    _keep_their_promises("follower", range(first, first + 25))


@pytest.mark.parametrize("kind", ["kill", "power"])
@pytest.mark.parametrize("seed", FOLLOWERS_EXHAUSTED)
def test_a_follower_s_log_survives_a_crash_at_any_io_point_and_another_while_recovering(
    seed: int, kind: str
) -> None:
    for point in range(1, crash_points("follower", seed) + 1):
        second = PlannedFault("power" if point % 2 else "kill", 1 + point % 60)
        run, _ = run_once("follower", seed, FaultPlan(((PlannedFault(kind, point),), (second,))))
        assert run.failure is None, run.command
