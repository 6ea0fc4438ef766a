"""A partition is hot: nine of ten records have the same key."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Final

from stage import Incident, Stage, Step, play

from odradek import Admin, NewTopic, Producer

CLICKS: Final = "clicks"
PARTITIONS: Final = 6
RECORDS_A_TURN: Final = 100
TURN_S: Final = 0.1
SHOWN_MIN: Final = 1_000


class HotPartition(Incident):
    title = "A partition is hot: one key has nine of ten records."
    alert = "PartitionIsHot"

    def make(self, stage: Stage) -> None:
        with Admin(stage.address) as admin:
            admin.create_topics([NewTopic(CLICKS, PARTITIONS, 1)])
        self._hot = stage.in_background(lambda ended: click(stage.address, 10, ended))
        stage.until(lambda: sum(self._ends(stage)) > SHOWN_MIN, "there are clicks")

    def steps(self, stage: Stage) -> Sequence[Step]:
        hottest = max(range(PARTITIONS), key=self._ends(stage).__getitem__)
        shown = ["-p", str(hottest), "--from", "-20", "--max", "20", "--template", "{key}\\n"]
        return [
            Step(
                "Which partition holds so much more than the others?",
                ["topic", "describe", CLICKS, "-b", stage.address],
                CLICKS,
            ),
            Step("Which keys are in it?", ["consume", CLICKS, *shown, "-b", stage.address], "anonymous"),
        ]

    def mend(self, stage: Stage) -> Sequence[Step]:
        """Sends records of the hot key without a key: their order is not needed."""
        self._hot.set()
        self._before = self._ends(stage)
        stage.in_background(lambda ended: click(stage.address, 0, ended))
        return []

    def is_over(self, stage: Stage) -> bool:
        grown = [now - before for now, before in zip(self._ends(stage), self._before, strict=True)]
        return sum(grown) > SHOWN_MIN and max(grown) < sum(grown) / 2

    def _ends(self, stage: Stage) -> list[float]:
        return [
            stage.total("kafka_topic_partition_current_offset", f'partition="{index}",topic="{CLICKS}"')
            + stage.total("kafka_topic_partition_current_offset", f'topic="{CLICKS}",partition="{index}"')
            for index in range(PARTITIONS)
        ]


def click(address: str, anonymous_share: int, ended: threading.Event) -> None:
    """Sends clicks until the event is set. Of ten records, all but one are anonymous if `anonymous_share` is not 0."""
    with Producer(address) as producer:
        number = 0
        while not ended.wait(TURN_S):
            for _ in range(RECORDS_A_TURN):
                number += 1
                is_anonymous = anonymous_share and number % anonymous_share
                producer.send(CLICKS, b"a click", key="anonymous" if is_anonymous else f"user-{number}")


if __name__ == "__main__":
    play(HotPartition())
