"""The rows that a change of a hot path can move, in less than five minutes: `make bench-quick`.

Conditions are those of the published rows, so that `movement.py` can compare them; there are more rounds and fewer rows.
"""

from __future__ import annotations

from typing import Final

from benchmarks.broker import small_requests
from benchmarks.coordination import commit_seconds
from benchmarks.load import LATENCY_WARM_UP_SECONDS
from benchmarks.measures import READ_TIMES, Plan

MEASURES: Final = ("throughput", "latency", "commits", "small")
HOT_PATH: Final = Plan(
    rounds=5,
    counts={1024: 300_000},
    latency_seconds=3.0,
    start_rounds=1,
    acks=("all",),
)
SECONDS_MAX: Final = 300.0

# What two quiet cores took for each, by docs/benchmarks.json, rounded up: the slowest contender counts.
_PRODUCE_MB_S: Final = 150.0
_CONSUME_MB_S: Final = 1000.0
_START_SECONDS: Final = 4.0
_TOPIC_SECONDS: Final = 0.3
"""A topic that is created and deleted, the disk synced, a client process started."""


def planned_seconds(plan: Plan, contenders: int) -> float:
    """Returns how long a run of `MEASURES` takes at most on two quiet cores."""
    megabytes = sum(size * count for size, count in plan.counts.items()) / 1e6
    flow = megabytes / _PRODUCE_MB_S + READ_TIMES * megabytes / _CONSUME_MB_S
    latency = plan.latency_seconds + LATENCY_WARM_UP_SECONDS
    a_round = (
        len(plan.acks) * (flow + latency + small_requests.seconds_of(plan) + 1.0)
        + commit_seconds(plan)
        + 8 * _TOPIC_SECONDS
    )
    warm_up = _START_SECONDS + 2 * flow
    return contenders * (warm_up + plan.rounds * a_round)
