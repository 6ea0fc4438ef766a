"""The order of it all: three clusters side by side that take turns, then each alone with many partitions."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, Final, Protocol, TypeVar

import confluent_kafka as ck

from benchmarks.cluster import failing, flow
from benchmarks.cluster.many import many
from benchmarks.cluster.nodes import BROKERS, ClusterContender
from benchmarks.cluster.plan import ClusterPlan, Up
from benchmarks.measures import work_directory
from benchmarks.samples import Sample
from odradek.model.errors import OdradekError

Case = Callable[[Up, int], Iterator[Sample]]
T = TypeVar("T")
PARTS: Final = ("flow", "failures", "many")
_FAILURES: Final = (OSError, RuntimeError, subprocess.SubprocessError, ck.KafkaException, OdradekError)
"""One figure that could not be had is not there; the others are. TimeoutError is an OSError."""


class Progress(Protocol):
    def say(self, text: str) -> None: ...
    def show(self, sample: Sample, rounds: int) -> None: ...


class ClusterSuite:
    """`titles` by the keys of `who`."""

    def __init__(
        self,
        who: Sequence[ClusterContender],
        titles: dict[str, str],
        plan: ClusterPlan,
        progress: Progress,
    ) -> None:
        self._who = who
        self._titles = titles
        self._plan = plan
        self._progress = progress
        self.failed: list[str] = []

    def run(self, parts: Sequence[str] = PARTS) -> list[Sample]:
        samples: list[Sample] = []
        if "flow" in parts or "failures" in parts:
            with ExitStack() as stack:
                running = [self._up(stack, contender) for contender in self._who]
                if "flow" in parts:
                    for item in running:
                        self._progress.say(f"three brokers, {item.title}: warm-up")
                        flow.warm_up(item, self._plan)
                    samples += self._in_turns(running, self._flow(), self._plan.rounds)
                if "failures" in parts:
                    samples += self._in_turns(running, self._failures(), self._plan.failures)
        if "many" in parts:
            samples += self._many()
        return samples

    def facts(self) -> dict[str, Any]:
        plan = self._plan
        return {
            "brokers": len(BROKERS),
            "rounds": plan.rounds,
            "records": {str(size): count for size, count in plan.counts.items()},
            "partitions": flow.PARTITIONS,
            "session_timeout_ms": plan.session_timeout_ms,
            "min_insync_replicas": 2,
            "writer": failing.WRITER_SETTINGS,
            "failed": self.failed,
        }

    def _up(self, stack: ExitStack, contender: ClusterContender, directories: ExitStack | None = None) -> Up:
        """Starts a cluster until `stack` is closed. Its directory is removed then, or when `directories` is closed."""
        directory = (directories or stack).enter_context(work_directory())
        cluster = contender.make(directory, self._plan.session_timeout_ms)
        stack.callback(cluster.stop)
        title = self._titles[contender.key]
        self._progress.say(f"three brokers, {title}: start")
        cluster.start()
        return Up(key=contender.key, title=title, cluster=cluster)

    def _flow(self) -> list[Case]:
        plan = self._plan
        cases: list[Case] = [
            lambda item, number, size=size: flow.throughput(item, plan, number, size)  # type: ignore[misc]
            for size in plan.counts
        ]
        return [*cases, lambda item, number: flow.latency(item, plan, number)]

    def _failures(self) -> list[Case]:
        kinds = (
            failing.leader_dies,
            failing.controller_dies,
            failing.leading_controller_dies,
            failing.catching_up,
        )
        return [partial(self._failure, kind) for kind in kinds]

    def _failure(
        self, kind: Callable[[Up, ClusterPlan, int], Iterator[Sample]], item: Up, number: int
    ) -> Iterator[Sample]:
        return kind(item, self._plan, number)

    def _in_turns(self, running: Sequence[Up], cases: Sequence[Case], rounds: int) -> list[Sample]:
        """One case by everyone, then the next; each round begins with another one."""
        samples: list[Sample] = []
        for number in range(rounds):
            for case in cases:
                for item in in_turn(running, number):
                    samples += self.samples_of(item, case, number, rounds)
        return samples

    def _many(self) -> list[Sample]:
        """Each contender alone. Files are removed at the end only: for minutes, ext4 without a journal looks at each freed
        inode whenever it needs a new one, and the next contender would pay for that."""
        samples: list[Sample] = []
        rounds = self._plan.many_rounds
        with ExitStack() as directories:
            for number in range(rounds):
                for contender in in_turn(self._who, number):
                    with ExitStack() as stack:
                        item = self._up(stack, contender, directories)
                        samples += self.samples_of(
                            item, lambda up, turn: many(up, self._plan, turn), number, rounds
                        )
        return samples

    def samples_of(self, item: Up, case: Case, number: int, rounds: int) -> list[Sample]:
        samples: list[Sample] = []
        try:
            for sample in case(item, number):
                samples.append(sample)
                self._progress.show(sample, rounds)
        except _FAILURES as error:
            self.failed.append(f"round {number + 1}, {item.title}: {error}")
            self._progress.say(f"round {number + 1}, {item.title} failed: {error}")
            failing.revive(item.cluster)
        return samples


def in_turn(items: Sequence[T], number: int) -> list[T]:
    """Each round begins with another one, so that no one always comes first."""
    first = number % len(items)
    return [*items[first:], *items[:first]]
