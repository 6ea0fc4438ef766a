"""A cluster of three under faults that chase roles; each run a function of its seed and its plan."""

from __future__ import annotations

import pytest
from tests.simulation.cluster.faults import ClusterFaults, CoordinatorFaults, PageCacheFaults, Strike
from tests.simulation.sweep import plans_of, run_once, run_twice
from tests.simulation.tried_seeds import CLUSTER_SEEDS, firsts, strikes_of, telling_seeds

pytestmark = pytest.mark.sim


@pytest.mark.parametrize("part", range(10))
def test_the_cluster_keeps_its_promises_under_the_faults_of_many_seeds(part: int) -> None:
    first, *others = telling_seeds()[part::10]
    run = run_twice("cluster", first, ClusterFaults.draw(first))
    assert run.failure is None, f"{run.command}\n{run.failure}"
    for seed in others:
        run, _ = run_once("cluster", seed, ClusterFaults.draw(seed))
        assert run.failure is None, f"{run.command}\n{run.failure}"


def test_every_fault_and_every_profile_is_among_the_seeds_that_run() -> None:
    everything, running = (
        {what for seed in seeds for what in strikes_of(seed)}
        for seeds in (range(CLUSTER_SEEDS), telling_seeds())
    )
    assert running == everything


@pytest.mark.parametrize("first", firsts("page_cache", 8))
def test_what_two_machines_remember_outlives_the_memory_of_one(first: int) -> None:
    for seed in range(first, first + 8):
        run, _ = run_once("page_cache", seed, PageCacheFaults.draw(seed))
        assert run.failure is None, f"{run.command}\n{run.failure}"


@pytest.mark.parametrize("first", firsts("streams_failover", 4))
def test_a_streams_group_outlives_its_coordinator_and_the_next(first: int) -> None:
    for seed in range(first, first + 4):
        run, _ = run_once("streams_failover", seed, CoordinatorFaults.draw(seed))
        assert run.failure is None, f"{run.command}\n{run.failure}"


def test_the_coordinator_of_the_streams_group_is_struck_twice_in_most_runs() -> None:
    plans = [CoordinatorFaults.draw(seed) for seed in range(40)]
    struck = [sum(strike.role == "group" for strike in plan.strikes) for plan in plans]
    assert min(struck) >= 2
    assert CoordinatorFaults.parse(str(plans[0])) == plans[0]


@pytest.mark.parametrize(
    ("scenario", "seed", "faults"),
    [
        pytest.param(
            "cluster",
            45,
            "power:last@1.12+0.74,pause:controller@1.36+2.95,expire:follower@2.59+2.59,"
            "exile:controller@3.81+4.89,expire:last@5.12+1.02",
            id="a deposed controller says that a topic is not there which it never heard of",
        ),
        pytest.param(
            "page_cache",
            41,
            "power:follower@0.68+0.25,kill:all@0.7+0.8,kill:fresh@1.08+0.16,deaf:follower@1.85+0.98,power:leader@3.69+0.2,"
            "kill:all@3.69+1.49,kill:fresh@4.2+0.16,power:follower@5.21+0.18,kill:all@5.21+1.4,kill:fresh@5.48+0.09",
            id="logs that no one flushes keep all descriptors for ever",
        ),
    ],
)
def test_what_once_went_wrong_does_not_again(scenario: str, seed: int, faults: str) -> None:
    run, _ = run_once(scenario, seed, plans_of(scenario).parse(faults))
    assert run.failure is None, f"{run.command}\n{run.failure}"


def test_a_plan_of_faults_reads_as_it_is_written() -> None:
    for seed in range(200):
        plan = ClusterFaults.draw(seed)
        assert ClusterFaults.parse(str(plan)) == plan
    assert ClusterFaults.parse("none") == ClusterFaults()
    assert ClusterFaults.parse("kill:leader@1.25+0.5").strikes == (
        Strike(kind="kill", role="leader", at_s=1.25, for_s=0.5),
    )


@pytest.mark.parametrize(
    "line", ["kill", "kill@x", "kill:stranger@1", "kilt@1", "kill/never@1", "kill@1,", "@1"]
)
def test_what_is_no_plan_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match="is no fault"):
        ClusterFaults.parse(line)


def test_a_plan_can_do_without_any_of_its_faults() -> None:
    plan = ClusterFaults.parse("kill:any@1,power:all@2+1,cut:leader@3+1")
    assert str(plan.without(1)) == "kill:any@1,cut:leader@3+1"
