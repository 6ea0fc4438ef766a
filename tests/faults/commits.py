"""Committed offsets never go back: what was acknowledged, what was read, and someone who reads all the time."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Final

import confluent_kafka
from confluent_kafka import KafkaException, TopicPartition
from tests.faults.access.clients import WATCH, ClientSettings
from tests.faults.standstill import left

_SECONDS: Final = 5.0
_FAILURES_MAX: Final = 6


class Commits:
    """Used by many threads. What is read must be at least what was acknowledged, or read, before the question was asked."""

    def __init__(self) -> None:
        self.gone_back: list[str] = []
        self.asked_count = 0
        self._least: dict[tuple[str, int], int] = {}
        self._lock = threading.Lock()

    def acknowledged(self, group: str, offsets: Mapping[int, int]) -> None:
        with self._lock:
            for partition, offset in offsets.items():
                self._least[group, partition] = max(self._least.get((group, partition), 0), offset)

    def expected(self) -> dict[tuple[str, int], int]:
        """Returns the offsets that a broker must know. Call it before the broker is asked."""
        with self._lock:
            return dict(self._least)

    def read(self, group: str, offsets: Mapping[int, int], expected: Mapping[tuple[str, int], int]) -> None:
        """The answer to a question that was asked after `expected` was."""
        for partition, offset in offsets.items():
            least = expected.get((group, partition), 0)
            if max(offset, 0) < least:
                with self._lock:
                    self.gone_back.append(f"{group}: partition {partition} from {least} to {offset}")
        self.acknowledged(group, offsets)
        with self._lock:
            self.asked_count += 1


class CommitWatch:
    """Reads what groups have committed on `topic`, again and again, in a thread of its own."""

    def __init__(
        self, clients: ClientSettings, topic: str, partitions: int, groups: tuple[str, ...], commits: Commits
    ) -> None:
        self._topic = topic
        self._partitions = partitions
        self._commits = commits
        self._clients = clients
        self._readers = {group: self._reader(group) for group in groups}
        self._failures = dict.fromkeys(groups, 0)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="commit watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def behind(self) -> list[str]:
        """Which groups have not committed all there is, and where. KafkaException when no one answers."""
        results = []
        for group, reader in self._readers.items():
            for partition, offset in sorted(self._committed(group).items()):
                place = TopicPartition(self._topic, partition)
                _, end = reader.get_watermark_offsets(place, timeout=_SECONDS)
                if max(offset, 0) < end:
                    results.append(f"{group}: partition {partition} at {offset} of {end}")
        return results

    def finish(self) -> None:
        self._stopping.set()
        self._thread.join()
        for reader in self._readers.values():  # one that stands still never closes
            closing = threading.Thread(target=reader.close, daemon=True)
            closing.start()
            closing.join(_SECONDS)

    def _reader(self, group: str) -> confluent_kafka.Consumer:
        return confluent_kafka.Consumer(
            {
                **self._clients.of(WATCH),
                "group.id": group,
                "log_level": 0,
                "reconnect.backoff.max.ms": 500,
            }
        )

    def _run(self) -> None:
        while not self._stopping.wait(0.5):
            for group in self._readers:
                try:
                    self._committed(group)
                except KafkaException:
                    continue  # no one answers now

    def _committed(self, group: str) -> dict[int, int]:
        expected = self._commits.expected()
        places = [TopicPartition(self._topic, number) for number in range(self._partitions)]
        try:
            tps = self._readers[group].committed(places, timeout=_SECONDS)
            for partition in tps:
                if partition.error is not None:
                    raise KafkaException(partition.error)
        except KafkaException:
            self._failed(group)
            raise
        self._failures[group] = 0
        offsets = {text.partition: text.offset for text in tps}
        self._commits.read(group, offsets, expected)
        return offsets

    def _failed(self, group: str) -> None:
        """A client that stands still (`standstill.py`) is left where it is: another reads from now on."""
        self._failures[group] += 1
        if self._failures[group] % _FAILURES_MAX == 0:
            left.append(self._readers[group])
            self._readers[group] = self._reader(group)
