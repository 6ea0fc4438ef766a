"""Delta Lake, through `deltalake`: what Spark, Databricks, Athena, Redshift, DuckDB, polars and pandas read.

A commit holds the batch's files, and as application transactions the batch's number (`odradek-archive/<sink>/<query>`) and, for
each partition that it has read, the next offset and the first one (`odradek-position/<topic>/<partition>`,
`odradek-beginning/...`), and the ids of topics (`odradek-topic/<topic>/<id>`): these outlive checkpoints and the clean-up of
the log. A commit is tried for exactly one version: `deltalake` would otherwise commit it after others' commits, whose
offsets this one has not seen.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote
from uuid import UUID

import pyarrow as pa
from pyarrow import fs

from odradek.archive.store.location import ArchiveLocation
from odradek.archive.store.object_store import make_durable
from odradek.archive.store.values import (
    ArchiveError,
    ArchiveState,
    CommitConflict,
    DataFile,
    MissingFiles,
    NewBatch,
    RowBounds,
)
from odradek.archive.tables.delta_log import LOG, application_transactions
from odradek.archive.tables.delta_mapping import create_mapped, needs_mapping
from odradek.archive.tables.port import Expired, TableFormat
from odradek.model.ids import TopicPartition
from odradek.model.lazy import lazy
from odradek.runtime.real import SystemClock
from odradek.spark.reading.offsets import OffsetRange

if TYPE_CHECKING:
    import deltalake
    from deltalake import exceptions as delta_exceptions
    from deltalake import transaction as delta_transaction
else:
    deltalake = lazy("deltalake")
    delta_exceptions = lazy("deltalake.exceptions")
    delta_transaction = lazy("deltalake.transaction")

BATCH: Final = "odradek-archive"
POSITION: Final = "odradek-position"
BEGINNING: Final = "odradek-beginning"
TOPIC: Final = "odradek-topic"
CONFIGURATION: Final = {"delta.checkpointInterval": "20"}
"""A look for offsets reads no more commits than this."""
_HOUR_MS: Final = 3_600_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_STATED_US: Final = (-62_135_596_800_000_000, 253_402_300_799_999_000)
"""The first and the last millisecond that statistics can state, in microseconds: years 1 and 9999."""


class DeltaArchive:
    """An archive in a Delta Lake table; see `ArchiveTable` for its methods."""

    def __init__(self, location: ArchiveLocation) -> None:
        self.location = location

    format: Final = TableFormat.DELTA
    data_directory = ""

    @classmethod
    def create(
        cls, location: ArchiveLocation, schema: pa.Schema, partition_by: Sequence[str]
    ) -> DeltaArchive:
        """Makes the table, unless someone has."""
        if needs_mapping(schema):
            if not cls.is_at(location):
                create_mapped(location, schema, partition_by, CONFIGURATION)
            return cls(location)
        try:
            deltalake.DeltaTable.create(
                location.uri,
                schema=schema,
                mode="ignore",
                partition_by=list(partition_by),
                configuration=dict(CONFIGURATION),
                storage_options=location.delta_options(),
            )
        except delta_exceptions.CommitFailedError:  # someone made it in this moment
            if not cls.is_at(location):
                raise
        return cls(location)

    @staticmethod
    def is_at(location: ArchiveLocation) -> bool:
        return bool(
            deltalake.DeltaTable.is_deltatable(location.uri, storage_options=location.delta_options())
        )

    @property
    def schema(self) -> pa.Schema:
        return self._description[0]

    @property
    def partition_by(self) -> tuple[str, ...]:
        return self._description[1]

    @cached_property
    def _description(self) -> tuple[pa.Schema, tuple[str, ...]]:
        table = self._open()
        return pa.schema(table.schema().to_arrow()), tuple(table.metadata().partition_columns)

    @property
    def file_schema(self) -> pa.Schema:
        return pa.schema([field for field in self.schema if field.name not in self.partition_by])

    def state(self) -> ArchiveState:
        version = self._open().version()
        ends: dict[TopicPartition, int] = {}
        starts: dict[TopicPartition, int] = {}
        batches: dict[tuple[str, str], int] = {}
        ids: dict[str, UUID] = {}
        for name, number in application_transactions(self.location, version).items():
            kind, _, rest = name.partition("/")
            first, _, second = rest.rpartition("/")
            if kind == POSITION:
                ends[TopicPartition(first, int(second))] = number
            elif kind == BEGINNING:
                starts[TopicPartition(first, int(second))] = number
            elif kind == BATCH:
                batches[first, second] = number
            elif kind == TOPIC:
                ids[first] = UUID(second)
        archived = {
            partition: OffsetRange(partition=partition, start=starts.get(partition, 0), end=end)
            for partition, end in ends.items()
        }
        return ArchiveState(version=version, archived=archived, batches=batches, topic_ids=ids)

    def append(self, batch: NewBatch, after: ArchiveState) -> None:
        make_durable(self.location, [file.path for file in batch.files])
        numbers = {f"{BATCH}/{batch.id.sink}/{batch.id.query}": batch.id.batch}
        for span in after.after(batch).values():
            name = f"{span.partition.topic}/{span.partition.partition}"
            numbers[f"{POSITION}/{name}"] = span.end
            if span.partition not in after.archived:
                numbers[f"{BEGINNING}/{name}"] = span.start
        numbers |= {
            f"{TOPIC}/{topic}/{topic_id}": 1 for topic, topic_id in after.new_topic_ids(batch).items()
        }
        now_ms = SystemClock().wall_ms()
        self._commit(
            after.version,
            [_add(file, now_ms, is_new=True) for file in batch.files],
            [deltalake.Transaction(name, number, now_ms) for name, number in numbers.items()],
            {
                "odradekSink": batch.id.sink,
                "odradekQuery": batch.id.query,
                "odradekBatch": batch.id.batch,
                "odradekRanges": {
                    str(archived_range.partition): [archived_range.start, archived_range.end]
                    for archived_range in batch.ranges
                },
            },
        )

    def replace(self, old: Sequence[DataFile], new: Sequence[DataFile]) -> None:
        table = self._open()
        there = {file.path for file in _files_of(table)}
        gone = [file.path for file in old if file.path not in there]
        if gone:
            raise MissingFiles(f"{self.location}: {gone[0]} is not part of the table any more")
        make_durable(self.location, [file.path for file in new])
        now_ms = SystemClock().wall_ms()
        actions = [_remove(file, now_ms) for file in old] + [_add(file, now_ms, is_new=False) for file in new]
        self._commit(table.version(), actions, [], {"odradekCompaction": len(old)})

    def files(self) -> list[DataFile]:
        return _files_of(self._open())

    def expire(self, before_ms: int, *, dry_run: bool) -> Expired:
        table = self._open()
        hours = -(-max(0, SystemClock().wall_ms() - before_ms) // _HOUR_MS)
        commits = len(self._commits())
        try:
            files = table.vacuum(hours, dry_run=dry_run, enforce_retention_duration=False, full=True)
            if not dry_run:
                table.create_checkpoint()
                table.cleanup_metadata()
        except (delta_exceptions.DeltaError, OSError) as error:
            raise ArchiveError(f"the Delta table {self.location} cannot be expired: {error}") from None
        removed = 0 if dry_run else max(0, commits - len(self._commits()))
        return Expired(files=tuple(sorted(map(unquote, files))), version_count=removed)

    def _commits(self) -> list[str]:
        system = self.location.file_system()
        names = [info.base_name for info in system.get_file_info(fs.FileSelector(self.location.within(LOG)))]
        return [name for name in names if name.endswith(".json")]

    def __getstate__(self) -> dict[str, object]:
        return {"location": self.location}

    def _open(self, version: int | None = None) -> deltalake.DeltaTable:
        try:
            return deltalake.DeltaTable(
                self.location.uri, version=version, storage_options=self.location.delta_options()
            )
        except delta_exceptions.TableNotFoundError:
            raise ArchiveError(f"{self.location} is no archive: there is no Delta table") from None
        except (delta_exceptions.DeltaError, OSError) as error:
            raise ArchiveError(f"the Delta table {self.location} cannot be read: {error}") from None

    def _commit(
        self,
        after: int,
        actions: list[delta_transaction.AddAction | delta_transaction.RemoveAction],
        transactions: list[deltalake.Transaction],
        metadata: Mapping[str, object],
    ) -> None:
        table = self._open(after)
        try:
            table.create_write_transaction(
                actions,
                "append",
                table.schema(),
                list(table.metadata().partition_columns),
                commit_properties=deltalake.CommitProperties(
                    custom_metadata=dict(metadata), max_commit_retries=0, app_transactions=transactions
                ),
            )
        except delta_exceptions.CommitFailedError as error:
            raise CommitConflict(
                f"{self.location}: version {after + 1} was committed by someone else ({error})"
            ) from None
        except (delta_exceptions.DeltaError, OSError) as error:
            raise ArchiveError(f"the commit to the Delta table {self.location} failed: {error}") from None
        make_durable(self.location, [f"{LOG}/{after + 1:020}.json"])


def _add(file: DataFile, now_ms: int, *, is_new: bool) -> delta_transaction.AddAction:
    return delta_transaction.AddAction(
        path=file.path,  # deltalake encodes it
        size=file.size_bytes,
        partition_values=dict(file.partition_values),
        modification_time=now_ms,
        data_change=is_new,
        stats=json.dumps(_statistics(file)),
    )


def _remove(file: DataFile, now_ms: int) -> delta_transaction.RemoveAction:
    return delta_transaction.RemoveAction(
        file.path, False, now_ms, file.size_bytes, dict(file.partition_values)
    )


def _statistics(file: DataFile) -> dict[str, object]:
    """Returns what readers pass files over by. Columns by which the table is partitioned have none."""
    low: dict[str, object] = {}
    high: dict[str, object] = {}
    bounds = file.row_bounds()
    if bounds is not None:
        low = {"topic": bounds.topics[0], "partition": bounds.partitions[0], "offset": bounds.offsets[0]}
        high = {"topic": bounds.topics[1], "partition": bounds.partitions[1], "offset": bounds.offsets[1]}
    if file.timestamps_us is not None:
        low["timestamp"] = _instant(file.timestamps_us[0])
        high["timestamp"] = _instant(
            file.timestamps_us[1] + 999
        )  # stated in milliseconds, so never too early
    split = {name for name, _ in file.partition_values}
    low = {name: value for name, value in low.items() if name not in split}
    high = {name: value for name, value in high.items() if name not in split}
    return {
        "numRecords": file.row_count,
        "minValues": low,
        "maxValues": high,
        "nullCount": {name: 0 for name in low if name != "timestamp"},
    }


def _instant(us: int) -> str:
    """Returns the nearest time that has a year of four digits: a bound that is right for all filters in these years.

    A file without the bound would be passed over: `deltalake` compares with null, where others have one.
    """
    instant = _EPOCH + timedelta(microseconds=min(max(us, _STATED_US[0]), _STATED_US[1]))
    return instant.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _files_of(table: deltalake.DeltaTable) -> list[DataFile]:
    actions = pa.table(table.get_add_actions())
    for name in ("min", "max"):
        index = actions.schema.get_field_index(name)
        if index >= 0 and pa.types.is_struct(actions.schema.field(index).type):
            actions = actions.set_column(index, name, _with_plain_times(actions.column(index)))
    columns = table.metadata().partition_columns
    return [_file(row, columns) for row in actions.to_pylist()]


def _with_plain_times(statistics: pa.ChunkedArray) -> pa.ChunkedArray:
    """Microseconds and days as numbers: Python's dates cannot hold all that others may have written."""
    plain = []
    for field in statistics.type:
        kind = pa.int64() if pa.types.is_timestamp(field.type) else field.type
        plain.append(pa.field(field.name, pa.int32() if pa.types.is_date32(kind) else kind))
    return statistics.cast(pa.struct(plain))


