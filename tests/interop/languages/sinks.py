"""Reads what applications commit."""

from __future__ import annotations

import collections
import subprocess
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, TopicPartition
from tests.kit.waiting import PATIENCE_S, eventually

_LOG_CHARACTERS_MAX = 3000


class Sink:
    """What is committed in a topic, by key and in order."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        settings = {"bootstrap.servers": bootstrap, "group.id": "reads-only", "enable.auto.commit": False}
        self._consumer = Consumer({**settings, "isolation.level": "read_committed"})
        self._consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        self.values: dict[str, list[str]] = collections.defaultdict(list)
        self.count = 0

    def read_until(self, count: int, *, running: subprocess.Popen[bytes], log: Path) -> None:
        """Returns once this many records are read. AssertionError with the log if the process fails before."""

        def is_complete() -> bool:
            status = running.poll()
            self.read_some()
            assert self.count >= count or status in (None, 0), f"the process ended with {status}: {so_far()}"
            return self.count >= count

        def so_far() -> str:
            return f"{self.count} of {count}\n{log.read_text(errors='replace')[-_LOG_CHARACTERS_MAX:]}"

        eventually(is_complete, so_far, seconds=PATIENCE_S)

    def read_some(self, seconds: float = 0.2) -> None:
        """Reads what is there, or what comes within the time."""
        self._take(self._consumer.consume(500, seconds))

    def read_what_is_left(self) -> None:
        """What should not be there, were it to come: half a second after nothing more is expected."""
        self.read_some(0.5)

    def _take(self, messages: list[Any]) -> None:
        for message in messages:
            assert message.error() is None
            self.values[(message.key() or b"").decode()].append(message.value().decode())
            self.count += 1

    def close(self) -> None:
        self._consumer.close()
