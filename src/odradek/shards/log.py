"""The partition under a shard, as this room needs it; `broker/` adapts the real one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from odradek.runtime.ports import Buffer


class ShardLog(Protocol):
    """The leader's view of a partition, used on the event loop. Refusals are KafkaErrors."""

    @property
    def name(self) -> str: ...

    @property
    def leader_epoch(self) -> int:
        """The leadership that this log is used under. Once it is over, everything is refused (NOT_LEADER_OR_FOLLOWER)."""

    @property
    def start_offset(self) -> int: ...

    @property
    def end_offset(self) -> int: ...

    @property
    def batch_bytes_max(self) -> int:
        """The topic's `max.message.bytes`: no batch may be larger."""

    def check_writable(self) -> None:
        """Raises the errors of `append`: the log is offline, its disk is full, or others lead."""

    def call_after_flush(self, call: Callable[[], None]) -> bool:
        """Calls `call` when the flush under way has ended: what is appended before that would wait for the
        next one anyway. Returns False, and never calls, where there is none, or where an append waits for
        something else."""

    def append(self, batch: bytearray, *, now_ms: int) -> int:
        """Appends one batch; returns the offset of its last record."""

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        *,
        is_commit: bool,
        coordinator_epoch: int,
        transaction_version: int,
        now_ms: int,
    ) -> int:
        """Appends the end of a transaction; returns its offset. Raises INVALID_PRODUCER_EPOCH,
        TRANSACTION_COORDINATOR_FENCED."""

    def age_ms(self, offset: int) -> int | None:
        """Returns the least time since an earlier leader wrote the record; None when that is unknown."""

    def committed(self, last_offset: int) -> asyncio.Future[None] | None:
        """Returns None when the record at `last_offset` is durable on every in-sync replica, else a future for that moment."""

    async def bring(self, offset: int, max_bytes: int) -> None:
        """Makes another thread wait for the disk, where a `read` would have to."""

    def read(self, offset: int, max_bytes: int) -> tuple[Buffer, int]:
        """Returns whole batches from the one that contains `offset`, at least one, and the next offset. Empty at the log's
        end."""
