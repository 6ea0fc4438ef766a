"""The query that fills an archive, in the engine's process: `odradek archive run`, with the columns of a stream in its rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from odradek.model.lazy import lazy
from odradek.sql.applying import apply
from odradek.sql.language.parsing import parse_one
from odradek.sql.metastore.catalog import WINDOW_BOUNDS, SqlArchive, SqlSource, row_type
from odradek.sql.planning.building import source_formats
from odradek.sql.queries.builds import PlannedText
from odradek.streams.plan.schemas import declared
from odradek.values.formats import RecordFormat
from odradek.values.types import BIGINT, SqlType, struct_of_fields

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql import functions as sf
    from pyspark.sql.streaming.query import StreamingQuery

    from odradek.archive import run as archive_run
    from odradek.archive.run import RunTerms
    from odradek.streams.translation import formats as translated
else:
    archive_run = lazy("odradek.archive.run")
    sf = lazy("pyspark.sql.functions")
    translated = lazy("odradek.streams.translation.formats")


class ArchiveRun:
    """A query that runs."""

    def __init__(self, query: StreamingQuery) -> None:
        self.queries = {"archive": query}

    def stop(self) -> None:
        for query in self.queries.values():
            query.stop()


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveBuild:
    """The build of an archive's query, which the engine runs.

    `text`: the statement that makes the archive. `client`: how to log in, by Kafka's names. `sink_id`:
    names the query in the commits of the table.
    """

    text: PlannedText
    servers: str
    client: Mapping[str, str] = field(repr=False)
    sink_id: str

    def __call__(self, spark: SparkSession, checkpoint: str) -> ArchiveRun:
        """Starts the query. ArchiveError, ConfigError or KafkaError where the archive cannot go on."""
        archive = self.archive()
        decode = RowDecoding(archive.source) if archive.with_columns else None
        return ArchiveRun(archive_run.start_archiving(spark, self.terms(archive), checkpoint, decode))

    def archive(self) -> SqlArchive:
        statement = parse_one(self.text.statement)
        catalog = apply(self.text.catalog(), statement, 0).catalog
        return next(archive for archive in catalog.archives.values() if archive.text == statement.text)

    def terms(self, archive: SqlArchive) -> RunTerms:
        return archive_run.RunTerms(
            bootstrap=self.servers,
            location=archive.location,
            topics=(archive.source.topic,),
            table_format=archive.table_format,
            catalog=archive.catalog,
            columns=archive.columns,
            sink_id=self.sink_id,
            every_ms=archive.every_ms,
            file_bytes=archive.file_bytes,
            skipping_lost=archive.skips_lost,
            client=self.client,
        )


@dataclass(frozen=True, slots=True)
class RowDecoding:
    """Decodes keys and values into structs with the columns of a source. Bytes that cannot be read are not lost: they are in
    `undecoded` and `undecoded_key`."""

    source: SqlSource

    def __call__(self, records: DataFrame) -> DataFrame:
        key_form, value_form = source_formats(self.source)
        rows = records
        if self.source.value:
            rows = _decoded(rows, "value", value_form, row_type(self.source.value), "undecoded")
        if self.source.key:
            fields = [(column.name, column.type) for column in self.source.key]
            if self.source.window is not None:
                fields += [(name, BIGINT) for name in WINDOW_BOUNDS]
            rows = _decoded(rows, "key", key_form, struct_of_fields(fields), "undecoded_key")
        return rows


def _decoded(rows: DataFrame, role: str, form: RecordFormat, kind: SqlType, undecoded: str) -> DataFrame:
    """Returns the decoded column. `kind`: fields of the format get its names, in their order."""
    decoded = translated.decoded(declared(None, role, form), role)
    assert decoded.problem is not None
    return (
        rows.withColumn("_read", sf.struct(decoded.struct.alias("fields"), decoded.problem.alias("problem")))
        .withColumn(undecoded, sf.when(sf.col("_read.problem").isNotNull(), sf.col(role)))
        .withColumn(role, sf.col("_read.fields").cast(kind.ddl))
        .drop("_read")
    )
