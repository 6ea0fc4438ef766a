"""Iceberg, through `pyiceberg`: in a catalog of the user's (REST, Glue, SQL, ...), or in a directory that is its own catalog.

A commit adds a snapshot, whose summary names sink, query and batch, and sets properties of the table: how far each partition is
archived (`odradek.archived.<topic>.<partition>`), the ids of topics (`odradek.topic-id.<topic>`), and the last batch of each
query (`odradek.batch.<sink>/<query>`). All are one change of the table's metadata, which requires that the snapshot before it
is the newest one. `pyiceberg` would repeat a commit that lost the race after the one that won it, and a property of the table
(`commit.retry.num-retries=0`) keeps it from that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date, timedelta
from functools import cached_property
from itertools import pairwise
from typing import Any, Final, cast
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.conversions import from_bytes
from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchTableError,
    NotInstalledError,
    RESTError,
    ValidationException,
)
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
    pyarrow_to_schema,
    schema_to_pyarrow,
)
from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.manifest import DataFileContent, FileFormat, ManifestFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, Table, Transaction
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import BooleanType, DateType, IcebergType, IntegerType, LongType, PrimitiveType

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
from odradek.archive.tables.iceberg_directory import DirectoryCatalog
from odradek.archive.tables.leftovers import old_files, remove_files
from odradek.archive.tables.port import Expired, TableFormat
from odradek.archive.tables.table_schema import canonical, numbered
from odradek.model.errors import ConfigError
from odradek.model.ids import TopicPartition
from odradek.spark.reading.offsets import OffsetRange

ARCHIVED: Final = "odradek.archived."
TOPIC_ID: Final = "odradek.topic-id."
BATCH: Final = "odradek.batch."
NO_RETRIES: Final = {"commit.retry.num-retries": "0"}
NO_SNAPSHOT: Final = 0
METRICS: Final = "write.metadata.metrics.column."
_EPOCH: Final = date(1970, 1, 1)
PROPERTIES: Final = {
    **NO_RETRIES,
    "format-version": "2",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "100",
}


@contextmanager
def _reaching_catalog(name: str) -> Iterator[None]:
    """A context that raises ConfigError when a catalog of the user's is not described, or does not serve."""
    try:
        yield
    except (ValueError, OSError, NotInstalledError, RESTError) as error:
        reason = " ".join(str(error).split())
        raise ConfigError(
            f"the catalog {name} cannot be used: {reason:.300}. Describe it in .pyiceberg.yaml, or with the variable"
            f" PYICEBERG_CATALOG__{name.upper()}__URI"
        ) from None


