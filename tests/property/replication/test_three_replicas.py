"""Three replicas under random schedules: nothing acknowledged is lost, what is committed never changes, and they become one.

And the checks are worth something: each planted bug is found.
"""

import asyncio

import pytest
from tests.simulation.replicas.model import Replica, ReplicasModel, run_replicas
from tests.simulation.replicas.mutants import REPLICA_MUTANTS

from odradek.model.ids import BrokerId
from odradek.testing.sim.disk_faults import CrashKind
from odradek.testing.sim.failures import ViolationError

STEPS = 2500
SEEDS = 40
SEEDS_FOR_A_MUTANT = 150
MUTANTS = {mutant.name: mutant for mutant in REPLICA_MUTANTS}
SCRIPTED = {"joins_before_the_epoch_start", "accepts_a_stale_broker_epoch"}
"""So seldom found by chance that a script leads there."""


@pytest.mark.parametrize("first_seed", range(0, SEEDS, 10))
def test_whatever_happens_nothing_acknowledged_is_lost_and_the_replicas_become_one(first_seed: int) -> None:
    for seed in range(first_seed, first_seed + 10):
        assert asyncio.run(run_replicas(seed, STEPS)) > 0, f"seed {seed} acknowledged nothing"


@pytest.mark.parametrize("name", sorted(set(MUTANTS) - SCRIPTED))
def test_a_planted_bug_is_found(name: str) -> None:
    with MUTANTS[name].planted():
        for seed in range(SEEDS_FOR_A_MUTANT):
            try:
                asyncio.run(run_replicas(seed, STEPS))
            except ViolationError:
                return
    pytest.fail(f"{name} was not found: {MUTANTS[name].mistake}")


class Script:
    """Brokers 1, 2 and 3, of which the first leads; what follows is written step by step."""

    def __init__(self) -> None:
        self.model = ReplicasModel(seed=1)
        self.one, self.two, self.three = (self.model.replicas[BrokerId(number)] for number in (1, 2, 3))
        self.rounds(self.one, self.two, self.three)

    def rounds(self, *replicas: Replica, count: int = 6) -> None:
        for _ in range(count):
            self.model.round(replicas)

    def append(self, replica: Replica, count: int) -> None:
        for _ in range(count):
            self.model.append(replica)

    def dies(self, replica: Replica) -> None:
        self.model.stop(replica, CrashKind.PROCESS_KILL)
        self.model.controller.fence(replica.broker)


def joins_early() -> None:
    """Broker 2 is elected before it heard how far broker 1 was committed. Broker 1 comes back without its disk, and soon has
    everything that broker 2 knows to be committed, long before it has everything that is."""
    script = Script()
    first, two, three = script.one, script.two, script.three
    script.append(first, 20)
    assert two.partition is not None
    known = two.partition.high_watermark
    two.checkpoint = known
    script.rounds(first, two, three)
    script.model.stop(two, CrashKind.PROCESS_KILL)  # no one notices
    script.dies(first)
    script.model.controller.live[two.broker] = two.broker_epoch
    two.seen = len(script.model.controller.versions) - 2
    script.model.reopen(two)
    script.model.restart(first, with_new_disk=True)
    script.rounds(first, two, count=1)
    script.rounds(two, first, count=2)
    script.dies(two)
    script.dies(three)
    script.rounds(first)
    script.model.calm_down()


def old_fetch_comes_late() -> None:
    """Broker 3 comes back without its disk. Then a fetch arrives that it sent in its former life."""
    script = Script()
    first, two, three = script.one, script.two, script.three
    script.append(first, 20)
    script.rounds(first, two, three, count=40)
    script.model.remember_fetch(three)
    script.dies(three)
    script.rounds(first, two)
    script.model.restart(three, with_new_disk=True)
    script.rounds(first, count=1)
    script.model.repeat_fetch(three)
    script.rounds(first, count=3)
    script.dies(first)
    script.dies(two)
    script.rounds(three)
    script.model.calm_down()


async def _run(script: object) -> None:
    assert callable(script)
    script()


@pytest.mark.parametrize(
    ("name", "script"),
    [("joins_before_the_epoch_start", joins_early), ("accepts_a_stale_broker_epoch", old_fetch_comes_late)],
)
def test_a_planted_bug_that_is_seldom_met_is_found_where_it_matters(name: str, script: object) -> None:
    asyncio.run(_run(script))
    with MUTANTS[name].planted(), pytest.raises(ViolationError):
        asyncio.run(_run(script))
