"""A transaction hangs: its producer died between two records, and its timeout is an hour. Readers of committed records wait."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from stage import Incident, Stage, Step, play

from odradek import Admin, Consumer, NewTopic, Producer, TopicPartition

TRANSFERS: Final = "transfers"
NAME: Final = "transfer-service-1"
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
        stage.until(lambda: self._open_seconds(stage) > 0, "a transaction is open")
        assert read_committed(stage.address, 1.0) == []

    def steps(self, stage: Stage) -> Sequence[Step]:
        return [
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


def read_committed(address: str, timeout_s: float) -> list[bytes | None]:
    with Consumer(address, isolation_level="read_committed", auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(TRANSFERS, 0)])
        return [record.value for record in consumer.poll(timeout_s)]


if __name__ == "__main__":
    play(HangingTransaction())
