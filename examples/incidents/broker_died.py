"""A broker died: three brokers, one of them is killed. Everything goes on, with one copy less."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from stage import Incident, Stage, Step, play

from odradek import Admin, NewTopic, Producer

FLIGHTS: Final = "flights"
DEAD: Final = 2


class BrokerDied(Incident):
    title = "A broker died: its partitions are led elsewhere, and lack a copy."
    alert = "BrokerDown"
    brokers = 3

    def make(self, stage: Stage) -> None:
        with Admin(stage.address) as admin:
            admin.create_topics([NewTopic(FLIGHTS, 6, 3)])
        stage.cluster.broker(DEAD).kill()
        stage.until(lambda: self._under_replicated(stage) >= 6, "the others notice that it died")
        with Producer(stage.address) as producer:
            producer.send(FLIGHTS, b"still acknowledged").result()

    def steps(self, stage: Stage) -> Sequence[Step]:
        return [
            Step(
                "What is not as it should be?",
                ["cluster", "status", "-b", stage.address],
                FLIGHTS,
            ),
            Step(
                "Is anything offline? Every partition has a leader.",
                ["topic", "describe", FLIGHTS, "-b", stage.address],
                FLIGHTS,
            ),
        ]

    def mend(self, stage: Stage) -> Sequence[Step]:
        """Starts the broker again, as systemd would."""
        stage.cluster.broker(DEAD).start()
        stage.cluster.broker(DEAD).wait_until_ready()
        return []

    def is_over(self, stage: Stage) -> bool:
        return None not in stage.scraped() and self._under_replicated(stage) == 0

    def _under_replicated(self, stage: Stage) -> float:
        return stage.total("kafka_server_replicamanager_underreplicatedpartitions")


INCIDENT: Final = BrokerDied()

if __name__ == "__main__":
    play(INCIDENT)
