"""The ids of persistent queries: those that statements generate, and those that WITH (QUERY_ID = …) may give."""

from __future__ import annotations

import re
from collections.abc import Container
from typing import Final

from odradek.sql.language.statements import InsertIntoSelect, Statement
from odradek.values.errors import SqlError

_RESERVED: Final = ("INSERTQUERY_", "CTAS_", "CSAS_", "CST_", "ARCHIVE_")
_VALID: Final = re.compile(r"[A-Z0-9_]{1,200}")


def free_query_id(taken_ids: Container[str], kind: str, number: int) -> str:
    """Returns the id of the query that the command with this number starts: `kind_number`.

    An older command may have given that id to a query with QUERY_ID: then it is `kind_number_2`, and so on. No other command
    generates it, so that all servers, and all starts, agree.
    """
    query_id, version = f"{kind}_{number}", 1
    while query_id in taken_ids:
        version += 1
        query_id = f"{kind}_{number}_{version}"
    return query_id


def query_id_in(statement: InsertIntoSelect) -> str | None:
    """Returns the id that a statement gives its query; None where one is generated."""
    written = dict(statement.properties).get("QUERY_ID")
    return None if written is None else str(written).upper()


def is_generated(query_id: str) -> bool:
    """Tells whether an id has the form of those that statements generate: no two queries have had the same."""
    return query_id.startswith(_RESERVED)


def check_query_id(statement: Statement) -> None:
    """Raises SqlError for an id that ksqlDB refuses. Call it for new statements: older commands keep the ids that they have."""
    query_id = query_id_in(statement) if isinstance(statement, InsertIntoSelect) else None
    if query_id is None:
        return
    if is_generated(query_id):
        raise SqlError(
            f"Query IDs must not start with a reserved query ID prefix ({', '.join(_RESERVED)}). Got '{query_id:.200}'.",
            statement.position,
            "Choose another QUERY_ID, or leave it out.",
        )
    if _VALID.fullmatch(query_id) is None:
        raise SqlError(
            f"Query IDs may contain only alphanumeric characters and '_', at most 200. Got: '{query_id:.200}'",
            statement.position,
            "Choose another QUERY_ID, or leave it out.",
        )
