"""Writing rows into Parquet files of a useful size: a task's half of a batch. Nothing written here is visible by itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import pairwise
from typing import Final
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow.fs import FileSystem

from odradek.archive.files.unfit_values import with_fitting_values, with_partition_values
from odradek.archive.store.values import ArchiveError, DataFile, PartitionValues
from odradek.archive.tables.port import ArchiveTable, TableFormat
from odradek.model.ids import TopicPartition
from odradek.spark.reading.offsets import OffsetRange

ROW_GROUP_BYTES: Final = 64 << 20
"""The size of a row group in Arrow memory, roughly: a writer holds this much before it writes one."""
OPEN_FILES_MAX: Final = 32
"""The most partitions that one task writes at a time; beyond that, it closes the largest file and continues in another."""
NULL_IN_A_PATH: Final = "__HIVE_DEFAULT_PARTITION__"
DIRECTORY_BYTES_MAX: Final = 255
"""The limit of a directory's name in file systems."""
PATH_BYTES_MAX: Final = 512
"""The limit of all directories of a file together: the name of an object in S3 has at most 1024."""
_DIGEST_CHARACTERS: Final = 16
_ROW: Final = "\0row"
"""No column has this name."""
_US: Final = pa.timestamp("us", tz="UTC")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLayout:
    """How the rows of a table are stored in its files."""

    schema: pa.Schema
    """The schema of the table, with all columns."""
    partition_by: tuple[str, ...]
    file_schema: pa.Schema
    """The schema of the files. Where only paths hold the partition columns, it has the others."""
    directory: str
    """The directory of data files below the archive's root: empty, or ends with `/`."""
    file_bytes: int
    empty_is_null: bool = False
    """The format knows no empty text as the value of a partition."""


def layout_of(table: ArchiveTable, file_bytes: int) -> FileLayout:
    """Returns the layout of a table's files."""
    return FileLayout(
        schema=table.schema,
        partition_by=table.partition_by,
        file_schema=table.file_schema,
        directory=table.data_directory,
        file_bytes=file_bytes,
        empty_is_null=table.format is TableFormat.DELTA,
    )


