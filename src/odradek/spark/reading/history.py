"""Records that are kept outside of their topics: what a read asks for, that the option `archive` makes longer than the topics.

The room of archives is above this one, and overrides `OdradekDataSource.archive_history`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from odradek.spark.reading.offsets import OffsetRange

if TYPE_CHECKING:
    import pyarrow as pa

    from odradek.spark.options.options import ReadOptions
    from odradek.spark.reading.catalog import Catalog

Share = Any
"""The part of the history that one task reads. Spark pickles it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DividedRanges:
    """Ranges of offsets, by where they are read."""

    in_history: tuple[Share, ...]
    in_topics: tuple[OffsetRange, ...]


class History(Protocol):
    """The part of a read that comes from outside of the topics. Spark pickles it with the reader; each copy opens what it
    needs."""

    def over(self, brokers: Catalog) -> Catalog:
        """Returns the brokers, with logs that begin where what is kept begins."""

    def divide(self, ranges: Sequence[OffsetRange], brokers: Catalog, options: ReadOptions) -> DividedRanges:
        """Divides ranges between history and topics. An OdradekError names offsets that are in neither."""

    def read(
        self, share: Share, options: ReadOptions, schema: pa.Schema, keys: frozenset[bytes] | None
    ) -> Iterator[pa.RecordBatch]:
        """Returns the records of a share as batches of `schema`; with `keys`, only records with these keys."""
