"""A partition is offline: its only copy is on a broker that is down."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from stage import Incident, Stage, Step, play

from odradek import Admin, NewTopic

NOTES: Final = "notes"
HOLDER: Final = 2


class PartitionOffline(Incident):
    title = "A partition is offline: the only broker with a copy is down."
    alert = "PartitionsOffline"
    brokers = 2

    def make(self, stage: Stage) -> None:
        with Admin(stage.address) as admin:
            admin.create_topics([NewTopic(NOTES, assignments=[[1], [HOLDER]])])
        stage.cluster.broker(HOLDER).kill()
        stage.until(lambda: self._offline(stage) > 0, "the controller sees a partition without a leader")

    def steps(self, stage: Stage) -> Sequence[Step]:
        return [
            Step("Which partitions are offline?", ["cluster", "status", "-b", stage.address], f"{NOTES}-1"),
            Step(
                "Which broker has the copy?", ["topic", "describe", NOTES, "-b", stage.address], str(HOLDER)
            ),
        ]

    def mend(self, stage: Stage) -> Sequence[Step]:
        """Starts the broker that holds the copy. A topic with more replicas would not have gone offline."""
        stage.cluster.broker(HOLDER).start()
        stage.cluster.broker(HOLDER).wait_until_ready()
        return []

    def is_over(self, stage: Stage) -> bool:
        return self._offline(stage) == 0 and None not in stage.scraped()

    def _offline(self, stage: Stage) -> float:
        return stage.total("kafka_controller_kafkacontroller_offlinepartitionscount")


INCIDENT: Final = PartitionOffline()

if __name__ == "__main__":
    play(INCIDENT)
