"""How much of everything, and who is measured."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from benchmarks.cluster.blocking_client import BlockingClient, all_in_sync, new_topic, placed_topic, until
from benchmarks.cluster.nodes import BROKERS, Cluster
from benchmarks.samples import Better, Sample

WAIT_SECONDS: Final = 90.0
"""Whatever takes longer has failed."""
_names = itertools.count()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPlan:
    """Sizes and counts of one run."""

    rounds: int
    counts: dict[int, int]
    """Records to move, by the size of their values in bytes."""
    rate: int
    """Records a second, for the time to an acknowledgement."""
    latency_seconds: float
    failures: int
    """Rounds of each kind of failure."""
    session_timeout_ms: int
    missed_mb: int
    many_rounds: int
    topics: int
    partitions: int


SMOKE = ClusterPlan(
    rounds=1,
    counts={1024: 5_000},
    rate=500,
    latency_seconds=0.5,
    failures=1,
    session_timeout_ms=6_000,
    missed_mb=5,
    many_rounds=1,
    topics=20,
    partitions=100,
)
QUICK = ClusterPlan(
    rounds=3,
    counts={100: 1_000_000, 1024: 200_000, 16_384: 15_000},
    rate=500,
    latency_seconds=4.0,
    failures=3,
    session_timeout_ms=6_000,
    missed_mb=100,
    many_rounds=1,
    topics=1_000,
    partitions=2_000,
)
FULL = ClusterPlan(
    rounds=5,
    counts={100: 3_000_000, 1024: 800_000, 16_384: 60_000},
    rate=500,
    latency_seconds=15.0,
    failures=5,
    session_timeout_ms=9_000,
    missed_mb=500,
    many_rounds=3,
    topics=1_000,
    partitions=10_000,
)
PLANS: Final = {"smoke": SMOKE, "quick": QUICK, "full": FULL}


@dataclass(frozen=True, slots=True, kw_only=True)
class Up:
    """A contender whose three brokers run."""

    key: str
    title: str
    cluster: Cluster

    def samples(
        self, measure: str, condition: str, round_number: int, figures: dict[str, tuple[float, Better]]
    ) -> Iterator[Sample]:
        for quantity, (value, better) in figures.items():
            yield Sample(
                measure=f"3 brokers: {measure}",
                condition=condition,
                quantity=quantity,
                better=better,
                contender=self.key,
                round_number=round_number,
                value=value,
            )


@contextmanager
def spread_topic(cluster: Cluster, partitions: int) -> Iterator[str]:
    """A topic whose partitions the brokers lead in turn, all in sync; deleted at the end."""
    first = [(*BROKERS[number:], *BROKERS[:number]) for number in range(len(BROKERS))]
    with led_topic(cluster, [first[number % len(first)] for number in range(partitions)]) as name:
        yield name


@contextmanager
def led_topic(cluster: Cluster, placements: list[tuple[int, ...]]) -> Iterator[str]:
    """A topic with these replicas, the first of each leading, all in sync; deleted at the end."""
    name = f"bench-{next(_names)}"
    leaders = [brokers[0] for brokers in placements]
    with BlockingClient(cluster.address(leaders[-1])) as asker:
        asker.create([placed_topic(name, placements)])
    for broker in BROKERS:
        with BlockingClient(cluster.address(broker)) as asker:
            until(
                lambda asker=asker: all_in_sync(asker, name, len(placements), leaders=leaders),  # type: ignore[misc]
                f"bringing up topic {name}",
                seconds_max=WAIT_SECONDS,
            )
    try:
        yield name
    finally:
        _delete(cluster, name)


def _delete(cluster: Cluster, name: str) -> None:
    for broker in BROKERS:
        try:
            with BlockingClient(cluster.address(broker)) as asker:
                asker.delete(name)
        except OSError:  # this one is not up: ask another
            continue
        return


def many_topics(count: int, partitions: int, prefix: str) -> list:  # type: ignore[type-arg]
    return [new_topic(f"{prefix}-{number}", partitions) for number in range(count)]
