"""A cluster of three where everyone logs in and ACLs are on: it keeps its promises, and access ends when it is taken away."""

from __future__ import annotations

import re

import pytest
from tests.simulation.cluster.faults import ClusterFaults
from tests.simulation.sweep import run_once, run_twice

from odradek.broker.cluster.image_age import ImageAge

pytestmark = pytest.mark.sim
SEEDS = (2, 8)
CUT_OFF = ["exile:controller@1.5+17", "exile:follower@1.5+17"]


def test_the_cluster_keeps_its_promises_when_everyone_logs_in() -> None:
    run = run_twice("secured", SEEDS[0], ClusterFaults.draw(SEEDS[0]))
    assert run.failure is None, f"{run.command}\n{run.failure}"
    for seed in SEEDS[1:]:
        run, _ = run_once("secured", seed, ClusterFaults.draw(seed))
        assert run.failure is None, f"{run.command}\n{run.failure}"


@pytest.mark.check(42)
@pytest.mark.parametrize("faults", CUT_OFF)
def test_access_that_was_taken_away_ends_at_a_broker_that_is_cut_off(faults: str) -> None:
    run, _ = run_once("secured", 3, ClusterFaults.parse(faults))
    assert run.failure is None, f"{run.command}\n{run.failure}"


def test_without_a_bound_it_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ImageAge, "is_over", property(lambda self: False))
    run, _ = run_once("secured", 3, ClusterFaults.parse(CUT_OFF[-1]))
    assert re.search("lets guest-. in .* after its access was taken away", run.failure or "")
