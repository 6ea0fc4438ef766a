"""Ids, epochs and offsets as types of their own, so that two integers side by side cannot be swapped unseen."""

from __future__ import annotations

import base64
import re
from typing import Final, NamedTuple, NewType
from uuid import UUID

from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.public import public

Offset = NewType("Offset", int)
"""Position of a record in a partition, counted from 0. Never a byte position."""
LeaderEpoch = NewType("LeaderEpoch", int)
BrokerId = NewType("BrokerId", int)
ProducerId = NewType("ProducerId", int)
ProducerEpoch = NewType("ProducerEpoch", int)
TimestampMs = NewType("TimestampMs", int)
"""Milliseconds since 1970-01-01T00:00:00Z; -1 where there is none."""

NO_OFFSET: Final = Offset(-1)
NO_EPOCH: Final = LeaderEpoch(-1)
NO_BROKER: Final = BrokerId(-1)
NO_PRODUCER_ID: Final = ProducerId(-1)
NO_PRODUCER_EPOCH: Final = ProducerEpoch(-1)
NO_TIMESTAMP: Final = TimestampMs(-1)
ZERO_UUID: Final = UUID(int=0)
"""Kafka's 'no topic id'."""

TOPIC_NAME_LENGTH_MAX: Final = 249
_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]+\Z")


@public("odradek")
class TopicPartition(NamedTuple):
    """One partition of one topic; its string form is the name of its directory."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def check_topic_name(name: str) -> None:
    """Raises INVALID_TOPIC_EXCEPTION unless Kafka allows the name: 1 to 249 of `a-z A-Z 0-9 . _ -`, not `.` or `..`."""
    problem = None
    if not name:
        problem = "a topic name may not be empty"
    elif name in (".", ".."):
        problem = f"a topic may not be named {name!r}"
    elif len(name) > TOPIC_NAME_LENGTH_MAX:
        problem = f"a topic name has at most {TOPIC_NAME_LENGTH_MAX} characters, this one has {len(name)}"
    elif not _TOPIC_NAME.match(name):
        problem = f"topic name {name!r} may hold only ASCII letters, digits, '.', '_' and '-'"
    if problem:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)


def kafka_id(value: UUID) -> str:
    """Returns a UUID in Kafka's form: 22 characters of URL-safe base64."""
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode()
