"""One record, as a reader sees it."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple, TypeAlias

Header: TypeAlias = tuple[str, bytes | None]


class TimestampType(IntEnum):
    """The setter of a record's timestamp: the producer, or the broker when it appended the batch."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class Record(NamedTuple):
    """A record read from a batch. A tuple and not a dataclass: millions of them are made per second."""

    offset: int
    timestamp: int
    """Milliseconds since 1970; -1 where the producer set none."""
    timestamp_type: TimestampType
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    """The headers in the producer's order; a key may occur more than once."""
    leader_epoch: int
    """The epoch of the leader that appended the batch; -1 before a leader did."""
