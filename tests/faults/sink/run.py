"""One run: brokers, a writer, a query with an exactly-once sink, and kills at random moments; then all is counted."""

from __future__ import annotations

import math
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.faults.sink.job import Job
from tests.faults.sink.outcome import Outcome, Progress, compare, read_rows
from tests.faults.sink.program import Program, ProgramKind, kill
from tests.faults.sink.source_writer import SourceWriter
from tests.kit.waiting import seconds_until

from odradek import Admin, NewTopic
from odradek.model.errors import KafkaError
from odradek.spark.exactly_once.decision import SinkRole, driver_id, sink_of
from odradek.spark.options.sink_ids import group_of
from odradek.testing import Cluster

PARTITIONS: Final = 4
SESSION_SECONDS: Final = 3.0
_UP_SECONDS: Final = 120.0
_END_SECONDS: Final = 300.0
_STALL_SECONDS: Final = 120.0
"""When nothing is killed, and nothing comes out for so long, something hangs."""
_PATIENCE_SECONDS: Final = 20.0
"""When nothing has come out for so long, kills wait for it: a machine that is slow starts nothing between two of them."""
_PATIENT_SHARE: Final = 0.8
"""Of the kills of a driver: the next one comes after it has done something. The others may come while it starts."""
DRIVER: Final = "driver"
WORKER: Final = "worker"
BROKER: Final = "broker"
COORDINATOR: Final = "broker that coordinates"


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """`weights` say how often what is killed; kills are `rest_seconds` apart."""

    program: ProgramKind
    kills: int
    seed: int
    weights: dict[str, int]
    rest_seconds: tuple[float, float] = (0.1, 1.5)
    per_second: int = 400
    records_per_batch: int = 400
    workers: int = 2
    planted: str = ""
    brokers: int = 3
    seconds_max: float = math.inf
    """When nothing more is killed, however many kills there were: input and output are compared all the same."""

    @property
    def settings(self) -> dict[str, str]:
        """Of each broker: what is acknowledged survives the loss of one of them, where there are several."""
        in_sync = str(min(2, self.brokers))
        return {
            "broker.session.timeout.ms": str(int(SESSION_SECONDS * 1000)),
            "min.insync.replicas": in_sync,
            "transaction.state.log.min.isr": in_sync,
            "replica.lag.time.max.ms": "3000",
        }


@dataclass(slots=True, kw_only=True)
class Result:
    terms: Terms
    kills: Counter[str] = field(default_factory=Counter)
    starts: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    batches: int = 0
    seconds: float = 0.0
    outcome: Outcome | None = None
    problem: str | None = None
    """Why the run did not come to its end."""

    @property
    def is_clean(self) -> bool:
        return self.problem is None and self.outcome is not None and self.outcome.is_clean

    def as_json(self) -> dict[str, Any]:
        outcome = self.outcome
        return {
            "program": self.terms.program.name,
            "brokers": self.terms.brokers,
            "seed": self.terms.seed,
            "kills": dict(self.kills),
            "starts": self.starts,
            "failures": dict(self.failures),
            "batches": self.batches,
            "seconds": round(self.seconds),
            "problem": self.problem,
            "in": None if outcome is None else outcome.source_count,
            "out": None if outcome is None else outcome.target_count,
            "lost": None if outcome is None else outcome.lost[:20],
            "doubled": None if outcome is None else outcome.doubled[:20],
            "foreign": None if outcome is None else outcome.foreign[:20],
            "disordered": None if outcome is None else outcome.disordered[:20],
        }

    def text(self) -> str:
        kills = ", ".join(f"{count} x {what}" for what, count in sorted(self.kills.items()))
        return "\n".join(
            [
                f"{self.terms.program.name}, {self.terms.brokers} {_brokers(self.terms.brokers)}, seed"
                f" {self.terms.seed}, {self.seconds:.0f} s:"
                f" {sum(self.kills.values())} kills ({kills})",
                f"{self.batches} batches, {self.starts} starts, and failures of the query:"
                f" {sum(self.failures.values())}",
                *(f"  {count} x {reason}" for reason, count in self.failures.most_common(5)),
                *([] if self.problem is None else [f"problem: {self.problem}"]),
                *([] if self.outcome is None else [self.outcome.text()]),
            ]
        )


def _batch_count(job: Job) -> int:
    """Highest number of a batch that Spark calls done."""
    commits = (Path(job.checkpoint) / "commits").glob("[0-9]*")
    return max((int(commit.name) for commit in commits if commit.name.isdigit()), default=-1) + 1


def _brokers(count: int) -> str:
    return "broker" if count == 1 else "brokers"


