"""Running scenarios over seeds: each twice, traces compared, failures with the command that repeats them."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable, Collection, Container, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

from tests.simulation.bank import Mutant
from tests.simulation.broker.scenario import run_broker
from tests.simulation.cluster.faults import ClusterFaults, CoordinatorFaults, PageCacheFaults
from tests.simulation.cluster.scenario import (
    run_cluster,
    run_page_cache,
    run_secured,
    run_streams_failover,
)
from tests.simulation.compaction.scenario import run_compaction
from tests.simulation.disks.scenario import run_disks
from tests.simulation.fault_plan import FaultPlan
from tests.simulation.groups.consumer_group_scenario import run_consumer_groups
from tests.simulation.groups.large_targets_scenario import run_large_targets
from tests.simulation.groups.scenario import run_groups
from tests.simulation.rude.scenario import run_rude
from tests.simulation.share.scenario import run_shares
from tests.simulation.storage.follower_scenario import run_follower
from tests.simulation.storage.scenario import run_storage
from tests.simulation.streams.scenario import run_streams_groups
from tests.simulation.transactions.scenario import run_transactions

from odradek.testing.sim.disk_faults import READS, DiskFault, Point
from odradek.testing.sim.failures import DivergenceError, ViolationError
from odradek.testing.sim.trace import Trace, first_difference
from odradek.testing.sim.world import World

Plan = FaultPlan | ClusterFaults
SCENARIOS: Final[dict[str, Callable[[World, int, Any], object]]] = {
    "storage": run_storage,
    "broker": run_broker,
    "compaction": run_compaction,
    "follower": run_follower,
    "transactions": run_transactions,
    "groups": run_groups,
    "consumer_groups": run_consumer_groups,
    "shares": run_shares,
    "streams_groups": run_streams_groups,
    "large_targets": run_large_targets,
    "rude": run_rude,
    "disks": run_disks,
    "cluster": run_cluster,
    "page_cache": run_page_cache,
    "secured": run_secured,
    "streams_failover": run_streams_failover,
}

_CLUSTER_FAULTS: Final[dict[str, type[ClusterFaults]]] = {
    "cluster": ClusterFaults,
    "page_cache": PageCacheFaults,
    "secured": ClusterFaults,
    "streams_failover": CoordinatorFaults,
}
_DIGITS: Final = re.compile(r"[0-9a-f]*\d[0-9a-f]*")
_LOOKS: Final = READS | {"open", "bring"}
"""Operations that leave the disk as it is."""
_SECONDS_MAX: Final = {"storage": 100.0, "compaction": 100.0, "follower": 100.0}
"""Virtual seconds after which a run is over: what takes seconds and goes on for ever is a bug."""
_SECONDS_MAX_OF_OTHERS: Final = 900.0


def plans_of(scenario: str) -> type[FaultPlan | ClusterFaults]:
    """The kind of plan that a scenario runs under."""
    return _CLUSTER_FAULTS.get(scenario, FaultPlan)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run of one seed under one plan of faults."""

    scenario: str
    seed: int
    plan: Plan
    digest: str
    event_count: int
    virtual_s: float
    life_count: int
    failure: str | None
    """What went wrong; None when every promise was kept."""

    @property
    def command(self) -> str:
        """Repeats the run."""
        return (
            f"python -m tests.simulation --scenario {self.scenario} --seed {self.seed} --faults {self.plan}"
        )


