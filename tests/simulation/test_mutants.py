"""Each planted bug is caught: without that, a sweep that finds nothing proves nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator
from unittest.mock import patch

import pytest
from tests.simulation import sweep
from tests.simulation.bank import BANK, Mutant
from tests.simulation.cluster import controller_mutants
from tests.simulation.cluster import mutants as cluster_mutants
from tests.simulation.kill_rate import caught_by
from tests.simulation.mutant import ASIDE
from tests.simulation.sweep import SCENARIOS, hunt
from tests.simulation.tried_seeds import TRIED, telling_seeds

from odradek.testing import guarded_disk

pytestmark = pytest.mark.sim
SEEDS = 300
CLUSTER_SEEDS = 12
FOUND_SOON = frozenset(
    {
        "begins_again_too_soon",
        "follower_acknowledges_unflushed",
        "follower_shows_all",
        "forgotten_and_then_trusted",
        "forgotten_and_trusted",
        "granted_and_not_written",
        "joins_from_anywhere",
        "leader_acknowledges_unflushed",
        "leader_commits_alone",
        "leader_epoch_not_raised",
        "new_leader_commits_all",
        "producers_not_replicated",
        "truncated_on_the_loop",
        "truncation_never_flushed",
        "truncates_to_high_watermark",
    }
)
"""Those of the cluster that a few seeds find; `make sim` hunts all of them."""
OF_REPLICATION = [
    mutant
    for mutant in BANK
    if mutant.patches.__module__ in (cluster_mutants.__name__, controller_mutants.__name__)
]
OF_A_CLUSTER = [mutant for mutant in OF_REPLICATION if mutant.name in FOUND_SOON]
TAKE_LONG = frozenset(
    {
        "acknowledged_from_memory",
        "answer_before_the_decision",
        "answers_out_of_order",
        "failed_marker_forgotten",
        "markers_before_the_decision",
        "refused_write_unnoticed",
        "sync_of_any_generation",
    }
)
"""Those of a whole broker that one seed in fifty finds, or fewer: 15 s of CPU time each, and more. `make sim` hunts them."""
OTHERS = [mutant for mutant in BANK if mutant not in OF_REPLICATION and mutant.name not in TAKE_LONG]
CAUGHT_BY = caught_by()


@pytest.mark.parametrize("mutant", [*BANK, *(mutant for mutant, _ in ASIDE)], ids=lambda mutant: mutant.name)
def test_a_planted_bug_is_about_code_that_is_there(mutant: Mutant) -> None:
    """Also those that only `make sim` hunts: what was renamed shows here."""
    assert mutant.scenario in SCENARIOS
    with mutant.planted():
        assert mutant.mistake


def test_names_of_planted_bugs_are_unique() -> None:
    """The seed that caught one is kept by its name."""
    assert len({mutant.name for mutant in BANK}) == len(BANK)


@pytest.fixture(autouse=True)
def planted_bugs_may_hold_the_loop() -> Iterator[None]:
    """What the guard saw of them is no violation of this process."""
    yield
    guarded_disk.violations.clear()


def seeds_of(mutant: Mutant, seed_count: int) -> list[int]:
    """The seed that found it last comes first."""
    known = [CAUGHT_BY[mutant.name]] if mutant.name in CAUGHT_BY else []
    return list(dict.fromkeys((*known, *range(seed_count))))


def passing_of(mutant: Mutant) -> Container[int]:
    """Returns the seeds that other tests run without a planted bug, which fail where a seed breaks a promise by itself."""
    return telling_seeds() if mutant.scenario == "cluster" else TRIED.get(mutant.scenario, ())


@pytest.mark.parametrize("mutant", OF_A_CLUSTER, ids=lambda mutant: mutant.name)
def test_the_planted_bug_of_a_cluster_is_caught(mutant: Mutant) -> None:
    assert hunt(mutant, seeds_of(mutant, CLUSTER_SEEDS), passing_of(mutant)).found is not None, mutant.mistake


@pytest.mark.parametrize("mutant", OTHERS, ids=lambda mutant: mutant.name)
def test_the_planted_bug_is_caught(mutant: Mutant) -> None:
    assert hunt(mutant, seeds_of(mutant, SEEDS), passing_of(mutant)).found is not None, mutant.mistake


def test_a_planted_bug_is_gone_after_the_hunt() -> None:
    before = [vars(patcher.getter()).get(patcher.attribute) for m in BANK for patcher in m.patches()]
    for mutant in BANK:
        with mutant.planted():
            pass
    after = [vars(patcher.getter()).get(patcher.attribute) for m in BANK for patcher in m.patches()]
    assert before == after


def test_a_seed_that_other_tests_run_is_not_run_again_without_the_bug() -> None:
    """Any other seed that a planted bug fails runs without the bug as well: it may fail by itself."""
    mutant = next(mutant for mutant in BANK if mutant.name == "ack_before_flush")
    clean = Counter[tuple[str, int]]()

    def count(scenario: str, seed: int) -> bool:
        clean[scenario, seed] += 1
        return True

    with patch.object(sweep, "_keeps_promises", count):
        seed = CAUGHT_BY[mutant.name]
        assert hunt(mutant, [seed], passing_of(mutant)).found is not None
        assert not clean
        assert hunt(mutant, [seed]).found is not None
    assert clean == {(mutant.scenario, seed): 1}
