"""Pull queries over tables: lookups in a materialized view of the table's topic, opened by the first query that needs it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Final

from sqlglot import exp

from odradek.model.aliases import ClientSettings
from odradek.sql.language.queries import Query, conjuncts
from odradek.sql.queries.answer import QueryAnswer
from odradek.sql.queries.expressions import constant
from odradek.sql.queries.over import ROWS_MAX as OVER_ROWS_MAX
from odradek.sql.queries.over import OverCall
from odradek.sql.queries.source_rows import LocalSelection, SourceRows
from odradek.telemetry import events
from odradek.values.errors import SqlError
from odradek.values.formats.row_codec import UnreadableRecord
from odradek.values.rows import Row, SqlValue
from odradek.views.aio import AsyncTableView
from odradek.views.key_formats import TimedValue
from odradek.views.reads import ALL_KEYS, KeyRange, TableRow
from odradek.views.windows import WindowedKey

_log = events.get("sql")
_PAGE_ROWS: Final = 1_000
_SHORT_KEYS_MAX: Final = 100
_OPEN_S: Final = 60.0


class TableViews:
    """Views by topic. `directory`: where their rows are kept; None: in memory."""

    def __init__(self, servers: str, settings: ClientSettings, directory: Path | None) -> None:
        self._servers = servers
        self._settings = dict(settings)
        self._directory = directory
        self._views: dict[str, AsyncTableView] = {}
        self._opening = asyncio.Lock()

    async def view(self, rows: SourceRows) -> AsyncTableView:
        """Returns the view of a table; complete as of its opening."""
        topic = rows.source.topic
        async with self._opening:
            view = self._views.get(topic)
            if view is None:
                window = rows.source.window
                windows = None
                if window is not None:
                    windows = "session" if window.size_ms is None else f"{window.size_ms} ms"
                view = self._views[topic] = await AsyncTableView.open(
                    self._servers,
                    topic,
                    key="bytes",
                    value="timed bytes",
                    windows=windows,
                    directory=None if self._directory is None else self._directory / topic,
                    timeout_s=_OPEN_S,
                    **self._settings,
                )
            return view

    async def forget(self, topic: str) -> None:
        """Closes the view of a table that was dropped. Idempotent."""
        view = self._views.pop(topic, None)
        if view is not None:
            await view.close()

    async def close(self) -> None:
        """Closes the views. Idempotent."""
        while self._views:
            await self._views.popitem()[1].close()


async def pulled(views: TableViews, query: Query, rows: SourceRows, chosen: LocalSelection) -> QueryAnswer:
    """Answers a pull query: the rows of a table that it looks up, in the order of the keys' bytes."""
    view = await views.view(rows)
    await rows.learn([])
    keys = _keys_of(query.where, rows)

    async def passing() -> AsyncIterator[Row]:
        async for table_row in _found(view, keys, is_windowed=rows.source.window is not None):
            await rows.learn([_pieces(table_row)])
            row = _row(rows, table_row)
            if row is not None and chosen.passes(row):
                yield row

    async def batches() -> AsyncIterator[list[list[SqlValue]]]:
        batch: list[list[SqlValue]] = []
        left = query.limit
        async for row in _with_overs(passing(), chosen.overs, query) if chosen.overs else passing():
            if left == 0:
                break
            batch.append(chosen.shown(row))
            left = None if left is None else left - 1
            if len(batch) >= _PAGE_ROWS:
                yield batch
                batch = []
        if batch:
            yield batch

    async def close() -> None:
        """The view stays."""

    is_short = keys is not None and len(keys) <= _SHORT_KEYS_MAX and rows.source.window is None
    return QueryAnswer(query_id=None, columns=chosen.columns, rows=batches(), close=close, is_short=is_short)


async def _with_overs(
    passing: AsyncIterator[Row], overs: Sequence[OverCall], query: Query
) -> AsyncIterator[Row]:
    """Yields the same rows, when all are there."""
    held: list[dict[str, SqlValue]] = []
    async for row in passing:
        held.append(dict(row))
        if len(held) > OVER_ROWS_MAX:
            raise SqlError(
                f"OVER needs all rows at once, and more than {OVER_ROWS_MAX} pass",
                query.position,
                "Write a WHERE that fewer pass.",
            )
    await asyncio.to_thread(_fill, overs, held)  # a second, of rows at the limit
    for row in held:
        yield row


def _fill(overs: Sequence[OverCall], held: list[dict[str, SqlValue]]) -> None:
    for call in overs:
        call.fill(held)


async def _found(
    view: AsyncTableView, keys: list[bytes] | None, *, is_windowed: bool
) -> AsyncIterator[TableRow]:
    """Rows of these keys, or all."""
    if keys is None:
        start: KeyRange | None = ALL_KEYS
        while start is not None:
            page = await view.page(start, _PAGE_ROWS)
            for row in page.rows:
                yield row
            start = None if page.next_start is None else KeyRange(page.next_start)
        return
    for key in keys:
        if is_windowed:
            async for row in view.windows(key):
                yield row
            continue
        value = await view.get(key)
        if value is not None:
            yield TableRow(key, value)


def _pieces(row: TableRow) -> tuple[bytes | None, bytes | None]:
    return (row.key.key if isinstance(row.key, WindowedKey) else row.key), row.value.value


def _row(rows: SourceRows, table_row: TableRow) -> Row | None:
    stored: TimedValue = table_row.value
    row: dict[str, SqlValue] = {"ROWTIME": stored.timestamp_ms}
    key = table_row.key
    if isinstance(key, WindowedKey):
        row |= {"WINDOWSTART": key.start_ms, "WINDOWEND": key.end_ms}
        key = key.key
    try:
        return rows.filled(row, key, stored.value)
    except UnreadableRecord as error:
        _log.warning("sql_record_unreadable", source=rows.source.name, reason=str(error))
        return None


def _keys_of(where: exp.Expr | None, rows: SourceRows) -> list[bytes] | None:
    """Returns the keys that a WHERE names, as bytes; None: it may be any key."""
    if where is None or len(rows.keys.columns) != 1:
        return None
    name, kind = rows.keys.columns[0]
    for part in conjuncts(where):
        constants: list[exp.Expr] | None = None
        if isinstance(part, exp.EQ):
            sides = (part.this, part.expression)
            for column, other in (sides, sides[::-1]):
                if isinstance(column, exp.Column) and column.name == name:
                    constants = [other]
        elif isinstance(part, exp.In) and isinstance(part.this, exp.Column) and part.this.name == name:
            constants = part.expressions
        if constants is None or any(isinstance(member, exp.Column) for member in constants):
            continue
        values = [value for member in constants for value in _equal_values(constant(member, kind))]
        encoded = (rows.keys.encode([value]) for value in values)
        return sorted({key for key in encoded if key is not None})
    return None


def _equal_values(value: SqlValue) -> tuple[SqlValue, ...]:
    """Returns the values that `=` finds equal to a constant: both zeros of DOUBLE are, and each is a key of its own."""
    return (0.0, -0.0) if isinstance(value, float) and value == 0.0 else (value,)
