"""A compacted topic: keys that are written again and again, and the check that the last value of each key is there."""

from __future__ import annotations

import time
from typing import Any, Final

import confluent_kafka
from tests.faults.access.clients import ClientSettings
from tests.faults.client_thread import ClientThread
from tests.faults.writers import read_topic

KEYED_TOPIC: Final = "keyed"
KEYED_PARTITIONS: Final = 2
KEYED_SETTINGS: Final = {
    "cleanup.policy": "compact",
    "segment.bytes": str(1 << 20),
    "segment.ms": "60000",
    "min.cleanable.dirty.ratio": "0.1",
}
_KEYS: Final = 500
_PAD: Final = "x" * 200
_FLUSH_SECONDS: Final = 120.0


class KeyedWriter(ClientThread):
    """Writes ever larger numbers under keys drawn in turn; `acknowledged` is the largest of each key that is on disk."""

    def __init__(self, address: str, *, per_second: int) -> None:
        super().__init__("keyed-writer")
        self.acknowledged: dict[str, int] = {}
        self.sent: dict[str, int] = {}
        self.unanswered_count = 0
        self._per_second = per_second
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": address,
                "enable.idempotence": True,
                "acks": "all",
                "message.timeout.ms": 300_000,
                "log_level": 0,
            }
        )

    def _run(self) -> None:
        began, number = time.monotonic(), 0
        while not self._stopping.is_set():
            due = int((time.monotonic() - began) * self._per_second)
            while number < due and not self._stopping.is_set():
                key = f"key-{number % _KEYS}"
                self._producer.produce(
                    KEYED_TOPIC, f"{number} {_PAD}", key=key, on_delivery=self._delivered(key, number)
                )
                self.sent[key] = number
                number += 1
            self._producer.poll(0.02)
            self.busy_since = time.monotonic()
        self.unanswered_count = self._producer.flush(_FLUSH_SECONDS)

    def _delivered(self, key: str, number: int) -> Any:
        def on_delivery(error: Any, _: Any) -> None:
            if error is None:
                self.acknowledged[key] = max(self.acknowledged.get(key, -1), number)
            else:
                self.troubles[error.name()] += 1

        return on_delivery


def wrong_keys(address: str, writer: KeyedWriter, timeout_s: float) -> list[str]:
    """Keys whose last value is older than what was acknowledged, or was never sent."""
    last: dict[str, int] = {}
    for message in read_topic(ClientSettings(address=address), KEYED_TOPIC, KEYED_PARTITIONS, timeout_s):
        last[message.key().decode()] = int(message.value().split()[0])
    return [
        f"{key}: {last.get(key)}, acknowledged {number}, sent {writer.sent[key]}"
        for key, number in writer.acknowledged.items()
        if not number <= last.get(key, -1) <= writer.sent[key]
    ]
