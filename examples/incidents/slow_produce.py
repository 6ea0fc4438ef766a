"""Produce is slow: the disk takes 1.2 s for a flush. Network, clients and the broker itself are well."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from stage import Incident, Stage, Step, play

from odradek import Admin, NewTopic, Producer

PAYMENTS: Final = "payments"
PATCH: Final = Path(__file__).parent / "slow_disk"


class SlowProduce(Incident):
    title = "Produce is slow: a flush of the disk takes 1.2 s."
    alert = "DiskIsSlow"

    def __init__(self) -> None:
        self._flag = Path(tempfile.gettempdir()) / f"slow-disk-{os.getpid()}"

    def environment(self) -> dict[str, str]:
        return {"PYTHONPATH": str(PATCH), "INCIDENT_SLOW_DISK": str(self._flag)}

    def make(self, stage: Stage) -> None:
        with Admin(stage.address) as admin:
            admin.create_topics([NewTopic(PAYMENTS, 1, 1)])
        self._flag.touch()
        stage.in_background(lambda ended: pay(stage.address, ended))
        stage.until(lambda: stage.total("odradek_slow_requests_total") >= 3, "requests are slow")

    def steps(self, stage: Stage) -> Sequence[Step]:
        return [
            Step(
                "Which requests are slow, and in which stage? They wait: for the disk, or for replicas.",
                ["broker", "slow", "--metrics", stage.metrics[0]],
                "Produce",
            ),
            Step(
                "Are there replicas to wait for? There is one broker: it is the disk.",
                ["cluster", "status", "-b", stage.address],
            ),
        ]

    def mend(self, stage: Stage) -> Sequence[Step]:
        """Makes the disk fast again."""
        self._flag.unlink()
        return []

    def is_over(self, stage: Stage) -> bool:
        before = (
            stage.total("odradek_slow_requests_total"),
            stage.total("kafka_log_logflushstats_logflushrateandtimems_count"),
        )
        stage.until(
            lambda: stage.total("kafka_log_logflushstats_logflushrateandtimems_count") > before[1] + 5,
            "payments are flushed",
        )
        return stage.total("odradek_slow_requests_total") == before[0]


def pay(address: str, ended: threading.Event) -> None:
    with Producer(address, linger_ms=0) as producer:
        while not ended.wait(0.02):
            producer.send(PAYMENTS, b"1.00").result()


INCIDENT: Final = SlowProduce()

if __name__ == "__main__":
    play(INCIDENT)
