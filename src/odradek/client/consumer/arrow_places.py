"""The columns `topic` and `partition` of what `poll_arrow` returns. Needs pyarrow.

Every row of a batch has the same values there, and a consumer reads the same partitions again and again. To make the columns
for each batch costs a third of making the others, so those that were made last are kept, and batches get slices of them.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from odradek.model.ids import TopicPartition
from odradek.records.arrow import SCHEMA

ARROW_SCHEMA: Final = pa.schema(
    [
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        *SCHEMA,
    ]
)
_KEPT_PARTITIONS_MAX: Final = 64
_KEPT_BYTES_MAX: Final = 256 * 1024
"""The most bytes of a partition's two columns that are kept: 16 MiB with all partitions."""


class PlaceColumns:
    """The place columns of the partitions that were read last."""

    def __init__(self) -> None:
        self._kept: dict[TopicPartition, tuple[pa.Array, pa.Array]] = {}

    def prepend(self, rows: pa.RecordBatch, tp: TopicPartition) -> pa.RecordBatch:
        """Returns `rows`, which have the schema of `batches_to_arrow`, preceded by columns of topic and
        partition."""
        count = rows.num_rows
        topics, partitions = self._columns(tp, count)
        columns = [topics.slice(0, count), partitions.slice(0, count), *rows.columns]
        return pa.RecordBatch.from_arrays(columns, schema=ARROW_SCHEMA)

    def _columns(self, tp: TopicPartition, count: int) -> tuple[pa.Array, pa.Array]:
        """Returns columns of at least `count` rows."""
        columns = self._kept.get(tp)
        if columns is not None and len(columns[0]) >= count:
            return columns
        columns = (
            pa.repeat(pa.scalar(tp.topic, pa.string()), count + count // 4),
            pa.repeat(pa.scalar(tp.partition, pa.int32()), count + count // 4),
        )
        self._kept.pop(tp, None)
        if columns[0].nbytes + columns[1].nbytes <= _KEPT_BYTES_MAX:
            self._kept[tp] = columns
            if len(self._kept) > _KEPT_PARTITIONS_MAX:
                del self._kept[next(iter(self._kept))]
        return columns
