"""Python's database API (PEP 249) for pull queries and statements; async iteration for push queries.

with connect("http://127.0.0.1:8088") as connection:
    cursor = connection.cursor()
    cursor.execute("SELECT * FROM totals WHERE customer = ?", ["ann"])
    print(cursor.fetchall())

async for row in stream("SELECT * FROM orders EMIT CHANGES", properties={"auto.offset.reset": "earliest"}):
    print(row["ITEM"])
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Final, Self

from odradek.model.aliases import Json
from odradek.model.errors import OdradekError
from odradek.sql.rest_client import DEFAULT_URL, OpenQuery, RestClient, ServerRefusal, ServerUnreachable

apilevel: Final = "2.0"  # unused: PEP 249
threadsafety: Final = 1  # unused: PEP 249
paramstyle: Final = "qmark"  # unused: PEP 249

_HAS_ROWS: Final = re.compile(
    r"\s*(?:--[^\n]*\n\s*|/\*.*?\*/\s*)*(SELECT|PRINT)\b", re.IGNORECASE | re.DOTALL
)
_MARK: Final = re.compile(r"'(?:[^']|'')*'|`[^`]*`|--[^\n]*|(\?)")


class Warning(Exception):  # noqa: A001 - PEP 249 wants this name
    """The warning that PEP 249 asks for; nothing raises it here."""


class Error(OdradekError):
    """The root of this module's errors, as PEP 249 asks for it."""


class InterfaceError(Error):
    """The API is used in a wrong way."""


class DatabaseError(Error):
    """An error of the server. `code`: ksqlDB's."""

    code: int | None = None


class DataError(DatabaseError):  # unused: PEP 249
    """The error that PEP 249 has for bad data; nothing raises it here."""


class IntegrityError(DatabaseError):  # unused: PEP 249
    """The error that PEP 249 has for violated integrity; nothing raises it here."""


class InternalError(DatabaseError):  # unused: PEP 249
    """The error that PEP 249 has for faults of the database; nothing raises it here."""


class OperationalError(DatabaseError):
    """The server cannot be reached, or went away."""


class ProgrammingError(DatabaseError):
    """A statement that is wrong."""


class NotSupportedError(DatabaseError):
    """The error of a call for something that ksqlDB does not have, such as a rollback."""


def connect(
    url: str = DEFAULT_URL,
    *,
    user: str | None = None,
    password: str = "",
    ca: str | Path | None = None,
    properties: Mapping[str, str] | None = None,
) -> SqlConnection:
    """Connects, without a request yet. `properties`: those that SET would set, for all queries."""
    return SqlConnection(
        RestClient(url=url, user=user, password=password, ca=None if ca is None else Path(ca)),
        dict(properties or {}),
    )


class SqlConnection:
    """A connection to an SQL server (PEP 249). There are no transactions: each statement stands alone, `commit` does
    nothing, and `rollback` is refused."""

    def __init__(self, client: RestClient, properties: Mapping[str, str]) -> None:
        self._client = client
        self._properties = properties
        self._is_closed = False

    def cursor(self) -> SqlCursor:
        if self._is_closed:
            raise InterfaceError("the connection is closed")
        return SqlCursor(self._client, self._properties)

    def commit(self) -> None:
        """Does nothing: every statement is permanent when it returns."""

    def rollback(self) -> None:
        raise NotSupportedError("a statement that was run cannot be taken back: there are no transactions")

    def close(self) -> None:
        """Closes the connection. Idempotent."""
        self._is_closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class SqlCursor:
    """A cursor of PEP 249.

    `description` has name and type (as text) of each column.
    """

    arraysize = 100

    def __init__(self, client: RestClient, properties: Mapping[str, str]) -> None:
        self._client = client
        self._properties = properties
        self._query: OpenQuery | None = None
        self._rows: Iterator[list[Json]] = iter(())
        self.description: tuple[tuple[object, ...], ...] | None = None
        self.rowcount = -1

    def execute(self, operation: str, parameters: Sequence[object] = ()) -> Self:
        """Runs a statement; `?` marks a parameter. A push query may be read too, row by row; `close` ends it."""
        self._end()
        text = _with_parameters(operation, parameters)
        try:
            if _HAS_ROWS.match(text):
                self._query = self._client.query(text, properties=self._properties)
                self._rows = iter(self._query)
                self.description = tuple(
                    (name, kind, None, None, None, None, None) for name, kind in self._query.columns
                )
            else:
                self._client.execute(
                    text if text.rstrip().endswith(";") else text + ";", properties=self._properties
                )
        except OdradekError as error:
            raise _database_error(error) from error
        return self

    def executemany(self, operation: str, parameters: Sequence[Sequence[object]]) -> Self:
        for values in parameters:
            self.execute(operation, values)
        return self

    def fetchone(self) -> tuple[Json, ...] | None:
        if self.description is None:
            raise InterfaceError("no query was run: there are no rows")
        try:
            row = next(self._rows, None)
        except OdradekError as error:
            raise _database_error(error) from error
        return None if row is None else tuple(row)

    def fetchmany(self, size: int | None = None) -> list[tuple[Json, ...]]:  # unused: PEP 249
        rows = []
        for _ in range(self.arraysize if size is None else size):
            row = self.fetchone()
            if row is None:
                break
            rows.append(row)
        return rows

    def fetchall(self) -> list[tuple[Json, ...]]:
        return list(self)

    def __iter__(self) -> Iterator[tuple[Json, ...]]:
        while (row := self.fetchone()) is not None:
            yield row

    def close(self) -> None:
        """Closes the cursor. Idempotent."""
        self._end()
        self.description = None

    def _end(self) -> None:
        if self._query is not None:
            self._query.close()
            self._query = None
        self._rows, self.description = iter(()), None

    def setinputsizes(self, sizes: Sequence[object]) -> None:  # unused: PEP 249
        """Does nothing, as PEP 249 allows."""

    def setoutputsize(self, size: int, column: int | None = None) -> None:  # unused: PEP 249
        """Does nothing, as PEP 249 allows."""


