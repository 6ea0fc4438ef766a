"""A transaction hangs: its producer died between two records, and its timeout is an hour. Readers of committed records wait."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from stage import Incident, Stage, Step, play

from odradek import Admin, Consumer, NewTopic, Producer, TopicPartition

TRANSFERS: Final = "transfers"
NAME: Final = "transfer-service-1"
GROUP: Final = "statements"
"""A group that reads committed records, and waits for the transaction."""
HOUR_MS: Final = 3_600_000


class HangingTransaction(Incident):
    title = "A transaction hangs: readers of committed records stand still."
    alert = "TransactionHangs"
    settings: Mapping[str, str] = {"transaction.max.timeout.ms": str(HOUR_MS)}

    def make(self, stage: Stage) -> None:
        with Admin(stage.address) as admin:
            admin.create_topics([NewTopic(TRANSFERS, 1, 1)])
        self._dead = Producer(stage.address, transactional_id=NAME, transaction_timeout_ms=HOUR_MS)
        self._dead.init_transactions()
        self._dead.begin_transaction()
        self._dead.send(TRANSFERS, b"half of a transfer").result()
        with Producer(stage.address) as producer:
            producer.send(TRANSFERS, b"another service's record").result()
        stage.in_background(partial(write_statements, stage.address))
        stage.until(lambda: self._open_seconds(stage) > 0, "a transaction is open")
        stage.until(lambda: stage.total("kafka_consumergroup_lag_sum", GROUP) > 0, "a group waits for it")
        assert read_committed(stage.address, 1.0) == []

    def steps(self, stage: Stage) -> Sequence[Step]:
        return [
            Step(
                "Which group waits, and where?", ["group", "describe", GROUP, "-b", stage.address], TRANSFERS
            ),
            Step("Which transactions are open?", ["txn", "list", "-s", "Ongoing", "-b", stage.address], NAME),
            Step(
                "Since when, until when, and in which partitions?",
                ["txn", "describe", NAME, "-b", stage.address],
                f"{TRANSFERS}-0",
            ),
        ]

    def mend(self, stage: Stage) -> Sequence[Step]:
        return [
            Step(
                "Abort it, and shut its producer out. (A producer that starts again with this id does the same.)",
                ["txn", "terminate", NAME, "--yes", "-b", stage.address],
            )
        ]

    def is_over(self, stage: Stage) -> bool:
        if self._open_seconds(stage) > 0:
            return False
        return read_committed(stage.address, 10.0) == [b"another service's record"]

    def _open_seconds(self, stage: Stage) -> float:
        return stage.total("odradek_transaction_open_seconds_max")


def write_statements(address: str, ended: threading.Event) -> None:
    """Reads committed records as a member of a group, and commits its position, until the end."""
    with Consumer(
        address, group_id=GROUP, isolation_level="read_committed", auto_offset_reset="earliest"
    ) as consumer:
        consumer.subscribe([TRANSFERS])
        while not ended.is_set():
            consumer.poll(0.5)
            if consumer.assignment():
                consumer.commit()


def read_committed(address: str, timeout_s: float) -> list[bytes | None]:
    with Consumer(address, isolation_level="read_committed", auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(TRANSFERS, 0)])
        return [record.value for record in consumer.poll(timeout_s)]


if __name__ == "__main__":
    play(HangingTransaction())