def run(terms: Terms, directory: Path, *, tell: Callable[[str], None] = lambda line: None) -> Result:
    """The outcome. Nothing is raised for what the sink does wrong."""
    run_result = Result(terms=terms)
    began = time.monotonic()
    with Cluster(brokers=terms.brokers, settings=terms.settings, data=directory / "cluster") as cluster:
        job = Job(
            servers=cluster.address,
            source="source",
            target="target",
            partitions=PARTITIONS,
            sink_id=f"faults-{terms.seed}",
            checkpoint=str(directory / "checkpoint"),
            workers=terms.workers,
            records_per_batch=terms.records_per_batch,
            planted=terms.planted,
        )
        with Admin(cluster.address) as admin:
            admin.create_topics([NewTopic(name, PARTITIONS) for name in (job.source, job.target)])
        progress = Progress(cluster.address, job.target, PARTITIONS)
        writer = SourceWriter(
            cluster.address, job.source, per_second=terms.per_second, come_out=lambda: progress.count
        )
        writer.start()
        with Program(terms.program, job, directory / "program.log") as program:
            try:
                if seconds_until(lambda: progress.look() > 0, _UP_SECONDS) is None:
                    raise AssertionError(f"nothing came out within {_UP_SECONDS:.0f} s")
                _Killer(terms, cluster, program, job, run_result, tell).kill_all(progress)
            except AssertionError as problem:
                run_result.problem = str(problem)
            writer.finish()
            try:
                source = read_rows(cluster.address, job.source, PARTITIONS, _END_SECONDS)
                if seconds_until(lambda: progress.look() >= len(source), _END_SECONDS) is None:
                    tell(f"{progress.count:,} of {len(source):,} records came out")
            except AssertionError as problem:
                run_result.problem = run_result.problem or str(problem)
                source = []
            run_result.starts, run_result.failures = program.starts, program.failures
        progress.close()
        try:
            target = read_rows(cluster.address, job.target, PARTITIONS, _END_SECONDS)
        except AssertionError as problem:
            run_result.problem = run_result.problem or str(problem)
        else:
            run_result.outcome = compare(source, target)
        run_result.batches = _batch_count(job)
    run_result.seconds = time.monotonic() - began
    return run_result


class _Killer:
    def __init__(
        self,
        terms: Terms,
        cluster: Cluster,
        program: Program,
        job: Job,
        run_result: Result,
        tell: Callable[[str], None],
    ) -> None:
        self._terms = terms
        self._cluster = cluster
        self._program = program
        self._job = job
        self._result = run_result
        self._tell = tell
        self._random = random.Random(terms.seed)
        self._reviving: threading.Thread | None = None

    def kill_all(self, progress: Progress) -> None:
        """AssertionError when nothing comes out any more."""
        kinds, weights = list(self._terms.weights), list(self._terms.weights.values())
        began = time.monotonic()
        seen, seen_at = progress.look(), began
        while (
            sum(self._result.kills.values()) < self._terms.kills
            and time.monotonic() - began < self._terms.seconds_max
        ):
            time.sleep(self._random.uniform(*self._terms.rest_seconds))
            [kind] = self._random.choices(kinds, weights)
            if self._strike(kind):
                if kind == DRIVER and self._random.random() < _PATIENT_SHARE:
                    before = progress.look()
                    seconds_until(lambda before=before: progress.look() > before, _UP_SECONDS)  # type: ignore[misc]
                self._result.kills[self._spelled(kind)] += 1
                done = sum(self._result.kills.values())
                self._tell(
                    f"{time.monotonic() - began:.0f} s: {done}/{self._terms.kills} {self._spelled(kind)};"
                    f" {progress.count:,} records came out, {_batch_count(self._job)} batches"
                )
            if progress.look() == seen and time.monotonic() - seen_at > _PATIENCE_SECONDS:
                has_come = seconds_until(lambda seen=seen: progress.look() > seen, _STALL_SECONDS)  # type: ignore[misc]
                assert has_come is not None, (
                    f"nothing came out for {_STALL_SECONDS:.0f} s; {self._progress()}"
                )
            if progress.count > seen:
                seen, seen_at = progress.count, time.monotonic()
        if self._reviving is not None:
            self._reviving.join()

    def _progress(self) -> str:
        """Returns how many batches are done, and which open transactions hold back readers."""
        with Admin(self._cluster.address) as admin:
            names = [
                transaction.transactional_id for transaction in admin.list_transactions(states=["Ongoing"])
            ]
        return f"{_batch_count(self._job)} batches are done, and open transactions are: {', '.join(names) or 'none'}"

    def _spelled(self, kind: str) -> str:
        if kind == DRIVER:
            return self._terms.program.driver
        return "Python worker" if kind == WORKER else kind

    def _strike(self, kind: str) -> bool:
        """Returns whether anything was hit."""
        if kind == DRIVER:
            return self._program.kill_driver()
        if kind == WORKER:
            workers = self._program.workers()
            return bool(workers) and kill(self._random.choice(workers))
        return self._kill_broker(self._coordinator() if kind == COORDINATOR else None)

    def _kill_broker(self, chosen: int | None) -> bool:
        """One at a time: two of three must be there for anything to be acknowledged. A single one comes back soon."""
        if self._reviving is not None and self._reviving.is_alive():
            return False
        node_id = chosen or self._random.randint(1, self._terms.brokers)
        broker = self._cluster.broker(node_id)
        broker.kill()
        pause_s = self._random.uniform(0.0, 1.5 * SESSION_SECONDS)

        def revive() -> None:
            time.sleep(pause_s)
            broker.start()
            broker.wait_until_ready()

        self._reviving = threading.Thread(target=revive, name="reviving", daemon=True)
        self._reviving.start()
        return True

    def _coordinator(self) -> int | None:
        """That of the driver's id, of a task's, or of the group that holds the decisions; None while no one says."""
        sink_id = self._job.sink_id
        try:
            with Admin(self._cluster.address, default_api_timeout_ms=2_000) as admin:
                if self._random.random() < 1 / 3:
                    group = group_of(sink_id)
                    return admin.describe_groups([group])[group].coordinator
                role = self._random.choice(list(SinkRole))
                name = driver_id(sink_id)
                if role is SinkRole.TASK:
                    names = [transaction.transactional_id for transaction in admin.list_transactions()]
                    name = self._random.choice([name for name in names if sink_of(name) == (sink_id, role)])
                return admin.describe_transactions([name])[name].coordinator
        except (KafkaError, IndexError):
            return None
