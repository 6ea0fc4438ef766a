"""A streaming query without Spark: the sink's own code for drivers and tasks, micro-batches and a checkpoint as Spark has them.

    python -m tests.faults.sink.plain_query JOB            # JSON: a Job

Tasks run in processes of their own, which read JOBs as pickles from their standard input. When such a process dies, its task is
tried again in another one, up to four times; when anything else fails, the query ends, and has to be started again.
"""

from __future__ import annotations

import os
import pickle
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from tests.faults.sink.job import QUERY, Checkpoint, Job
from tests.faults.sink.lifeline import end_with_parent
from tests.faults.sink.planted import PLANTED

from odradek import Admin, Consumer, TopicPartition
from odradek.client.consumer.consumer_record import ConsumerRecord
from odradek.spark.clients import connections
from odradek.spark.exactly_once import prepare, task
from odradek.spark.exactly_once.decision import Participant
from odradek.spark.exactly_once.driver import BatchTerms, DriverMemory, SinkDriver
from odradek.spark.exactly_once.task import BatchName
from odradek.spark.options.sink_ids import group_of

TRIES = 4
TIMEOUT_S = 600.0
IDLE_S = 0.02
TASK_SECONDS = 0.05
Ranges = dict[int, tuple[int, int]]


class Worker:
    """A process that runs tasks one after another."""

    def __init__(self, job: Job) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.sink.plain_query", "--worker", job.as_text()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def give(self, piece: tuple[BatchTerms, Ranges]) -> None:
        """Raises OSError when the process is gone."""
        assert self._process.stdin is not None
        pickle.dump(piece, self._process.stdin)
        self._process.stdin.flush()

    def result(self) -> Participant | None:
        """EOFError when the process is gone; RuntimeError when the task failed."""
        assert self._process.stdout is not None
        outcome = pickle.load(self._process.stdout)
        if isinstance(outcome, str):
            raise RuntimeError(outcome)
        participant: Participant | None = outcome
        return participant

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


class PlainQuery:
    """The driver."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._checkpoint = Checkpoint(job.checkpoint)
        self._workers = [Worker(job) for _ in range(job.workers)]
        self._memory = DriverMemory()
        self._admin = Admin(job.servers)

    def run(self) -> None:
        """It prints its process id once it is at work."""
        sys.stdout.write(f"{os.getpid()}\n")
        sys.stdout.flush()
        while True:
            number, begins, ends = self._checkpoint.next_batch()
            if ends is None:
                ends = self._new_ends(begins)
                if ends == begins:
                    time.sleep(IDLE_S)
                    continue
                self._checkpoint.plan(number, ends)
            self._run_batch(number, {p: (begins.get(p, 0), end) for p, end in ends.items()})
            self._checkpoint.commit(number)

    def _new_ends(self, begins: dict[int, int]) -> dict[int, int]:
        partitions = range(self._job.partitions)
        latest = self._admin.list_offsets({TopicPartition(self._job.source, p): -1 for p in partitions})
        share = max(self._job.records_per_batch // self._job.partitions, 1)
        return {
            p: min(latest[TopicPartition(self._job.source, p)].offset, begins.get(p, 0) + share)
            for p in partitions
        }

    def _run_batch(self, number: int, ranges: Ranges) -> None:
        sink_id = self._job.sink_id
        driver = SinkDriver(self._admin, sink_id, transaction_timeout_s=TIMEOUT_S, memory=self._memory)
        terms = driver.begin()
        name = BatchName(query=QUERY, batch=number)
        if task.is_written(name, terms.decided, sink_id, taking_over=False):
            return
        participants, was_tried_again = self._run_tasks(terms, _cut(ranges))
        ends = {TopicPartition(self._job.source, p): end for p, (_, end) in ranges.items()}
        driver.decide(terms, name, participants, {group_of(sink_id): ends})
        if was_tried_again:
            driver.sweep()

    def _run_tasks(self, terms: BatchTerms, tasks: list[Ranges]) -> tuple[list[Participant], bool]:
        waiting = list(tasks)
        participants: list[Participant] = []
        tries = 0
        while waiting:
            given = list(zip(self._workers, waiting, strict=False))
            waiting = waiting[len(given) :]
            dead = []
            for worker, piece in given:
                try:
                    worker.give((terms, piece))
                except OSError:
                    dead.append((worker, piece))
            for worker, piece in given:
                if (worker, piece) in dead:
                    continue
                try:
                    participant = worker.result()
                except (EOFError, pickle.UnpicklingError):
                    dead.append((worker, piece))
                else:
                    participants += [participant] if participant is not None else []
            for worker, piece in dead:
                tries += 1
                if tries >= TRIES:
                    raise RuntimeError(f"a task was lost {tries} times")
                worker.end()
                self._workers[self._workers.index(worker)] = Worker(self._job)
                waiting.append(piece)
        return participants, tries > 0


def _cut(ranges: Ranges) -> list[Ranges]:
    """Partitions dealt out to a number of tasks that is another one each time: also when a batch is run again."""
    partitions = [p for p, (begin, end) in ranges.items() if begin < end]
    count = random.randint(1, len(partitions)) if partitions else 0
    return [{p: ranges[p] for p in partitions[number::count]} for number in range(count)]


def work(job: Job) -> None:
    """A worker's life. It ends when its driver's pipe does."""
    source, into = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    client = {"bootstrap.servers": job.servers}
    while True:
        try:
            terms, ranges = pickle.load(source)
        except EOFError:
            return
        outcome: Any
        try:
            outcome = prepare.prepare(client, job.sink_id, terms, _rows(job, ranges))
        except Exception as error:  # noqa: BLE001 - the driver decides how to go on
            outcome = f"{type(error).__name__}: {error}"
        pickle.dump(outcome, into)
        into.flush()


def _rows(job: Job, ranges: Ranges) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Spread over some time, so that kills strike in the middle."""
    count = sum(end - begin for begin, end in ranges.values())
    seconds = TASK_SECONDS * random.random()
    with connections.reading({"bootstrap.servers": job.servers}, count) as consumer:
        for partition, (begin, end) in ranges.items():
            for records in _read(consumer, TopicPartition(job.source, partition), begin, end):
                yield (
                    job.target,
                    pa.RecordBatch.from_pydict(
                        {
                            "key": pa.array([record.key for record in records], pa.binary()),
                            "value": pa.array([record.value for record in records], pa.binary()),
                        }
                    ),
                )
            time.sleep(seconds / len(ranges))


def _read(consumer: Consumer, tp: TopicPartition, begin: int, end: int) -> Iterator[list[ConsumerRecord]]:
    consumer.assign([tp])
    consumer.seek(tp, begin)
    while consumer.position(tp) < end:
        records = [record for record in consumer.poll(1.0) if record.offset < end]
        if records:
            yield records


def main() -> None:
    job = Job.from_text(sys.argv[-1])
    if job.planted:
        PLANTED[job.planted]()
    if sys.argv[1] == "--worker":
        work(job)
    else:
        end_with_parent()
        PlainQuery(job).run()


if __name__ == "__main__":
    main()