async def stream(
    text: str,
    parameters: Sequence[object] = (),
    *,
    url: str = DEFAULT_URL,
    user: str | None = None,
    password: str = "",
    ca: str | Path | None = None,
    properties: Mapping[str, str] | None = None,
) -> AsyncIterator[dict[str, object]]:
    """Yields the rows of a query as they come, by column. Leaving the loop ends the query."""
    client = RestClient(url=url, user=user, password=password, ca=None if ca is None else Path(ca))
    text = _with_parameters(text, parameters)
    try:
        query = await asyncio.to_thread(client.query, text, properties=properties)
    except OdradekError as error:
        raise _database_error(error) from error
    names = [name for name, _ in query.columns]
    rows = iter(query)
    try:
        while True:
            reading = asyncio.create_task(asyncio.to_thread(next, rows, None))
            try:
                row = await asyncio.shield(reading)
            except asyncio.CancelledError:
                query.close()  # which ends the reading thread
                await asyncio.gather(reading, return_exceptions=True)
                raise
            if row is None:
                return
            yield dict(zip(names, row, strict=True))
    except OdradekError as error:
        raise _database_error(error) from error
    finally:
        query.close()


def _with_parameters(text: str, parameters: Sequence[object]) -> str:
    values = iter(parameters)
    used = 0

    def replaced(match: re.Match[str]) -> str:
        nonlocal used
        if match[1] is None:
            return match[0]
        used += 1
        try:
            return literal(next(values))
        except StopIteration:
            raise InterfaceError(f"there are {len(parameters)} parameters, and more question marks") from None

    written = _MARK.sub(replaced, text)
    if used != len(parameters):
        raise InterfaceError(f"there are {len(parameters)} parameters, and {used} question marks")
    return written


def literal(value: object) -> str:
    """Returns a Python value as ksqlDB's language writes it. InterfaceError for one that it cannot write."""
    match value:
        case None:
            return "NULL"
        case bool():
            return "TRUE" if value else "FALSE"
        case int() | Decimal():
            return str(value)
        case float() if value == value and abs(value) != float("inf"):
            return f"{value:E}"
        case str():
            return "'" + value.replace("'", "''") + "'"
        case list() | tuple():
            return f"ARRAY[{', '.join(map(literal, value))}]"
        case dict():
            return (
                f"MAP({', '.join(f'{literal(key)} := {literal(member)}' for key, member in value.items())})"
            )
    if hasattr(value, "isoformat"):
        return f"'{value.isoformat()}'"
    raise InterfaceError(f"a {type(value).__name__} cannot be a parameter: {value!r}")


def _database_error(error: OdradekError) -> DatabaseError:
    if isinstance(error, ServerUnreachable):
        return OperationalError(str(error))
    if not isinstance(error, ServerRefusal):
        return DatabaseError(str(error))
    raised = (ProgrammingError if error.code // 100 == 400 else OperationalError)(error.message)
    raised.code = error.code
    return raised
