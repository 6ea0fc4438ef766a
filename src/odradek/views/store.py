"""The port to a view's stored rows: ordered bytes, and the positions up to which the topic is applied.

A store decides nothing. It keeps rows and positions together: whatever happens to the process, the rows on disk come from
exactly the records below the positions on disk.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol
from uuid import UUID

from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import NO_EPOCH, NO_TIMESTAMP, ZERO_UUID

Row = tuple[bytes, bytes]
"""Key and value, as they are stored."""

SCAN_ROWS_MAX: Final = 1_000
SCAN_BYTES_MAX: Final = 1 << 20
"""The bytes of one scan, which a caller may have in memory at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedPosition:
    """The position up to which one partition has been applied."""

    offset: int
    """The offset of the next record."""
    leader_epoch: int = NO_EPOCH
    """The leader epoch of the last record applied."""
    record_timestamp_ms: int = NO_TIMESTAMP
    """The timestamp of the last record applied."""
    applied_at_ms: int = NO_TIMESTAMP
    """The time when it was applied, by this machine's clock."""
    complete_at_ms: int = NO_TIMESTAMP
    """The last known moment at which nothing was left to apply: tombstones of later moments are still to come."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewState:
    """The state that a store keeps with its rows."""

    topic: str
    topic_id: UUID = ZERO_UUID
    key_format: str
    """The encoding of the stored keys."""
    is_complete: bool = False
    """Whether the rows show one moment of the table. They do not, until the end is reached for the first time."""
    positions: Mapping[int, AppliedPosition] = field(default_factory=dict)
    """Applied positions, by partition."""


class ViewStore(Protocol):
    """A store with one writer and many readers, on any threads. Every method may block, and raise `StoreError`."""

    @property
    def waits_for_disk(self) -> bool:
        """Whether `get` may take longer than a look into memory."""

    def state(self) -> ViewState | None:
        """Returns the last written state; None without one."""

    def apply(self, changes: Mapping[bytes, bytes | None], state: ViewState) -> None:
        """Put rows, remove those whose value is None, and keep `state`: all of it or nothing."""

    def clear(self, state: ViewState) -> None:
        """Remove all rows and keep `state`: both or neither."""

    def get(self, key: bytes) -> bytes | None:
        """Returns the value; None without such a row."""

    def scan(self, start: bytes, end: bytes | None, row_count_max: int) -> Sequence[Row]:
        """Rows from `start` up to `end`, without it, in the order of keys and of one moment.

        Stops early after SCAN_BYTES_MAX; returns at least one row if there is any.
        """

    def count(self) -> int:
        """Returns the number of rows. Counts them."""

    def estimated_count(self) -> int:
        """Returns the approximate number of rows, without counting."""

    def flush(self) -> None:
        """Make what was applied durable."""

    def close(self) -> None:
        """Flush, and end. Idempotent."""


class StoreError(KafkaError):
    """The rows can be neither read nor written (any more): the message names where, why, and what to do."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.KAFKA_STORAGE_ERROR, message)

    @property
    def retriable(self) -> bool:
        return False
