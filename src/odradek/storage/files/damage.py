"""Errors of a log that lacks records that it had: its replica must not lead, and must fetch again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import TopicPartition


class LostRecordsError(KafkaError):
    """A log has not what it must have: it was durable once. It is opened only where another replica can give it back, or where
    someone accepted the loss."""


class AbsentLogError(KafkaError):
    """A log that should be there is not."""


def lost_replica(name: TopicPartition, problem: str) -> LostRecordsError:
    """Returns the error for a log that is missing and that no other replica can restore. Its text names what
    an operator can do."""
    return LostRecordsError(
        ErrorCode.KAFKA_STORAGE_ERROR,
        f"{name}: {problem}, and no other replica in sync can give it back. Bring the disk back and restart this broker, or "
        f"accept the loss: odradek cluster elect {name} --unclean",
    )


class DamagedBatchError(KafkaError):
    """A batch that differs from what was appended. From `offset` on, the log must come from another replica."""

    def __init__(self, code: ErrorCode, message: str, offset: int) -> None:
        super().__init__(code, message)
        self.offset: Final = offset


OnDamaged: TypeAlias = Callable[[TopicPartition, DamagedBatchError], None]
OnLack: TypeAlias = Callable[[TopicPartition], None]
