"""A group is behind: one member reads all partitions, and its handler takes a second for each record."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import partial
from typing import Final

from stage import Incident, Stage, Step, play

from odradek import Admin, Consumer, NewTopic, Producer

ORDERS: Final = "orders"
GROUP: Final = "billing"
PARTITIONS: Final = 4
ORDER_COUNT: Final = 400


def bill(address: str, seconds_each: float, ended: threading.Event) -> None:
    """A member of the group."""
    with Consumer(
        address, group_id=GROUP, client_id="billing-worker", auto_offset_reset="earliest", max_poll_records=1
    ) as consumer:
        consumer.subscribe([ORDERS])
        while not ended.is_set():
            for _ in consumer.poll(0.2):
                ended.wait(seconds_each)
                consumer.commit()


class GroupBehind(Incident):
    title = "A group is behind: its only member is slow."
    alert = "GroupFallsBehind"

    def make(self, stage: Stage) -> None:
        with Admin(stage.address) as admin:
            admin.create_topics([NewTopic(ORDERS, PARTITIONS, 1)])
        with Producer(stage.address) as producer:
            for number in range(ORDER_COUNT):
                producer.send(ORDERS, b"an order", key=f"customer-{number % 50}")
        self._slow = stage.in_background(partial(bill, stage.address, 1.0))
        stage.until(lambda: self._lag(stage) > 0 and self._members(stage) == 1, "the group lags")
        stage.until(lambda: self._age(stage) > 0, "the group is seconds behind")

    def steps(self, stage: Stage) -> Sequence[Step]:
        return [
            Step(
                "How far is it behind, and where?", ["group", "describe", GROUP, "-b", stage.address], ORDERS
            ),
            Step(
                "Who reads? One member has all four partitions.",
                ["group", "describe", GROUP, "--members", "-b", stage.address],
                "billing-worker",
            ),
        ]

    def mend(self, stage: Stage) -> Sequence[Step]:
        """Gives the group members that keep up: the handler is mended."""
        self._slow.set()
        for _ in range(2):
            stage.in_background(partial(bill, stage.address, 0.0))
        return []

    def is_over(self, stage: Stage) -> bool:
        return self._members(stage) == 2 and self._lag(stage) == 0

    def _lag(self, stage: Stage) -> float:
        return stage.total("kafka_consumergroup_lag_sum", GROUP)

    def _members(self, stage: Stage) -> float:
        return stage.total("kafka_consumergroup_members", GROUP)

    def _age(self, stage: Stage) -> float:
        return stage.total("odradek_consumergroup_lag_seconds_max", GROUP)


INCIDENT: Final = GroupBehind()

if __name__ == "__main__":
    play(INCIDENT)