class IcebergArchive:
    """An archive in an Iceberg table; see `ArchiveTable` for its methods.

    `catalog` is `NAME:NAMESPACE.TABLE`, a table in a catalog that pyiceberg is configured for; without it the location is
    its own catalog."""

    format: Final = TableFormat.ICEBERG
    data_directory: Final = "data/"

    def __init__(self, location: ArchiveLocation, catalog: str | None = None) -> None:
        self.location = location
        self._catalog = catalog

    @classmethod
    def create(
        cls,
        location: ArchiveLocation,
        schema: pa.Schema,
        partition_by: Sequence[str],
        catalog: str | None = None,
    ) -> IcebergArchive:
        """Makes the table, unless someone has."""
        columns = pyarrow_to_schema(numbered(schema))
        fields = [
            PartitionField(
                source_id=columns.find_field(name).field_id,
                field_id=1000 + index,
                transform=IdentityTransform(),
                name=name,
            )
            for index, name in enumerate(partition_by)
        ]
        archive = cls(location, catalog)
        archive._make(columns, PartitionSpec(*fields))
        return archive

    def _make(self, columns: Schema, spec: PartitionSpec) -> None:
        if self._catalog is None:
            metadata = new_table_metadata(
                columns, spec, UNSORTED_SORT_ORDER, self.location.url, dict(PROPERTIES)
            )
            DirectoryCatalog(self.location).make(metadata)
            return
        catalog, identifier = self._user_catalog(self._catalog)
        catalog.create_namespace_if_not_exists(identifier[:-1])
        catalog.create_table_if_not_exists(
            identifier, columns, self.location.url, spec, properties=dict(PROPERTIES)
        )

    @staticmethod
    def is_at(location: ArchiveLocation, catalog: str | None) -> bool:
        try:
            IcebergArchive(location, catalog)._open()
        except NoSuchTableError:
            return False
        return True

    @property
    def schema(self) -> pa.Schema:
        return canonical(self._description[0])

    @property
    def file_schema(self) -> pa.Schema:
        return self._description[0]

    @property
    def partition_by(self) -> tuple[str, ...]:
        return self._description[1]

    @cached_property
    def _description(self) -> tuple[pa.Schema, tuple[str, ...]]:
        """The columns, with the numbers that Iceberg knows them by, and those that it is partitioned by."""
        table = self._table()
        if any(not isinstance(field.transform, IdentityTransform) for field in table.spec().fields):
            raise ConfigError(
                f"{self.location} is partitioned by more than columns: an archive is partitioned by its columns"
            )
        names = tuple(str(table.schema().find_column_name(field.source_id)) for field in table.spec().fields)
        return canonical(schema_to_pyarrow(table.schema()), keeping_ids=True), names

    def state(self) -> ArchiveState:
        table = self._table()
        archived: dict[TopicPartition, OffsetRange] = {}
        batches: dict[tuple[str, str], int] = {}
        ids: dict[str, UUID] = {}
        for name, value in table.properties.items():
            if name.startswith(ARCHIVED):
                topic, _, number = name.removeprefix(ARCHIVED).rpartition(".")
                partition = TopicPartition(topic, int(number))
                start, _, end = value.partition(":")
                archived[partition] = OffsetRange(partition=partition, start=int(start), end=int(end))
            elif name.startswith(BATCH):
                sink, _, query = name.removeprefix(BATCH).rpartition("/")
                batches[sink, query] = int(value)
            elif name.startswith(TOPIC_ID):
                ids[name.removeprefix(TOPIC_ID)] = UUID(value)
        return ArchiveState(version=_version(table), archived=archived, batches=batches, topic_ids=ids)

    def append(self, batch: NewBatch, after: ArchiveState) -> None:
        table = self._at(after.version)
        make_durable(self.location, [data_file.path for data_file in batch.files])
        changes = {f"{BATCH}{batch.id.sink}/{batch.id.query}": str(batch.id.batch)}
        for span in after.after(batch).values():
            changes[f"{ARCHIVED}{span.partition.topic}.{span.partition.partition}"] = (
                f"{span.start}:{span.end}"
            )
        for topic, topic_id in after.new_topic_ids(batch).items():
            changes[f"{TOPIC_ID}{topic}"] = str(topic_id)
        summary = {
            "odradek.sink": batch.id.sink,
            "odradek.query": batch.id.query,
            "odradek.batch": str(batch.id.batch),
        }
        with self._committing():
            transaction = table.transaction()
            transaction.set_properties(changes)
            with transaction.update_snapshot(summary).merge_append() as snapshot:
                for file in batch.files:
                    snapshot.append_data_file(self._iceberg_file(table, file))
            self._sync_snapshot(transaction, table)
            transaction.commit_transaction()

    def replace(self, old: Sequence[DataFile], new: Sequence[DataFile]) -> None:
        table = self._table()
        there = {self._relative(table, data_file.file_path): data_file for data_file in _files_of(table)}
        gone = [data_file.path for data_file in old if data_file.path not in there]
        if gone:
            raise MissingFiles(f"{self.location}: {gone[0]} is not part of the table any more")
        make_durable(self.location, [data_file.path for data_file in new])
        with self._committing():
            transaction = table.transaction()
            with transaction.update_snapshot({"odradek.compaction": str(len(old))}).overwrite() as snapshot:
                for file in old:
                    snapshot.delete_data_file(there[file.path])
                for file in new:
                    snapshot.append_data_file(self._iceberg_file(table, file))
            self._sync_snapshot(transaction, table)
            transaction.commit_transaction()

    def files(self) -> list[DataFile]:
        table = self._table()
        return [self._file(table, file) for file in _files_of(table)]

    def expire(self, before_ms: int, *, dry_run: bool) -> Expired:
        table = self._table()
        old = _replaced_before(table, before_ms)
        needed = {self._relative(table, path) for path in _paths_of(table, without=old)}
        files = [
            name
            for name in old_files(self.location, before_ms, ("data/", "metadata/"))
            if name not in needed and name.endswith((".parquet", ".avro"))
        ]
        versions = [] if self._catalog else DirectoryCatalog(self.location).old_versions(before_ms)
        if not dry_run:
            if old:
                with self._committing():
                    table.maintenance.expire_snapshots().by_ids(old).commit()
            remove_files(self.location, files)
            remove_files(self.location, versions)
        return Expired(files=(*files, *versions), version_count=len(old))

    # -- inside

    def _table(self) -> Table:
        """The table, whose metadata name this location: files that another table needs would look like leftovers here."""
        try:
            table = self._open()
        except NoSuchTableError:
            raise ArchiveError(f"{self.location} is no archive: there is no Iceberg table") from None
        except OSError as error:
            raise ArchiveError(f"the Iceberg table {self.location} cannot be read: {error}") from None
        if not self.location.is_named_by(table.location()):
            raise ArchiveError(
                f"the Iceberg table{f' {self._catalog}' if self._catalog else ''} is at {table.location()}, not at"
                f" {self.location}: name it by that path"
            )
        return table

    def _open(self) -> Table:
        if self._catalog is None:
            return DirectoryCatalog(self.location).load_table(self.location.path.rpartition("/")[2])
        catalog, identifier = self._user_catalog(self._catalog)
        with _reaching_catalog(catalog.name):
            return catalog.load_table(identifier)

    def _user_catalog(self, text: str) -> tuple[Catalog, tuple[str, ...]]:
        name, colon, identifier = text.partition(":")
        parts = tuple(identifier.split("."))
        if not colon or len(parts) < 2 or not all(parts):
            raise ConfigError(f"the catalog is NAME:NAMESPACE.TABLE, as in prod:lake.orders, not {text!r}")
        with _reaching_catalog(name):
            return load_catalog(name, **self.location.iceberg_properties()), parts

    def _at(self, version: int) -> Table:
        table = self._table()
        if _version(table) != version:
            raise CommitConflict(f"{self.location}: snapshot {_version(table)} was committed by someone else")
        if table.properties.get("commit.retry.num-retries") != "0":
            raise ArchiveError(
                f"the Iceberg table {self.location} lacks the property commit.retry.num-retries=0, without which a commit may"
                " be repeated after another one: set it"
            )
        return table

    @contextmanager
    def _committing(self) -> Iterator[None]:
        try:
            yield
        except (CommitFailedException, ValidationException) as error:
            raise CommitConflict(f"{self.location}: someone else committed first ({error})") from None
        except OSError as error:
            raise ArchiveError(f"the commit to the Iceberg table {self.location} failed: {error}") from None

    def _sync_snapshot(self, transaction: Transaction, table: Table) -> None:
        """Syncs the files of the snapshot that is about to be committed: they must not be lost after it."""
        snapshot = transaction.table_metadata.current_snapshot()
        if self.location.is_s3 or snapshot is None:
            return
        new = [
            manifest.manifest_path
            for manifest in snapshot.manifests(table.io)
            if manifest.added_snapshot_id == snapshot.snapshot_id
        ]
        make_durable(self.location, [self._relative(table, path) for path in [*new, snapshot.manifest_list]])

    def _iceberg_file(self, table: Table, file: DataFile) -> IcebergFile:
        """Returns the table's entry for a file: its partition as written, and counts and bounds from its footer."""
        location = f"{table.location().rstrip('/')}/{file.path}"
        with table.io.new_input(location).open() as stream:
            footer = pq.read_metadata(stream)
        schema, values = table.schema(), dict(file.partition_values)
        counted = {f"{METRICS}{name}": "counts" for name in _without_bounds(footer)}
        statistics = data_file_statistics_from_parquet_metadata(
            parquet_metadata=footer,
            stats_columns=compute_statistics_plan(schema, {**table.properties, **counted}),
            parquet_column_mapping=parquet_path_to_id_mapping(schema),
        )
        return IcebergFile.from_args(
            content=DataFileContent.DATA,
            file_path=location,
            file_format=FileFormat.PARQUET,
            partition=Record(*(_typed(values[name], kind) for name, kind in _partition_columns(table))),
            file_size_in_bytes=file.size_bytes,
            sort_order_id=None,
            spec_id=table.spec().spec_id,
            equality_ids=None,
            key_metadata=None,
            **statistics.to_serialized_dict(),
        )

    def _relative(self, table: Table, location: str) -> str:
        root = f"{table.location().rstrip('/')}/"
        if not location.startswith(root):
            raise ArchiveError(
                f"the Iceberg table {self.location} names {location}, which is not below {root}: an archive has all of its"
                " files at its location"
            )
        return location.removeprefix(root)

    def _file(self, table: Table, file: IcebergFile) -> DataFile:
        path = self._relative(table, file.file_path)
        return DataFile(
            path=path,
            size_bytes=file.file_size_in_bytes,
            row_count=file.record_count,
            partition_values=tuple(
                (name, _text(file.partition[index], kind))
                for index, (name, kind) in enumerate(_partition_columns(table, file.spec_id))
            ),
            bounds=_bounds(table.schema(), file),
            timestamps_us=_times(table.schema(), file),
        )

    def __getstate__(self) -> dict[str, object]:
        return {"location": self.location, "_catalog": self._catalog}


