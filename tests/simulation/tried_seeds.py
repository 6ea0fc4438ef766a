"""The seeds that tests run under their own plans of faults, by scenario. No other test need run them again without a bug."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Final

from tests.simulation.cluster.faults import ClusterFaults
from tests.simulation.cluster.plays import profile_of

CLUSTER_SEEDS: Final = 200
_TIMES: Final = 3
_SEEDS_OF_A_PROFILE: Final = 8
TRIED: Final[dict[str, range]] = {
    "storage": range(160),
    "broker": range(40),
    "compaction": range(80),
    "follower": range(200),
    "transactions": range(60),
    "groups": range(20),
    "consumer_groups": range(20),
    "shares": range(10),
    "streams_groups": range(20),
    "large_targets": range(20),
    "rude": range(40),
    "disks": range(8),
    "page_cache": range(24),
    "streams_failover": range(8),
}
"""Seeds that must keep every promise. Those of `cluster` are `telling_seeds`."""


def firsts(scenario: str, count: int) -> range:
    """Returns the first seed of each group of `count` seeds of a scenario."""
    seeds = TRIED[scenario]
    return range(seeds.start, seeds.stop, count)


def strikes_of(seed: int) -> Counter[tuple[str, ...]]:
    """Returns what hits whom under a seed, and under which profile, which decides what comes before and after."""
    strikes = Counter[tuple[str, ...]]({(profile_of(seed),): 1})
    for strike in ClusterFaults.draw(seed).strikes:
        strikes[strike.kind, strike.role] += 1
        strikes[profile_of(seed), strike.kind] = _TIMES
    return strikes


@cache
def telling_seeds() -> list[int]:
    """Returns those of the first `CLUSTER_SEEDS` that bring something: each kind of fault hits each role `_TIMES`, each profile
    has its kinds of faults, and some seeds; or as many as there are in all. `make sim` runs thousands of seeds."""
    left = {seed: strikes_of(seed) for seed in range(CLUSTER_SEEDS)}
    wanted = Counter[tuple[str, ...]]()
    for strikes in left.values():
        wanted += strikes
    wanted = Counter(
        {
            what: min(count, _SEEDS_OF_A_PROFILE if len(what) == 1 else _TIMES)
            for what, count in wanted.items()
        }
    )
    chosen = []
    while wanted:
        seed = max(left, key=lambda seed: (wanted & left[seed]).total())
        chosen.append(seed)
        wanted -= left.pop(seed)
    return sorted(chosen)
