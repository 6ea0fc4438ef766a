"""A redrive's transactions are short, however long it looks for letters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Self
from uuid import UUID

import pytest

from odradek.client.admin.types import ConfigResource, PartitionDescription, TopicDescription
from odradek.client.consumer.consumer_record import ConsumerRecord
from odradek.dead_letters import redrive as redriving
from odradek.dead_letters.redriven import REDRIVES_TOPIC, RedrivenState
from odradek.dead_letters.selection import Selection
from odradek.dead_letters.sending_back import Fate, RedriveRequest
from odradek.records import TimestampType


class RecordingProducer:
    """Writes down what it is asked to do."""

    def __init__(self, steps: list[str]) -> None:
        self._steps = steps

    def __call__(self, _servers: str, **_settings: Any) -> RecordingProducer:
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def init_transactions(self) -> None:
        pass

    def begin_transaction(self) -> None:
        self._steps.append("begin")

    def send(self, topic: str, _value: bytes | None, **_more: Any) -> None:
        if topic != REDRIVES_TOPIC:
            self._steps.append("send")

    def send_offsets_to_transaction(self, _offsets: Any, _group: Any) -> None:
        pass

    def commit_transaction(self) -> None:
        self._steps.append("commit")


class LettersInMemory:
    """A dead-letter topic with one partition."""

    name = "orders.dlq"
    servers = "nowhere:1"

    def __init__(self, errors: list[bytes], steps: list[str]) -> None:
        self.settings: dict[str, Any] = {}
        self._errors = errors
        self._steps = steps

    @property
    def admin(self) -> LettersInMemory:
        return self

    def describe_topics(self, topics: list[str]) -> dict[str, TopicDescription]:
        """Every topic is there."""
        partition = PartitionDescription(
            partition=0, leader=1, leader_epoch=0, replicas=(1,), isr=(1,), offline=()
        )
        return {
            topic: TopicDescription(name=topic, topic_id=UUID(int=1), internal=False, partitions=(partition,))
            for topic in topics
        }

    def describe_configs(self, resources: list[ConfigResource]) -> dict[ConfigResource, dict[str, Any]]:
        return {resource: {} for resource in resources}

    def state(self) -> RedrivenState:
        return RedrivenState(self.name, UUID(int=7))

    def partition_count(self, _topic: str, _letter: Any) -> int:
        return 1

    def records(self, begin: Callable[[int, int], int]) -> Iterator[ConsumerRecord]:
        for offset in range(begin(0, 0), len(self._errors)):
            self._steps.append("read")
            headers = (
                ("__dlq.errors.topic", b"orders"),
                ("__dlq.errors.partition", b"0"),
                ("__dlq.errors.offset", b"%d" % offset),
                ("__dlq.errors.exception", self._errors[offset]),
            )
            yield ConsumerRecord(
                self.name, 0, offset, 1, TimestampType.CREATE_TIME, None, b"v", headers, leader_epoch=-1
            )


def test_no_transaction_is_open_while_letters_are_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []
    monkeypatch.setattr(redriving, "Producer", RecordingProducer(steps))
    topic: Any = LettersInMemory([b"KeyError", b"OSError", b"OSError", b"KeyError", b"OSError"], steps)
    progress = redriving.redrive(topic, RedriveRequest(selection=Selection(errors=("KeyError",))))
    assert steps == ["read"] * 5 + ["begin", "send", "send", "commit"]
    assert progress.counts[Fate.SENT] == 2
    assert progress.sent_to == {"orders": 2}