def _partition_columns(table: Table, spec_id: int | None = None) -> list[tuple[str, IcebergType]]:
    """Returns name and type of the columns by which files of a specification (the table's) are partitioned."""
    schema = table.schema()
    spec = table.spec() if spec_id is None else table.specs()[spec_id]
    sources = [schema.find_field(field.source_id) for field in spec.fields]
    return [(source.name, source.field_type) for source in sources]


def _typed(text: str | None, kind: IcebergType) -> object:
    """Returns a value of a partition, as Iceberg has it: dates are days since 1970."""
    if text is None:
        return None
    if isinstance(kind, BooleanType):
        return text == "true"
    if isinstance(kind, DateType):
        return (date.fromisoformat(text) - _EPOCH).days
    return int(text) if isinstance(kind, IntegerType | LongType) else text


def _text(value: Any, kind: IcebergType) -> str | None:
    """Returns the text of a partition's value, the inverse of `_typed`."""
    if value is None:
        return None
    if isinstance(kind, BooleanType):
        return "true" if value else "false"
    return str(_EPOCH + timedelta(days=value)) if isinstance(kind, DateType) else str(value)


def _without_bounds(footer: pq.FileMetaData) -> list[str]:
    """Returns the columns whose smallest or largest value pyiceberg could not hold: a time beyond the year 9999."""
    names = set()
    for index in range(footer.num_row_groups):
        group = footer.row_group(index)
        columns = map(group.column, range(footer.num_columns))
        names |= {column.path_in_schema for column in columns if not _has_python_bounds(column.statistics)}
    return sorted(names)


