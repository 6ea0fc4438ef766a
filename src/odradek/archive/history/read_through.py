"""Topic and archive as one: `format("odradek")` with the option `archive`, for batches and streams.

The archive gives what it holds; the topic gives the rest: what follows the archive's end, and what precedes its beginning if
the topic still has it. The plan of a batch reads the archive's state; so does a micro-batch's plan, if the last
reading is a minute old, or if the topic no longer holds what followed the end then. Offsets that are in neither are an error.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final
from uuid import UUID

from odradek.archive.store.location import archive_location
from odradek.archive.store.values import ArchiveError, DataFile
from odradek.model.ids import ZERO_UUID, TopicPartition
from odradek.model.lazy import lazy
from odradek.spark.options.options import ArchiveOptions, ReadOptions
from odradek.spark.options.positions import EARLIEST
from odradek.spark.reading.history import DividedRanges
from odradek.spark.reading.offsets import OffsetRange
from odradek.spark.source import OdradekDataSource

if TYPE_CHECKING:
    import pyarrow as pa

    from odradek.archive import opening
    from odradek.archive.files import extent_index, reading
    from odradek.archive.history import archive_view, archived_catalog, archived_rows, record_columns
    from odradek.spark.reading.catalog import Catalog
else:
    archive_view = lazy("odradek.archive.history.archive_view")
    archived_catalog = lazy("odradek.archive.history.archived_catalog")
    archived_rows = lazy("odradek.archive.history.archived_rows")
    extent_index = lazy("odradek.archive.files.extent_index")
    opening = lazy("odradek.archive.opening")
    reading = lazy("odradek.archive.files.reading")
    record_columns = lazy("odradek.archive.history.record_columns")

log: Final = logging.getLogger("odradek.archive")

SHARE_BYTES: Final = 64 << 20
"""The size of the files that one task reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveShare:
    """The share of one task: the records of some ranges, in some files."""

    files: tuple[DataFile, ...]
    extents: tuple[OffsetRange, ...]
    reader: reading.FileReader


class ArchiveHistory:
    """A `History` that an archive keeps."""

    def __init__(self, archive: ArchiveOptions, options: ReadOptions) -> None:
        location = archive_location(archive.path, endpoint=archive.endpoint, region=archive.region)
        table = opening.open_archive(location, archive.catalog)
        columns = record_columns.needed_columns(options.projection.columns, table.schema, location)
        self._reader = reading.FileReader(location=location, schema=columns)
        self._view = archive_view.ArchiveView(table)

    def over(self, brokers: Catalog) -> Catalog:
        return archived_catalog.ArchivedCatalog(brokers, self._view)

    def divide(self, ranges: Sequence[OffsetRange], brokers: Catalog, options: ReadOptions) -> DividedRanges:
        look = self._view.recent()
        in_archive, rest = divide(ranges, look.archived, look.topic_ids)
        gaps = _gaps(rest, brokers)
        if gaps:  # the archive may have grown since its state was read
            look = self._view.renewed()
            in_archive, rest = divide(ranges, look.archived, look.topic_ids)
            gaps = _gaps(rest, brokers)
        if gaps:
            description = "; ".join(_spell(gap, look.archived.get(gap.partition)) for gap in gaps)
            if options.fail_on_data_loss:
                raise ArchiveError(f"{description}. Set failOnDataLoss=false to go on without them")
            log.warning("%s; going on because failOnDataLoss is false", description)
        return DividedRanges(in_history=tuple(self._shares(in_archive, look.files)), in_topics=tuple(rest))

    def read(
        self,
        share: ArchiveShare,
        options: ReadOptions,
        schema: pa.Schema,
        keys: frozenset[bytes] | None,
    ) -> Iterator[pa.RecordBatch]:
        yield from archived_rows.read_share(
            share.reader, share.files, share.extents, options.projection, schema, keys
        )

    def _shares(self, extents: Sequence[OffsetRange], files: Sequence[DataFile]) -> Iterator[ArchiveShare]:
        index = extent_index.ExtentIndex(extents)
        holding = [file for file in files if next(index.extent_numbers(file), None) is not None]
        in_order = sorted(holding, key=extent_index.sort_key)
        for share in reading.share_files(in_order, SHARE_BYTES):
            numbers = {number for file in share for number in index.extent_numbers(file)}
            wanted = tuple(index.extents[number] for number in sorted(numbers))
            yield ArchiveShare(files=share, extents=wanted, reader=self._reader)


def _spell(gap: OffsetRange, extent: OffsetRange | None) -> str:
    has = "nothing of it" if extent is None else f"{extent.start} to {extent.end - 1}"
    return (
        f"offsets {gap.start} to {gap.end - 1} of {gap.partition} are neither in the topic, which begins later, nor in the"
        f" archive, which has {has}"
    )


def divide(
    ranges: Sequence[OffsetRange],
    archived: Mapping[TopicPartition, OffsetRange],
    topic_ids: Mapping[str, UUID] | None = None,
) -> tuple[list[OffsetRange], list[OffsetRange]]:
    """Returns the part of the ranges that the archive has, and the rest, in order. `topic_ids`: the ids of archived topics."""
    known = topic_ids or {}
    in_archive: list[OffsetRange] = []
    rest: list[OffsetRange] = []
    for span in ranges:
        extent = archived.get(span.partition)
        if extent is None or ZERO_UUID != span.topic_id != known.get(span.partition.topic, span.topic_id):
            rest.append(span)
            continue
        rest.append(_part(span, span.start, extent.start))
        in_archive.append(_part(span, extent.start, extent.end))
        rest.append(_part(span, extent.end, span.end))
    return [span for span in in_archive if span.size > 0], [span for span in rest if span.size > 0]


def _part(whole: OffsetRange, start: int, end: int) -> OffsetRange:
    return replace(whole, start=max(start, whole.start), end=min(end, whole.end))


def _gaps(rest: Sequence[OffsetRange], brokers: Catalog) -> list[OffsetRange]:
    """Returns the ranges to read from topics that are below the topics' first offsets."""
    if not rest:
        return []
    firsts = brokers.offsets({span.partition: EARLIEST for span in rest})
    cut = [_part(span, span.start, firsts.get(span.partition, span.start)) for span in rest]
    return [span for span in cut if span.size > 0]


class OdradekWithArchive(OdradekDataSource):
    """The data source `format("odradek")`, whose reads may include an archive."""

    def archive_history(self, archive: ArchiveOptions, options: ReadOptions) -> ArchiveHistory:
        return ArchiveHistory(archive, options)
