"""Notices that a topic ends, or becomes another one, while a client reads up to an end that was looked up before.

Such an end may never come: the topic was deleted, or made again with fewer records. Then the reader must stop with an error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final
from uuid import UUID

from odradek.model.errors import ErrorCode, KafkaError

_GONE_CHECKS: Final = 4
"""The number of checks in a row that must find no topic: a broker that has just started may not know it yet."""


class SameTopics:
    """The topics that a bounded read began with."""

    def __init__(self, topic_id: Callable[[str], UUID | None], ids: Mapping[str, UUID | None]) -> None:
        """`topic_id` is `Consumer.topic_id`; `ids` are the topics' ids from before their end offsets were
        looked up."""
        self._topic_id = topic_id
        self._ids = ids
        self._gone_counts = dict.fromkeys(ids, 0)

    def check(self) -> None:
        """Call this after every poll, before its records are used. KafkaError when a topic was deleted or made again."""
        for topic, first_id in self._ids.items():
            topic_id = self._topic_id(topic)
            if topic_id is not None and first_id is not None and topic_id != first_id:
                raise KafkaError(
                    ErrorCode.UNKNOWN_TOPIC_ID,
                    f"topic {topic!r} was deleted and made again while it was read: read it again from its beginning",
                )
            self._gone_counts[topic] = self._gone_counts[topic] + 1 if topic_id is None else 0
            if self._gone_counts[topic] >= _GONE_CHECKS:
                raise KafkaError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic!r} was deleted while it was read"
                )
