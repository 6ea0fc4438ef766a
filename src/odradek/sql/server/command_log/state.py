"""The state of a service by its command log: the catalog, the queries that must run, and the status of each command. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from odradek.model.errors import OdradekError
from odradek.sql.applying import apply
from odradek.sql.changes import AppliedChange, ArchiveCreated, QueryStarted, QueryStopped
from odradek.sql.language.parsing import parse_one
from odradek.sql.language.statements import (
    AlterQuery,
    AlterSwap,
    CreateArchive,
    CreateAsSelect,
    CreateFunction,
    CreateSource,
    DropArchive,
    DropFunction,
    DropSource,
    InsertIntoSelect,
    QueryControl,
    Statement,
)
from odradek.sql.metastore.catalog import Catalog
from odradek.sql.metastore.query_ids import is_generated
from odradek.sql.queries.builds import PlannedText
from odradek.sql.server.command_log.commands import SqlCommand

STATUSES_MAX: Final = 1_000
"""The most statuses of commands that are kept; the oldest go first."""
ENDED_IDS_MAX: Final = 10_000
"""The most ids of ended queries that are kept; the oldest go first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryRun:
    """How a persistent query runs: its statement, with the part of the catalog that the statement names.

    `starting`: by topic and partition, the first offset to read. `carried_at`: the number of the command that carried it over.
    `begun_at`: the number of the command that started it, where another query had the id before.
    """

    query_id: str
    text: PlannedText
    starting: Mapping[str, Mapping[int, int]]
    carried_at: int | None = None
    begun_at: int | None = None

    @property
    def run_id(self) -> str:
        """The name of its program and checkpoint: what another query with the same id has left is not its own."""
        return self.query_id if self.begun_at is None else f"{self.query_id}.{self.begun_at}"


@dataclass(slots=True)
class ServiceState:
    """The state of a service after the commands that it has replayed.

    `applied_count`: how many commands were applied; those that were refused do not count.
    """

    catalog: Catalog = field(default_factory=Catalog)
    applied_count: int = 0
    statuses: dict[str, dict[str, Any]] = field(default_factory=dict)
    runs: dict[str, QueryRun] = field(default_factory=dict)
    """The queries of the catalog, by id; a paused query is among them."""
    ended_ids: dict[str, None] = field(default_factory=dict)
    """The ids that QUERY_ID has given to queries that ended, in the order of their ends."""
    refused: str | None = None
    """The first command that this server refused. Others may have applied it, so that this state is not the service's."""

    @property
    def live_count(self) -> int:
        """The number of objects that are there now."""
        catalog = self.catalog
        named = (catalog.sources, catalog.queries, catalog.archives, catalog.types, catalog.created_functions)
        return sum(map(len, named))

    def replay(self, offset: int, command: SqlCommand) -> AppliedChange | None:
        """Applies one command; returns None if it is refused, as its status shows. Every server refuses the same commands."""
        before = self.catalog
        try:
            applied = apply(before, parse_one(command.statement), offset)
        except OdradekError as error:
            if self.refused is None:
                self.refused = command.command_id
            self._note(command, "ERROR", str(error), None)
            return None
        self.catalog = applied.catalog
        self.applied_count += 1
        query_id = None
        for change in applied.changes:
            match change:
                case QueryStarted(query=query, plan=planned):
                    sink = planned.sink
                    begun_at = offset if query.id in self.ended_ids else None
                    carried_at = None if sink is None or not query.creates_sink else sink.carried_at
                    self._run(query.id, before, command, carried_at, begun_at)
                    query_id = query_id or query.id
                case ArchiveCreated(query=query):
                    self._run(query.id, before, command, None)
                    query_id = query_id or query.id
                case QueryStopped(query=query):
                    self.runs.pop(query.id, None)
                    self._note_end(query.id)
        self._note(command, "SUCCESS", applied.message, query_id)
        return applied

    def restore(self, other: ServiceState) -> None:
        """Makes this state equal to another one."""
        self.catalog, self.applied_count = other.catalog, other.applied_count
        self.statuses, self.runs, self.refused = dict(other.statuses), dict(other.runs), other.refused
        self.ended_ids = dict(other.ended_ids)

    def _note_end(self, query_id: str) -> None:
        if is_generated(query_id):
            return
        self.ended_ids.pop(query_id, None)
        self.ended_ids[query_id] = None
        if len(self.ended_ids) > ENDED_IDS_MAX:
            del self.ended_ids[next(iter(self.ended_ids))]

    def _run(
        self,
        query_id: str,
        before: Catalog,
        command: SqlCommand,
        carried_at: int | None,
        begun_at: int | None = None,
    ) -> None:
        self.runs[query_id] = QueryRun(
            query_id=query_id,
            text=PlannedText.of(before, command.statement),
            starting=command.starting,
            carried_at=carried_at,
            begun_at=begun_at,
        )

    def _note(self, command: SqlCommand, status: str, message: str, query_id: str | None) -> None:
        self.statuses.pop(command.command_id, None)
        self.statuses[command.command_id] = {"status": status, "message": message, "queryId": query_id}
        if len(self.statuses) > STATUSES_MAX:
            del self.statuses[next(iter(self.statuses))]


def command_id(statement: Statement) -> str:
    """Returns ksqlDB's id of a command: kind, name and action."""
    match statement:
        case CreateSource() | CreateAsSelect():
            return f"{statement.kind}/`{statement.name}`/create"
        case AlterQuery() | AlterSwap():
            return f"{statement.kind}/`{statement.name}`/alter"
        case DropSource():
            return f"{statement.kind}/`{statement.name}`/drop"
        case InsertIntoSelect():
            return f"stream/`{statement.target}`/create"
        case CreateArchive():
            return f"archive/`{statement.name}`/create"
        case DropArchive():
            return f"archive/`{statement.name}`/drop"
        case CreateFunction():
            return f"function/`{statement.name}`/create"
        case DropFunction():
            return f"function/`{statement.name}`/drop"
        case QueryControl():
            return f"terminate/{statement.query_id or 'ALL'}/execute"
    return f"{type(statement).__name__.lower()}/{getattr(statement, 'name', '')}/execute"
