"""One partition's part of one fetch answer, and its reader, piece by piece. No I/O.

Nothing is decoded when it arrives, only the batches' headers are looked at: decoding happens when `poll` asks, on the
caller's thread, one batch at a time.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final
from uuid import UUID

from odradek.model.errors import KafkaError
from odradek.model.ids import NO_EPOCH, ZERO_UUID, TopicPartition
from odradek.model.lazy import lazy
from odradek.records import BatchHeader, Record, check_crc, data_batches, decode_batch, engine, split_batches
from odradek.records.columns import ColumnReader, Columns
from odradek.records.content import read_batches
from odradek.runtime.ports import Buffer

if TYPE_CHECKING:
    import pyarrow as pa

    from odradek.records import arrow
else:
    arrow = lazy("odradek.records.arrow")


class FetchedChunk:
    """Whole batches that follow one another, from a fetch at `start_offset`."""

    __slots__ = (
        "_batches",
        "_check_crcs",
        "_index",
        "_records",
        "_records_index",
        "last_epoch",
        "next_offset",
        "position",
        "size_bytes",
        "start_offset",
        "taken_epoch",
        "topic_id",
        "topic_partition",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        records: Buffer,
        *,
        start_offset: int,
        aborted: Iterable[tuple[int, int]],
        check_crcs: bool,
        topic_id: UUID = ZERO_UUID,
    ) -> None:
        """Raises CORRUPT_MESSAGE when the headers make no sense."""
        batches = split_batches(records, allow_partial=True)
        self.topic_partition: Final = topic_partition
        self.topic_id: Final = topic_id
        """The topic that the records are of; ZERO_UUID where brokers have no topic ids."""
        self.start_offset: Final = start_offset
        self.next_offset: Final = max(start_offset, batches[-1][0].next_offset) if batches else start_offset
        """The offset at which the next fetch begins."""
        self.last_epoch: Final = batches[-1][0].partition_leader_epoch if batches else NO_EPOCH
        """The leader epoch of the last batch, which may be a marker: the batch before `next_offset`."""
        self.size_bytes: Final = len(records)
        self.position = start_offset
        """Offset of the next record to hand out, or one below it."""
        self.taken_epoch: int = NO_EPOCH
        """The leader epoch of the last batch that `next_columns` handed out."""
        self._batches = [
            batch for batch in data_batches(batches, aborted=aborted) if batch[0].next_offset > start_offset
        ]
        self._index = 0
        self._records: list[Record] = []
        self._records_index = 0
        self._check_crcs = check_crcs

    @property
    def empty(self) -> bool:
        """Whether nothing is left to hand out."""
        return self._index >= len(self._batches) and not self._records

    def next_records(self, record_count_max: int) -> list[Record]:
        """Returns the next records, from one batch; [] only when nothing is left.

        Raises CORRUPT_MESSAGE or INVALID_RECORD for a batch that cannot be read, again and again: it stays in its place.
        """
        while not self._records:
            if self._index >= len(self._batches):
                self.position = self.next_offset
                return []
            self._records = self._decode(*self._batches[self._index])
            self._records_index = 0
            self._index += 1
        rest = len(self._records) - self._records_index
        if rest <= record_count_max and self._records_index == 0:
            taken, self._records = self._records, []
        else:
            taken = self._records[self._records_index : self._records_index + record_count_max]
            self._records_index += len(taken)
            if self._records_index >= len(self._records):
                self._records = []
        self._advance(taken[-1].offset + 1)
        return taken

    def put_back(self, records: list[Record]) -> None:
        """Undo the end of the last `next_records`: these records come again."""
        rest = self._records[self._records_index :] if self._records else []
        self._records, self._records_index = records + rest, 0
        self.position = records[0].offset

    def next_arrow(self, record_count_max: int) -> pa.RecordBatch | None:
        """Returns the next whole batches, at least one, as a pyarrow.RecordBatch of about `record_count_max` rows."""
        stop = self._stop_for(record_count_max)
        if stop == self._index:
            self.position = self.next_offset
            return None
        batches = self._batches[self._index : stop]
        try:
            rows = arrow.data_batches_to_arrow(
                batches, from_offset=self.position, verify_crc=self._check_crcs
            )
        except KafkaError as error:
            raise self._unreadable(self._faulty(batches), error) from error
        self._index = stop
        self._advance(self._batches[stop - 1][0].next_offset)
        return rows

    def next_columns(self, record_count_max: int) -> Columns | None:
        """Returns the same records as `next_arrow`, as the buffers that Arrow consists of: pyarrow is not needed."""
        stop = self._stop_for(record_count_max)
        if stop == self._index:
            self.position = self.next_offset
            return None
        batches = self._batches[self._index : stop]
        reader = engine.columns().ColumnReader(sum(len(batch) for _, batch in batches))
        try:
            self._read(reader, batches)
        except KafkaError as error:
            raise self._unreadable(self._faulty(batches), error) from error
        last = self._batches[stop - 1][0]
        self.taken_epoch = last.partition_leader_epoch
        self._index = stop
        self._advance(last.next_offset)
        return reader.finish()

    def _stop_for(self, record_count_max: int) -> int:
        """Returns the end index of the batches to decode together."""
        if self._records:  # a batch of which `next_records` handed out a part: the rest of it is read again
            self._records = []
            self._index -= 1
        stop = self._index
        record_count = 0
        while stop < len(self._batches):
            record_count += self._batches[stop][0].record_count
            if record_count > record_count_max and stop > self._index:
                break
            stop += 1
        return stop

    def _decode(self, header: BatchHeader, content: memoryview) -> list[Record]:
        try:
            if self._check_crcs:
                check_crc(content)
            return decode_batch(content, header, from_offset=self.position)
        except KafkaError as error:
            raise self._unreadable(header, error) from error

    def _read(self, reader: ColumnReader, batches: list[tuple[BatchHeader, memoryview]]) -> None:
        read_batches(reader, batches, from_offset=self.position, verify_crc=self._check_crcs)

    def _faulty(self, batches: list[tuple[BatchHeader, memoryview]]) -> BatchHeader:
        """Returns the one that cannot be read, once reading all has failed: each alone."""
        for batch in batches:
            try:
                self._read(engine.columns().ColumnReader(), [batch])
            except KafkaError:
                return batch[0]
        return batches[0][0]

    def _unreadable(self, header: BatchHeader, error: KafkaError) -> KafkaError:
        """Returns the same error with the place and the remedy in its message."""
        return KafkaError(
            error.code,
            f"{self.topic_partition}: the batch at offset {header.base_offset} cannot be read ({error.message});"
            f" seek to {header.next_offset} to continue after it",
        )

    def _advance(self, offset: int) -> None:
        nothing_left = self._index >= len(self._batches) and not self._records
        self.position = self.next_offset if nothing_left else offset
