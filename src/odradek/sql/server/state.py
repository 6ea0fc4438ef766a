"""The state of a service by its command log: the catalog, the queries that shall run, and the status of each command. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from odradek.model.errors import OdradekError
from odradek.sql.applying import apply
from odradek.sql.catalog import Catalog
from odradek.sql.changes import AppliedChange, ArchiveCreated, QueryStarted
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
from odradek.sql.server.commands import SqlCommand


@dataclass(slots=True)
class ServiceState:
    """`applied_count`: how many commands were applied; those that were refused do not count."""

    catalog: Catalog = field(default_factory=Catalog)
    applied_count: int = 0
    statuses: dict[str, dict[str, Any]] = field(default_factory=dict)

    def replay(self, offset: int, command: SqlCommand) -> AppliedChange | None:
        """Applies one command; returns None if it is refused, as its status says. Every server refuses the same commands."""
        try:
            applied = apply(self.catalog, parse_one(command.statement), offset)
        except OdradekError as error:
            self.statuses[command.command_id] = {
                "status": "ERROR",
                "message": str(error),
                "queryId": None,
            }
            return None
        self.catalog = applied.catalog
        self.applied_count += 1
        query_id = next(
            (
                change.query.id
                for change in applied.changes
                if isinstance(change, QueryStarted | ArchiveCreated)
            ),
            None,
        )
        self.statuses[command.command_id] = {
            "status": "SUCCESS",
            "message": applied.message,
            "queryId": query_id,
        }
        return applied


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
