"""`format("odradek-archive")`: an archive as a table to read, and as a sink of a stream. What Spark calls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, NoReturn

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from odradek.archive.options import archive_read_options, archive_write_options
from odradek.model.errors import ConfigError
from odradek.model.lazy import lazy
from odradek.spark.engine.prompt_input import PromptInput
from odradek.spark.engine.worker_garbage import loaded_modules

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.pandas import types as spark_types

    from odradek.archive import opening, sink
    from odradek.archive.files import reading
    from odradek.archive.store.values import DataFile
    from odradek.archive.tables.port import ArchiveTable
else:
    opening = lazy("odradek.archive.opening")
    pa = lazy("pyarrow")
    reading = lazy("odradek.archive.files.reading")
    sink = lazy("odradek.archive.sink")
    spark_types = lazy("pyspark.sql.pandas.types")

SHARE_BYTES: Final = 64 << 20
"""The size of the files that one task reads."""


class ArchiveDataSource(DataSource):
    """An archive: `spark.read...load(PATH)` and `stream.writeStream...start(PATH)`."""

    @classmethod
    def name(cls) -> str:
        return "odradek-archive"

    def schema(self) -> StructType:
        options = archive_read_options(self.options)
        table = opening.open_archive(options.location, options.catalog)
        return spark_types.from_arrow_schema(_chosen(table, options.columns))

    def reader(self, schema: StructType) -> ArchiveReader:
        options = archive_read_options(self.options)
        table = opening.open_archive(options.location, options.catalog)
        columns = _chosen(table, options.columns)
        if schema.fieldNames() != columns.names:
            raise ConfigError(
                'format("odradek-archive") has the columns of the archive: leave out .schema(...), and choose with columns'
            )
        return ArchiveReader(table, columns)

    def streamWriter(self, schema: StructType, overwrite: bool) -> sink.ArchiveSink:  # noqa: N802 - Spark's name
        loaded_modules.leave_out()
        if overwrite:
            raise ConfigError('an archive is appended to: use outputMode("append")')
        return sink.ArchiveSink(archive_write_options(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> NoReturn:
        raise ConfigError(
            "an archive is written by a stream, whose checkpoint holds what each batch has read: use writeStream with"
            " trigger(availableNow=True), or `odradek archive run --once`"
        )

    def streamReader(self, schema: StructType) -> NoReturn:  # noqa: N802 - Spark's name
        raise ConfigError(
            'an archive is read as a batch; a stream that begins in an archive reads format("odradek") with the option archive'
        )


def _chosen(table: ArchiveTable, columns: Sequence[str] | None) -> pa.Schema:
    if columns is None:
        return table.schema
    unknown = [name for name in columns if name not in table.schema.names]
    if unknown:
        raise ConfigError(
            f"option columns: the archive has no column {unknown[0]!r}; there are {', '.join(table.schema.names)}"
        )
    return pa.schema([table.schema.field(name) for name in columns])


class FilesPartition(InputPartition):
    """One task's share of the files."""

    def __init__(self, files: tuple[DataFile, ...]) -> None:
        super().__init__(files)
        self.files = files


class ArchiveReader(PromptInput, DataSourceReader):
    """A batch read: which files, is settled when the query is planned."""

    def __init__(self, table: ArchiveTable, schema: pa.Schema) -> None:
        self._table = table
        self._files = reading.FileReader(location=table.location, schema=schema)

    def partitions(self) -> Sequence[InputPartition]:
        shares = reading.share_files(self._table.files(), SHARE_BYTES)
        return [FilesPartition(share) for share in shares] or [FilesPartition(())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        loaded_modules.leave_out()
        for file in partition.value:
            yield from self._files.read(file)