def _file(row: Mapping[str, Any], columns: Sequence[str]) -> DataFile:
    values = row.get("partition") or {}
    path = unquote(row["path"])
    return DataFile(
        path=path,
        size_bytes=row["size_bytes"],
        row_count=row["num_records"] or 0,
        partition_values=tuple((column, _text(values.get(column))) for column in columns),
        bounds=_bounds(row.get("min") or {}, row.get("max") or {}, values),
        timestamps_us=_times(row.get("min") or {}, row.get("max") or {}),
    )


def _text(value: object) -> str | None:
    if value is None:
        return None
    return str(value).lower() if isinstance(value, bool) else str(value)


def _bounds(low: Mapping[str, Any], high: Mapping[str, Any], values: Mapping[str, Any]) -> RowBounds | None:
    """Returns the bounds of a file's rows; None where its writer keeps no statistics of these columns."""
    smallest, largest = {**low, **values}, {**high, **values}
    names = ("topic", "partition", "offset")
    if any(smallest.get(name) is None or largest.get(name) is None for name in names):
        return None
    return RowBounds(
        topics=(smallest["topic"], largest["topic"]),
        partitions=(int(smallest["partition"]), int(largest["partition"])),
        offsets=(int(smallest["offset"]), int(largest["offset"])),
    )


def _times(low: Mapping[str, object], high: Mapping[str, object]) -> tuple[int, int] | None:
    """Returns the range of timestamps; None where there may be later ones than can be stated."""
    first, last = low.get("timestamp"), high.get("timestamp")
    if isinstance(last, int) and last >= _STATED_US[1]:
        return None
    return (first, last) if isinstance(first, int) and isinstance(last, int) else None
