"""An exactly-once sink without Spark: the driver's and the tasks' own code, called as Spark would."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any
from unittest import mock

import pyarrow as pa

from odradek import Admin, Consumer, TopicPartition
from odradek.spark.exactly_once import prepare
from odradek.spark.exactly_once.decision import Decision, Participant
from odradek.spark.exactly_once.driver import BatchTerms, SinkDriver, last_decision
from odradek.spark.exactly_once.task import BatchName

SECONDS = 60.0


def batch(number: int) -> BatchName:
    return BatchName(query="q", batch=number)


@dataclass
class PlainSink:
    """A sink of one topic."""

    admin: Admin
    servers: str
    sink_id: str
    topic: str
    partitions: int = 1

    def driver(self, **more: Any) -> SinkDriver:
        """In a process of its own, as far as its memory goes."""
        return SinkDriver(self.admin, self.sink_id, **{"transaction_timeout_s": 600.0, **more})

    def run_task(
        self,
        terms: BatchTerms,
        *values: bytes,
        partition: int = 0,
        has_own_process: bool = True,
        **settings: object,
    ) -> Participant:
        """A task that writes the values and leaves; in this process, or as if in one that no one else has."""
        client = {"bootstrap.servers": self.servers, "linger.ms": "0"}
        client |= {key.replace("_", "."): str(value) for key, value in settings.items()}
        rows = pa.RecordBatch.from_pydict(
            {
                "value": pa.array(values, pa.binary()),
                "partition": pa.array([partition] * len(values), pa.int32()),
            }
        )
        with mock.patch.dict(prepare.known_names, clear=has_own_process):
            participant = prepare.prepare(client, self.sink_id, terms, [(self.topic, rows)])
            names = dict(prepare.known_names)
        if not has_own_process:
            prepare.known_names.update(names)
        assert participant is not None
        return participant

    def decided(self) -> Decision | None:
        return last_decision(self.admin, self.sink_id)

    def committed(self) -> list[bytes]:
        """Everything below the ends of the logs, all of which must become stable; partition by partition."""
        wanted = [TopicPartition(self.topic, number) for number in range(self.partitions)]
        values: dict[int, list[bytes]] = {number: [] for number in range(self.partitions)}
        with (
            Consumer(
                self.servers, auto_offset_reset="earliest", isolation_level="read_committed"
            ) as consumer,
            Consumer(self.servers) as plain,
        ):
            consumer.assign(wanted)
            ends = plain.end_offsets(wanted)
            deadline = time.monotonic() + SECONDS
            while any(consumer.position(tp) < end for tp, end in ends.items()):
                assert time.monotonic() < deadline, "a transaction is open and holds back its readers"
                for record in consumer.poll(0.2):
                    values[record.partition].append(record.value or b"")
        return [value for part in values.values() for value in part]