@dataclass(slots=True, kw_only=True)
class _FileStatistics:
    """The statistics of the rows of a file so far."""

    row_count: int = 0
    ranges: dict[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    timestamps_us: tuple[int, int] | None = None

    def add(self, rows: pa.RecordBatch) -> None:
        self.row_count += rows.num_rows
        coordinates = pa.table({name: rows[name] for name in ("topic", "partition", "offset")})
        grouped = coordinates.group_by(["topic", "partition"]).aggregate(
            [("offset", "min"), ("offset", "max")]
        )
        for row in grouped.to_pylist():
            self._add_range(
                TopicPartition(row["topic"], row["partition"]), row["offset_min"], row["offset_max"] + 1
            )
        if "timestamp" in rows.schema.names and pa.types.is_timestamp(rows.schema.field("timestamp").type):
            span = pc.min_max(rows["timestamp"].cast(_US).cast(pa.int64())).as_py()
            if span["min"] is not None:
                low, high = self.timestamps_us or (span["min"], span["max"])
                self.timestamps_us = min(low, span["min"]), max(high, span["max"])

    def _add_range(self, partition: TopicPartition, start: int, end: int) -> None:
        before = self.ranges.get(partition, (start, end))
        self.ranges[partition] = min(before[0], start), max(before[1], end)


class OpenDataFile:
    """A file that is being written."""

    def __init__(
        self, system: FileSystem, root: str, relative: str, values: PartitionValues, layout: FileLayout
    ) -> None:
        self._relative = relative
        self._values = values
        self._layout = layout
        self._seen = _FileStatistics()
        self._pending: list[pa.RecordBatch] = []
        self.pending_bytes = 0
        path = f"{root}/{relative}"
        system.create_dir(path.rpartition("/")[0], recursive=True)
        self._stream = system.open_output_stream(path)
        self._writer = pq.ParquetWriter(self._stream, layout.file_schema, compression="zstd")

    def write(self, rows: pa.RecordBatch) -> None:
        self._seen.add(rows)
        self._pending.append(rows.select(self._layout.file_schema.names))
        self.pending_bytes += rows.nbytes
        if self.pending_bytes >= min(ROW_GROUP_BYTES, self._layout.file_bytes):
            self._flush()

    @property
    def is_full(self) -> bool:
        return not self._pending and self._stream.tell() >= self._layout.file_bytes

    def _flush(self) -> None:
        if self._pending:
            self._writer.write_table(pa.Table.from_batches(self._pending, schema=self._layout.file_schema))
        self._pending, self.pending_bytes = [], 0

    def close(self) -> DataFile:
        """Writes the rest. The file is complete; in S3 it appears only now."""
        self._flush()
        self._writer.close()
        size_bytes = self._stream.tell()
        self._stream.close()
        ranges = [
            OffsetRange(partition=partition, start=start, end=end)
            for partition, (start, end) in sorted(self._seen.ranges.items())
        ]
        return DataFile(
            path=self._relative,
            size_bytes=size_bytes,
            row_count=self._seen.row_count,
            partition_values=self._values,
            ranges=tuple(ranges),
            timestamps_us=self._seen.timestamps_us,
        )


class FileWriter:
    """Writes the rows of one task. `name` is part of every file's name, and no other task or attempt has the same."""

    def __init__(self, system: FileSystem, root: str, name: str, layout: FileLayout) -> None:
        self._system = system
        self._root = root
        self._name = name
        self._layout = layout
        self._open: dict[PartitionValues, OpenDataFile] = {}
        self._done: list[DataFile] = []
        self._count = 0

    def write(self, rows: pa.RecordBatch) -> None:
        """Adds rows that have the table's columns."""
        if rows.num_rows == 0:
            return
        _refuse_null_coordinates(rows)
        rows = with_fitting_values(rows.select(self._layout.schema.names).cast(self._layout.schema))
        rows = with_partition_values(
            rows, self._layout.partition_by, empty_is_null=self._layout.empty_is_null
        )
        for values, share in split_by(rows, self._layout.partition_by):
            file = self._open.get(values) or self._start(values)
            file.write(share)
            if file.is_full:
                self._done.append(self._open.pop(values).close())

    def _start(self, values: PartitionValues) -> OpenDataFile:
        if len(self._open) >= OPEN_FILES_MAX:
            largest = max(self._open, key=lambda key: self._open[key].pending_bytes)
            self._done.append(self._open.pop(largest).close())
        relative = f"{self._layout.directory}{partition_path(values)}{self._name}-{self._count}.parquet"
        self._count += 1
        file = self._open[values] = OpenDataFile(self._system, self._root, relative, values, self._layout)
        return file

    def close(self) -> list[DataFile]:
        """Completes all files."""
        self._done += [file.close() for file in self._open.values()]
        self._open = {}
        return self._done


def write_files(
    system: FileSystem, root: str, name: str, layout: FileLayout, batches: Iterable[pa.RecordBatch]
) -> list[DataFile]:
    """Writes all rows of a task."""
    writer = FileWriter(system, root, name, layout)
    for batch in batches:
        writer.write(batch)
    return writer.close()


def _refuse_null_coordinates(rows: pa.RecordBatch) -> None:
    for column in ("topic", "partition", "offset"):
        if rows[column].null_count:
            raise ArchiveError(
                f"a row has no {column}: an archive needs topic, partition and offset of every record, as the source gives them"
            )


def split_by(
    rows: pa.RecordBatch, columns: Sequence[str]
) -> Iterator[tuple[PartitionValues, pa.RecordBatch]]:
    """Yields the rows of each combination of values, in the order of their first row; rows of one combination keep their order.

    All rows are copied once, however many combinations there are; none where there is one combination.
    """
    if not columns:
        yield (), rows
        return
    numbers = pa.array(range(rows.num_rows), pa.int64())
    table = pa.table([*(_as_text(rows[column]) for column in columns), numbers], [*columns, _ROW])
    grouped = table.group_by(list(columns), use_threads=False).aggregate([(_ROW, "list")])
    combinations = [tuple(values.items()) for values in grouped.select(list(columns)).to_pylist()]
    if len(combinations) == 1:
        yield combinations[0], rows
        return
    lists = grouped[f"{_ROW}_list"].combine_chunks()
    together = rows.take(lists.flatten())
    firsts = pc.list_element(lists, 0).to_pylist()
    borders = list(pairwise(lists.offsets.to_pylist()))
    for index in sorted(range(len(firsts)), key=firsts.__getitem__):
        start, end = borders[index]
        yield combinations[index], together.slice(start, end - start)


def _as_text(values: pa.Array) -> pa.Array:
    return values.cast(pa.string())


def partition_path(values: PartitionValues) -> str:
    """Returns a path in Hive's layout: `day=2026-01-31/`, empty for a table without partitions.

    A value that is too long for a name is cut, and ends in `-` and a digest. The table itself holds the value.
    """
    names = [
        f"{column}={NULL_IN_A_PATH if value is None else quote(value, safe='')}" for column, value in values
    ]
    room = DIRECTORY_BYTES_MAX
    if sum(len(name.encode()) for name in names) > PATH_BYTES_MAX:
        room = min(room, PATH_BYTES_MAX // len(names))
    return "".join(f"{_fitting_name(name, room)}/" for name in names)


def _fitting_name(name: str, room_bytes: int) -> str:
    if len(name.encode()) <= room_bytes:
        return name
    digest = sha256(name.encode()).hexdigest()[:_DIGEST_CHARACTERS]
    column, _, text = name.partition("=")
    prefix = text[: max(0, room_bytes - len(f"{column}=-{digest}".encode()))]
    if "%" in prefix[-2:]:  # no half of an encoded byte
        prefix = prefix[: prefix.rindex("%")]
    return f"{column}={prefix}-{digest}"
