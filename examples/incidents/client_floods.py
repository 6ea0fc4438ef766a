"""One client floods the broker: it writes as fast as it can, and the others wait behind it."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from typing import Final

from stage import Incident, Stage, Step, play

from odradek import Admin, NewTopic, Producer

LOGS: Final = "logs"
FLOODER: Final = "crawler"
RECORD_BYTES: Final = 200_000
LIMIT: Final = 1_000_000
SHOWN_MIN: Final = 50_000_000
BLOCK: Final = os.urandom(RECORD_BYTES)


class ClientFloods(Incident):
    title = "A client floods the broker: it has no quota."
    alert = "ClientFloods"
    settings: Mapping[str, str] = {"log.retention.bytes": "100000000", "log.segment.bytes": "10000000"}

    def make(self, stage: Stage) -> None:
        with Admin(stage.address) as admin:
            admin.create_topics([NewTopic(LOGS, 1, 1)])
        stage.in_background(lambda ended: write(stage.address, FLOODER, 0.0, ended))
        stage.in_background(lambda ended: write(stage.address, "polite", 0.5, ended))
        stage.until(lambda: self._bytes(stage) > SHOWN_MIN, "the crawler shows")

    def steps(self, stage: Stage) -> Sequence[Step]:
        return [
            Step(
                "Who reads and writes how much?",
                ["top", "--metrics", stage.metrics[0], "--rounds", "1"],
                FLOODER,
            ),
            Step("Is there a limit for anyone? None.", ["quota", "list", "-b", stage.address], "no quotas"),
        ]

    def mend(self, stage: Stage) -> Sequence[Step]:
        limit = [f"producer_byte_rate={LIMIT}", "--client", FLOODER]
        return [Step("Limit it: it is slowed down at once.", ["quota", "set", *limit, "-b", stage.address])]

    def is_over(self, stage: Stage) -> bool:
        """Whether less than three times the limit is written in two seconds: a quota looks at the mean of ten."""
        before = self._bytes(stage)
        threading.Event().wait(2.0)
        return self._bytes(stage) - before < 3 * 2 * LIMIT

    def _bytes(self, stage: Stage) -> float:
        return stage.total("odradek_client_bytes", f'client_id="{FLOODER}"')


def write(address: str, client_id: str, pause_s: float, ended: threading.Event) -> None:
    with Producer(address, client_id=client_id, linger_ms=0) as producer:
        while not ended.wait(pause_s):
            producer.send(LOGS, BLOCK).result()


if __name__ == "__main__":
    play(ClientFloods())