@contextmanager
def garbage_stays_young() -> Iterator[None]:
    """Collects the cycles of a world once, after its last reference is gone, among the objects that are new since then.

    With the collector on, the objects of a living world grow old, and only a full collection frees them later. That one
    walks through everything in the process, which takes seconds where the tests of a whole worker have left their modules.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.collect(0)
        if collecting:
            gc.enable()


def run_once(scenario: str, seed: int, plan: Plan, *, keep_trace: bool = False) -> tuple[Run, Trace]:
    """One run. Whatever the code under test lets out counts as a failure."""
    with garbage_stays_young():
        return _run(scenario, seed, plan, keep_trace=keep_trace)


def _run(scenario: str, seed: int, plan: Plan, *, keep_trace: bool) -> tuple[Run, Trace]:
    seconds_max = _SECONDS_MAX.get(scenario, _SECONDS_MAX_OF_OTHERS)
    world = World(seed, keep_trace=keep_trace, seconds_max=seconds_max, steps_max=5_000_000)
    failure: str | None = None
    try:
        with world:
            SCENARIOS[scenario](world, seed, plan)
    except Exception as error:  # noqa: BLE001  a bug of any kind is what we are looking for
        failure = f"{type(error).__name__}: {error}"
    run = Run(
        scenario=scenario,
        seed=seed,
        plan=plan,
        digest=world.trace.digest(),
        event_count=world.trace.event_count,
        virtual_s=world.loop.time(),
        life_count=len(world.lives),
        failure=failure,
    )
    return run, world.trace


def run_twice(scenario: str, seed: int, plan: Plan) -> Run:
    """Run and run again; `DivergenceError` says where the two part, if they do."""
    first, _ = run_once(scenario, seed, plan)
    second, _ = run_once(scenario, seed, plan)
    if first.digest != second.digest:
        raise DivergenceError(f"{first.command}\n{explain_divergence(scenario, seed, plan)}")
    return first


def explain_divergence(scenario: str, seed: int, plan: Plan) -> str:
    """Two more runs, with their events kept: the first that differs."""
    return first_difference(*(run_once(scenario, seed, plan, keep_trace=True)[1] for _ in range(2)))


def shrink(scenario: str, seed: int, plan: ClusterFaults) -> ClusterFaults:
    """Leave out one strike after another as long as the run still fails."""
    index = 0
    while index < len(plan.strikes):
        smaller = plan.without(index)
        if run_once(scenario, seed, smaller)[0].failure is not None:
            plan = smaller
        else:
            index += 1
    return plan


@dataclass(frozen=True, slots=True)
class _Watching(FaultPlan):
    """No fault, but an eye on the first life's I/O points."""

    points: list[Point] = field(default_factory=list)

    def faults(self, seed: int) -> list[list[DiskFault]]:
        return [[self]]

    def at(self, point: Point) -> None:
        self.points.append(point)


@dataclass(frozen=True, slots=True)
class FirstLife:
    """The I/O points of the broker's first life in an undisturbed run, as numbers from 1."""

    points: tuple[Point, ...]

    @classmethod
    @cache
    def of(cls, scenario: str, seed: int) -> FirstLife:
        watching = _Watching()
        run, _ = run_once(scenario, seed, watching)
        if run.failure is not None:
            raise ViolationError(f"{run.command} fails without a fault: {run.failure}")
        return cls(tuple(watching.points))

    @property
    def changes(self) -> list[int]:
        """Where a crash leaves a disk that no other crash leaves: everywhere but at reads that follow a read."""
        return [
            point.number
            for before, point in zip((None, *self.points), self.points, strict=False)
            if before is None or point.operation not in _LOOKS or before.operation not in _LOOKS
        ]

    def changes_of_a_kind(self, most: int) -> list[int]:
        """`changes`; where more than `most` are one operation on one kind of file, that many of them: the first, the last, and
        some between. The tenth record that is appended to a log leaves what the ninth left, and a record."""
        changes = set(self.changes)
        alike: dict[tuple[str, str], list[int]] = {}
        for point in self.points:
            if point.number in changes:
                kind = (point.operation, _DIGITS.sub("0", point.path.rpartition("/")[2]))
                alike.setdefault(kind, []).append(point.number)
        return sorted(number for numbers in alike.values() for number in _spread(numbers, most))

    @property
    def looks(self) -> list[int]:
        """Returns the numbers of the points that change nothing."""
        changes = set(self.changes)
        return [point.number for point in self.points if point.number not in changes]

    def operations(self, names: Collection[str]) -> list[int]:
        """Returns the numbers of the points at which one of these operations happens."""
        return [point.number for point in self.points if point.operation in names]


def _spread(numbers: list[int], most: int) -> list[int]:
    if len(numbers) <= most:
        return numbers
    return [numbers[place * (len(numbers) - 1) // (most - 1)] for place in range(most)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hunt:
    """The outcome of the search for one planted bug."""

    mutant: Mutant
    seeds_tried: int
    """Up to and with the one that found it."""
    found: Run | None


@cache
def _keeps_promises(scenario: str, seed: int) -> bool:
    """Tells whether a seed passes under its own plan. Code without a planted bug calls it: many bugs are caught by one seed."""
    return run_once(scenario, seed, plans_of(scenario).draw(seed))[0].failure is None


def hunt(mutant: Mutant, seeds: Iterable[int], passing: Container[int] = ()) -> Hunt:
    """Run seeds under their own plans until one fails that does not fail without the bug. Seeds that are `passing` are known to
    keep every promise without it."""
    tried = 0
    for seed in seeds:
        tried += 1
        plan = plans_of(mutant.scenario).draw(seed)
        with mutant.planted():
            run, _ = run_once(mutant.scenario, seed, plan)
        if run.failure is not None and (seed in passing or _keeps_promises(mutant.scenario, seed)):
            return Hunt(mutant=mutant, seeds_tried=tried, found=run)
    return Hunt(mutant=mutant, seeds_tried=tried, found=None)
