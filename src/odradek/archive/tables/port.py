"""The port of a table format. Three implement it: Delta Lake, Iceberg, and plain Parquet with a manifest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from odradek.archive.store.location import ArchiveLocation
from odradek.archive.store.values import ArchiveState, DataFile, NewBatch

if TYPE_CHECKING:
    import pyarrow as pa


class TableFormat(StrEnum):
    DELTA = "delta"
    ICEBERG = "iceberg"
    PARQUET = "parquet"


@dataclass(frozen=True, slots=True, kw_only=True)
class Expired:
    """The result of an expiry: what it removed, or would remove."""

    files: tuple[str, ...]
    """The files that were removed, of rows or of the table itself, as names below the archive's root."""
    version_count: int
    """Versions of the table that cannot be read any more."""


class ArchiveTable(Protocol):
    """A table at a location. Objects are cheap, may be pickled, and keep no connection."""

    @property
    def format(self) -> TableFormat: ...

    @property
    def location(self) -> ArchiveLocation: ...

    @property
    def schema(self) -> pa.Schema: ...

    @property
    def partition_by(self) -> tuple[str, ...]: ...

    @property
    def data_directory(self) -> str:
        """The directory of data files below the root: empty, or a name and `/`."""

    @property
    def file_schema(self) -> pa.Schema:
        """The columns that files hold, in their order: without the columns of `partition_by` where only paths have them."""

    def state(self) -> ArchiveState:
        """Returns the newest version. ArchiveError when the table cannot be read."""

    def append(self, batch: NewBatch, after: ArchiveState) -> None:
        """Makes a batch part of the table, its files, its name and its offsets, in one commit that follows `after`.

        CommitConflict, and nothing of it is there, when `after` is not the newest version any more. After any other error it
        may be there or not: `state` tells.
        """

    def files(self) -> list[DataFile]:
        """Returns the files of the newest version."""

    def replace(self, old: Sequence[DataFile], new: Sequence[DataFile]) -> None:
        """Puts files instead of others that hold the same rows, in one commit.

        MissingFiles when one of the old ones is not part of the table; CommitConflict when someone else was first.
        """

    def expire(self, before_ms: int, *, dry_run: bool) -> Expired:
        """Vacuums the table: removes files that no version since `before_ms` needs, if they are older than that themselves.

        It also removes versions that were replaced before it. What is archived, and every row of the newest version, stays.
        """
