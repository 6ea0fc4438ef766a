"""Reads an archive's files as Arrow batches with the table's columns, no matter which program wrote them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.fs import FileSystem

from odradek.archive.store.location import ArchiveLocation
from odradek.archive.store.values import ArchiveError, DataFile

ROWS_MAX: Final = 32_768
"""Rows of one Arrow batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileReader:
    """Reads files of one table. It may be pickled."""

    location: ArchiveLocation
    schema: pa.Schema
    """The columns to read, in their order."""

    def read(
        self, file: DataFile, system: FileSystem | None = None, *, offsets: tuple[int, int] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yields all rows of a file, in its order; with `offsets` (first, and the one after the last) without parts that have
        none of these.

        ArchiveError when the file is missing or damaged.
        """
        system = system or self.location.file_system()
        values = dict(file.partition_values)
        try:
            with system.open_input_file(self.location.within(file.path)) as stream:
                parquet = pq.ParquetFile(stream)
                names = [field.name for field in self.schema if field.name in parquet.schema_arrow.names]
                groups = _groups_with(parquet, offsets)
                for batch in parquet.iter_batches(ROWS_MAX, row_groups=groups, columns=names):
                    yield self._complete(batch, values)
        except FileNotFoundError:
            raise ArchiveError(
                f"{self.location.within(file.path)} no longer exists: it was replaced, and expired, since this read began."
                " Read again"
            ) from None
        except (pa.ArrowInvalid, OSError) as error:
            raise ArchiveError(f"{self.location.within(file.path)} cannot be read: {error}") from None

    def _complete(self, batch: pa.RecordBatch, values: dict[str, str | None]) -> pa.RecordBatch:
        arrays = []
        for field in self.schema:
            if field.name in batch.schema.names:
                arrays.append(batch[field.name].cast(field.type))
            elif values.get(field.name) is None:
                arrays.append(pa.nulls(batch.num_rows, field.type))
            else:
                arrays.append(pa.repeat(pa.scalar(values[field.name]).cast(field.type), batch.num_rows))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def _groups_with(parquet: pq.ParquetFile, offsets: tuple[int, int] | None) -> list[int]:
    """Returns the row groups that may hold one of the offsets, by their statistics."""
    everything = list(range(parquet.num_row_groups))
    if offsets is None or "offset" not in parquet.schema_arrow.names:
        return everything
    return [index for index in everything if _may_hold(parquet.metadata.row_group(index), offsets)]


def _may_hold(group: pq.RowGroupMetaData, offsets: tuple[int, int]) -> bool:
    paths = [group.column(index).path_in_schema for index in range(group.num_columns)]
    statistics = group.column(paths.index("offset")).statistics
    if statistics is None or not statistics.has_min_max:
        return True
    return bool(statistics.min < offsets[1] and statistics.max >= offsets[0])


def share_files(files: Sequence[DataFile], most_bytes: int) -> list[tuple[DataFile, ...]]:
    """Returns files in shares of about `most_bytes`, in order: one task reads one share. A larger file is a share of its
    own."""
    shares: list[tuple[DataFile, ...]] = []
    share: list[DataFile] = []
    total = 0
    for file in files:
        if share and total + file.size_bytes > most_bytes:
            shares.append(tuple(share))
            share, total = [], 0
        share.append(file)
        total += file.size_bytes
    return [*shares, tuple(share)] if share else shares
