"""From the files of an archive to rows: Arrow batches with the table's columns, whoever wrote the file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from odradek.archive.place import ArchivePlace
from odradek.archive.values import ArchiveError, DataFile

ROWS_MAX: Final = 32_768
"""Rows of one Arrow batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileReader:
    """Reads files of one table. It may be pickled."""

    place: ArchivePlace
    schema: pa.Schema
    """The columns to read, in their order."""

    def read(self, file: DataFile, system: Any = None) -> Iterator[pa.RecordBatch]:
        """All rows of a file, in its order. ArchiveError when it is gone or damaged."""
        system = system or self.place.file_system()
        values = dict(file.partition_values)
        try:
            with system.open_input_file(self.place.within(file.path)) as stream:
                parquet = pq.ParquetFile(stream)
                names = [each.name for each in self.schema if each.name in parquet.schema_arrow.names]
                for batch in parquet.iter_batches(ROWS_MAX, columns=names):
                    yield self._complete(batch, values)
        except FileNotFoundError:
            raise ArchiveError(
                f"{self.place.within(file.path)} is gone: it was replaced, and expired, since this read began. Read again"
            ) from None
        except (pa.ArrowInvalid, OSError) as error:
            raise ArchiveError(f"{self.place.within(file.path)} cannot be read: {error}") from None

    def _complete(self, batch: pa.RecordBatch, values: dict[str, str | None]) -> pa.RecordBatch:
        arrays = []
        for each in self.schema:
            if each.name in batch.schema.names:
                arrays.append(batch[each.name].cast(each.type))
            elif values.get(each.name) is None:
                arrays.append(pa.nulls(batch.num_rows, each.type))
            else:
                arrays.append(pa.repeat(pa.scalar(values[each.name]).cast(each.type), batch.num_rows))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def share_files(files: Sequence[DataFile], most_bytes: int) -> list[tuple[DataFile, ...]]:
    """Files in shares of about `most_bytes`, in order: one task reads one share. A larger file is a share of its own."""
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
