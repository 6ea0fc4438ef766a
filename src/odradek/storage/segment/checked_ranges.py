"""The bytes of a segment that were found sound since this process began to use it.

What it wrote or scanned itself is; what was there before may have rotted, and is checked when it is read for the first time.
"""

from __future__ import annotations

from typing import Final

from odradek.model.errors import ErrorCode, KafkaError
from odradek.records import check_crc, split_batches
from odradek.runtime.ports import Buffer
from odradek.storage.files.damage import DamagedBatchError

_EPOCH_MAX: Final = 2**31 - 1


class CheckedRanges:
    """The checked and the doubtful bytes of a segment: those from `checked` to `doubted` are in doubt."""

    __slots__ = ("checked", "doubted", "epoch_max", "gaps_below")

    def __init__(self, size_bytes: int) -> None:
        """`size_bytes` are the bytes of a file that was there before."""
        self.checked = 0
        self.doubted = size_bytes
        self.gaps_below = 0
        """Up to this offset a compaction may have left nothing between two segments."""
        self.epoch_max = _EPOCH_MAX
        """No batch that was there before is of a later leader epoch."""

    def all(self) -> None:
        """Trusts every byte: it is this process's own, or was scanned by it."""
        self.doubted = 0

    def cut(self, size_bytes: int) -> None:
        self.doubted = min(self.doubted, size_bytes)

    def is_doubtful(self, start: int, end: int) -> bool:
        return start < self.doubted and end > self.checked

    def check(self, data: Buffer, start: int, offset: int, path: str, segment_end: int = -1) -> None:
        """Checks whole batches, read from byte `start` on for a reader of `offset`; skips those that are not in doubt.
        With `segment_end` they are the last before that offset, where the next segment begins.

        DamagedBatchError for the first that is not sound: KAFKA_STORAGE_ERROR, after which clients look for
        another leader.
        """
        end, before, damaged_from, epoch = start + len(data), -1, offset, -1
        position = start
        if not self.is_doubtful(start, end):
            return
        try:
            for header, batch in split_batches(data):
                check_crc(batch)
                # Offset and epoch are not covered by it. Where they do not follow, either of the two batches may be wrong.
                if header.base_offset <= before:
                    raise KafkaError(
                        ErrorCode.CORRUPT_MESSAGE, f"offset {header.base_offset} follows {before}"
                    )
                if header.partition_leader_epoch < epoch:
                    problem = f"epoch {header.partition_leader_epoch} follows {epoch}"
                    raise KafkaError(ErrorCode.CORRUPT_MESSAGE, problem)
                damaged_from = max(before + 1, offset)
                before, epoch = header.last_offset, header.partition_leader_epoch
                if epoch > self.epoch_max and position < self.doubted:
                    problem = f"its epoch is {epoch}, the log's latest {self.epoch_max}"
                    raise KafkaError(ErrorCode.CORRUPT_MESSAGE, problem)
                position += header.size_bytes
        except KafkaError as error:
            message = f"{path}: the batch at offset {damaged_from} is damaged: {error.message}"
            raise DamagedBatchError(ErrorCode.KAFKA_STORAGE_ERROR, message, damaged_from) from None
        self.check_end(before + 1, segment_end, path)
        if start <= self.checked:
            self.checked = end

    def check_end(self, offset: int, segment_end: int, path: str) -> None:
        """Raises DamagedBatchError if the segment, which has nothing from `offset` on, ends before the next one begins."""
        if self.doubted and segment_end > max(offset, self.gaps_below):
            message = f"{path}: offsets {offset} to {segment_end - 1} are missing"
            raise DamagedBatchError(ErrorCode.KAFKA_STORAGE_ERROR, message, offset)
