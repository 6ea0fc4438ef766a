"""The changes of a statement, as values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from odradek.sql.metastore.catalog import CreatedFunction, PersistentQuery, SqlArchive, SqlCatalog, SqlSource
from odradek.sql.planning.plan import Plan
from odradek.values.types import SqlType


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceCreated:
    """A stream or table was created.

    `replaces`: what was there under the name.
    """

    source: SqlSource
    replaces: SqlSource | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceDropped:
    source: SqlSource
    delete_topic: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryStarted:
    """A persistent query was started.

    `replaces`: the id of a query whose statement is another one now.
    """

    query: PersistentQuery
    plan: Plan
    replaces: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryStopped:
    query: PersistentQuery


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryPaused:
    query: PersistentQuery


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryResumed:
    query: PersistentQuery


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveCreated:
    archive: SqlArchive
    query: PersistentQuery


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveDropped:
    archive: SqlArchive
    delete_files: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeCreated:
    name: str
    type: SqlType


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeDropped:
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionCreated:
    function: CreatedFunction


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionDropped:
    name: str


Change: TypeAlias = (
    SourceCreated
    | SourceDropped
    | QueryStarted
    | QueryStopped
    | QueryPaused
    | QueryResumed
    | ArchiveCreated
    | ArchiveDropped
    | TypeCreated
    | TypeDropped
    | FunctionCreated
    | FunctionDropped
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedChange:
    """The result of a statement: the next catalog, and what changed.

    `message`: as ksqlDB answers.
    """

    catalog: SqlCatalog
    changes: tuple[Change, ...]
    message: str


def unchanged(catalog: SqlCatalog, message: str) -> AppliedChange:
    """Returns the result of a statement whose IF EXISTS, or IF NOT EXISTS, leaves nothing to do."""
    return AppliedChange(catalog=catalog, changes=(), message=message)