def _has_python_bounds(statistics: pq.Statistics | None) -> bool:
    try:
        return statistics is None or (statistics.min, statistics.max) is not None
    except (OverflowError, ValueError):
        return False


def _version(table: Table) -> int:
    snapshot = table.current_snapshot()
    return NO_SNAPSHOT if snapshot is None else snapshot.snapshot_id


def _files_of(table: Table) -> list[IcebergFile]:
    return [task.file for task in table.scan().plan_files() if isinstance(task, FileScanTask)]


def _replaced_before(table: Table, before_ms: int) -> list[int]:
    """Snapshots whose successor is older than `before_ms`: no read that began since then uses them."""
    snapshots = sorted(table.snapshots(), key=lambda snapshot: snapshot.timestamp_ms)
    referenced = {reference.snapshot_id for reference in table.refs().values()}
    pairs = pairwise(snapshots)
    return [
        snapshot.snapshot_id
        for snapshot, following in pairs
        if following.timestamp_ms < before_ms and snapshot.snapshot_id not in referenced
    ]


def _paths_of(table: Table, *, without: Sequence[int]) -> Iterator[str]:
    """Yields all files that the snapshots need, except the snapshots in `without`."""
    manifests: dict[str, ManifestFile] = {}
    for snapshot in table.snapshots():
        if snapshot.snapshot_id not in without:
            yield snapshot.manifest_list
            manifests.update(
                (manifest_file.manifest_path, manifest_file) for manifest_file in snapshot.manifests(table.io)
            )
    yield from manifests
    for manifest in manifests.values():
        for entry in manifest.fetch_manifest_entry(table.io):
            yield entry.data_file.file_path


def _bounds(schema: Schema, file: IcebergFile) -> RowBounds | None:
    low = [_bound(schema, file.lower_bounds, name) for name in ("topic", "partition", "offset")]
    high = [_bound(schema, file.upper_bounds, name) for name in ("topic", "partition", "offset")]
    if None in low or None in high:
        return None
    return RowBounds(topics=(low[0], high[0]), partitions=(low[1], high[1]), offsets=(low[2], high[2]))


def _bound(schema: Schema, bounds: Mapping[int, bytes] | None, name: str) -> Any:
    field = schema.find_field(name)
    bound = (bounds or {}).get(field.field_id)
    return None if bound is None else from_bytes(cast(PrimitiveType, field.field_type), bound)


def _times(schema: Schema, file: IcebergFile) -> tuple[int, int] | None:
    if "timestamp" not in schema.column_names:
        return None
    low, high = (_bound(schema, bounds, "timestamp") for bounds in (file.lower_bounds, file.upper_bounds))
    return (low, high) if isinstance(low, int) and isinstance(high, int) else None
