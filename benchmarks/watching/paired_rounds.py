"""Pairs of short rounds of one load, with and without something beside it: differences of 1 % can be seen.

One broker and one producer, which both stay. A pair is two rounds of the same records to new topics, one with and one without
what is measured, in random order, so that what drifts (the machine, the disk, the log's age) meets both. A round has two
figures: the broker's CPU for a record, which the scheduler's clock has in nanoseconds and which other
processes hardly change, and the time of the records. The figure of a pair is a ratio; of all pairs it is the median, with an
interval by bootstrap.

Where there are two CPUs and `taskset`, the broker has one alone; the producer, and who watches, have the others.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Final, NamedTuple, Self

from benchmarks.load import ROOT, Loaded, create_topic, delete_topic
from benchmarks.odradek_node import OdradekNode

VALUE_BYTES: Final = 100
BATCH_BYTES: Final = 1_024
"""Small batches, so that the broker has more to do than its producer: it is the broker that is at its limit."""
PARTITIONS: Final = 8
CALIBRATION_RECORDS: Final = 100_000
SEEN: Final = 0.01
"""The difference that a run is to see, as a share."""
_RESAMPLES: Final = 4_000
_CONFIDENCE: Final = 0.95
_CPUCLOCK_SCHED: Final = 2


class Round(NamedTuple):
    """One round of the load."""

    seconds: float
    broker_cpu_s: float


class Pair(NamedTuple):
    """Two rounds of the same number of records."""

    watched: Round
    alone: Round


class Interval(NamedTuple):
    """A median, and where it lies with 95 % confidence."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        """Returns a ratio as a difference in percent."""
        return f"{self.median - 1:+.2%} (95 %: {self.low - 1:+.2%} to {self.high - 1:+.2%})"

    @property
    def sees(self) -> bool:
        """Whether the interval is narrow enough to tell a difference of 1 % from none."""
        return (self.high - self.low) / 2 <= SEEN


def median_interval(values: Sequence[float], seed: int = 1) -> Interval:
    """Returns the median of the values, and its interval: of the medians of resamples, the middle 95 %."""
    choose = random.Random(seed).choices
    medians = sorted(statistics.median(choose(values, k=len(values))) for _ in range(_RESAMPLES))
    outside = round(_RESAMPLES * (1 - _CONFIDENCE) / 2)
    return Interval(statistics.median(values), medians[outside], medians[-1 - outside])


def cpu_s(pid: int) -> float:
    """Returns the CPU seconds of all threads of a process, also of those that ended, to the nanosecond."""
    return time.clock_gettime((~pid << 3) | _CPUCLOCK_SCHED)  # clock_getcpuclockid(3) of Linux


class LoadedBroker:
    """A broker, and a producer at full speed as a process that stays. A context manager."""

    def __init__(self, settings: Mapping[str, str], directory: Path | None = None) -> None:
        cpus = sorted(os.sched_getaffinity(0))
        self.is_apart: Final = len(cpus) > 1 and shutil.which("taskset") is not None
        """Whether the broker has a CPU of its own."""
        prefix = ("taskset", "-c", str(cpus[0])) if self.is_apart else ()
        self._cpus = cpus
        self.node: Final = OdradekNode(settings=settings, directory=directory, prefix=prefix)
        self._producer: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self.node.start()
        if self.is_apart:
            os.sched_setaffinity(0, self._cpus[1:])  # what this process starts has these, too
        command = [sys.executable, "-m", "benchmarks.load", "rounds", "--bootstrap", self.node.bootstrap]
        command += [
            "--topic",
            "",
            "--value-bytes",
            str(VALUE_BYTES),
            "--acks",
            "all",
            "--set",
            f"batch.size={BATCH_BYTES}",
        ]
        self._producer = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        return self

    def __exit__(self, *_: object) -> None:
        if self._producer is not None:
            self._producer.kill()
            self._producer.wait()
            for pipe in (self._producer.stdin, self._producer.stdout):
                assert pipe is not None
                pipe.close()
        self.node.stop()
        os.sched_setaffinity(0, self._cpus)

    def round(self, records: int, topic: str, watched: AbstractContextManager[object]) -> Round:
        """Sends the records to a new topic, beside what `watched` does."""
        create_topic(self.node.bootstrap, topic, PARTITIONS)
        with watched:
            before_s = cpu_s(self.node.pid)
            loaded = self._sent(topic, records)
            broker_cpu_s = cpu_s(self.node.pid) - before_s
        delete_topic(self.node.bootstrap, topic)
        return Round(loaded.seconds, broker_cpu_s)

    def records_in(self, seconds: float) -> int:
        """Returns the number of records that take so long, after the broker is warm."""
        self.round(CALIBRATION_RECORDS, "warm", nullcontext())
        measured = self.round(CALIBRATION_RECORDS, "calibration", nullcontext())
        return max(CALIBRATION_RECORDS // 10, round(CALIBRATION_RECORDS * seconds / measured.seconds))

    def pairs(
        self, count: int, records: int, watch: Callable[[], AbstractContextManager[object]]
    ) -> Iterator[Pair]:
        """Yields the pairs, each in random order."""
        shuffle = random.Random().shuffle
        for number in range(count):
            order = [True, False]
            shuffle(order)
            rounds = {
                is_watched: self.round(
                    records, f"load-{number}-{is_watched}", watch() if is_watched else nullcontext()
                )
                for is_watched in order
            }
            yield Pair(rounds[True], rounds[False])

    def _sent(self, topic: str, records: int) -> Loaded:
        producer = self._producer
        assert producer is not None
        assert producer.stdin is not None
        assert producer.stdout is not None
        producer.stdin.write(f"{topic} {records}\n")
        producer.stdin.flush()
        line = producer.stdout.readline()
        if not line:
            raise RuntimeError(f"the producer ended with code {producer.wait()}; its error is above")
        return Loaded(**json.loads(line))


def report(pairs: Sequence[Pair], records: int) -> str:
    """Returns what was measured, both differences with their intervals, and whether a difference of 1 % would be seen."""
    alone = [pair.alone for pair in pairs]
    seconds = statistics.median(one_round.seconds for one_round in alone)
    cpu = statistics.median(one_round.broker_cpu_s for one_round in alone)
    by_cpu = median_interval([pair.watched.broker_cpu_s / pair.alone.broker_cpu_s for pair in pairs])
    by_time = median_interval([pair.watched.seconds / pair.alone.seconds for pair in pairs])
    return "\n".join(
        (
            f"  {len(pairs)} pairs of rounds of {records:,} records of {VALUE_BYTES} bytes, batches of {BATCH_BYTES:,}:",
            f"  {seconds:.1f} s a round, {records / seconds:,.0f} records/s, the broker takes {cpu / seconds:.0%} of a CPU,",
            f"  {cpu / records * 1e6:.3f} µs for a record",
            f"  the broker's CPU for a record {by_cpu}: {_verdict(by_cpu)}",
            f"  the time of the records       {by_time}: {_verdict(by_time)}",
        )
    )


def _verdict(interval: Interval) -> str:
    return "1 % would be seen" if interval.sees else "too wide to see 1 %, take more pairs or a quiet machine"


@contextmanager
def nothing() -> Iterator[None]:
    """What stands for the watcher in a control run: both rounds of a pair are the same."""
    yield
