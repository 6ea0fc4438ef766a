"""What is said of a log that has not what was put into it: its replica must not lead, and must fetch again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import TopicPartition


class LostRecordsError(KafkaError):
    """A log has not what it must have: it was durable once. It is opened only where another replica can give it back."""


class DamagedBatchError(KafkaError):
    """What a log holds is not what was put in. From `offset` on it must come from another replica."""

    def __init__(self, code: ErrorCode, message: str, offset: int) -> None:
        super().__init__(code, message)
        self.offset: Final = offset


OnDamaged: TypeAlias = Callable[[TopicPartition, DamagedBatchError], None]
