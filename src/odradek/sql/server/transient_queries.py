"""Answers SELECT and PRINT: rows come from a view, a consumer in Python, or a push query of Spark.

These queries are transient: no command creates them, and they end with their client.
`command_effects` starts persistent queries.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Final

from odradek.model.errors import OdradekError
from odradek.runtime.real_clock import SystemEntropy
from odradek.sql.language.queries import NamedRelation, Query, with_members
from odradek.sql.language.statements import PrintTopic, SelectStatement
from odradek.sql.planning import select_plan
from odradek.sql.queries.answer import COMPLETED, LIMIT_REACHED, AnswerColumn, QueryAnswer
from odradek.sql.queries.builds import PlannedText, PushBuild
from odradek.sql.queries.channel import StartPush
from odradek.sql.queries.engine import PushedRows
from odradek.sql.queries.expressions import NeedsSpark
from odradek.sql.queries.scan import printed, scanned
from odradek.sql.queries.source_rows import LocalSelection, SourceRows, selection
from odradek.sql.queries.tables import pulled
from odradek.sql.server.parts import ServerParts
from odradek.sql.server.properties import checked_properties
from odradek.sql.server.refusals import refusal_of
from odradek.sql.server.topics.processing_log import ServerProcessingLog
from odradek.sql.server.topics.source_topics import RESET, starting_options
from odradek.values.errors import SqlError
from odradek.values.formats.format_info import WindowInfo
from odradek.values.rows import SqlValue

_IDLE_S: Final = 10.0
_MEMBERS_MAX: Final = 10_000
_PULL_QUERIES_HAVE: Final = (
    "this pull query needs more than columns, constants, comparisons, AND, OR, NOT and whole-number arithmetic,"
    " which is all that pull queries have yet"
)


class TransientQueries:
    """Runs the queries of requests, and ends those that /close-query names. Used from one event loop."""

    def __init__(
        self, parts: ServerParts, spark_options: Mapping[str, str], processing_log: ServerProcessingLog
    ) -> None:
        self._parts = parts
        self._spark_options = spark_options
        self._processing_log = processing_log
        self._ends: dict[str, Callable[[], None]] = {}
        """Functions that end the running queries of consumers, by query id."""
        self._entropy = SystemEntropy()

    @property
    def _brokers(self) -> tuple[str, Mapping[str, object]]:
        return self._parts.topics.servers, self._parts.topics.settings

    def close(self, query_id: str) -> bool:
        """Ends a query; returns False where none has this id."""
        end = self._ends.get(query_id)
        if end is not None:
            end()
            return True
        return self._parts.engine.close_push(query_id)

    async def run(
        self, text: str, properties: Mapping[str, str], variables: Mapping[str, str]
    ) -> QueryAnswer:
        try:
            statement = await self._parts.threads.parsed(text, variables)
            if len(statement) != 1:
                raise SqlError(f"Expected exactly one KSQL statement; found {len(statement)} instead")
            match statement[0]:
                case PrintTopic() as printing:
                    window = self._window_of(printing.topic)
                    return self._registered(await printed(*self._brokers, printing, self._new_id(), window))
                case SelectStatement() as select:
                    return await self._select(select, checked_properties(properties))
            raise SqlError(
                "only SELECT and PRINT are queries", statement[0].position, "Send other statements to /ksql."
            )
        except OdradekError as error:
            raise refusal_of(error, text) from error

    def _window_of(self, topic: str) -> WindowInfo | None:
        """Returns the window of a topic's keys, if a source declares one."""
        windows = (source.window for source in self._parts.catalog.sources.values() if source.topic == topic)
        return next((window for window in windows if window is not None), None)

    async def _select(self, statement: SelectStatement, properties: Mapping[str, str]) -> QueryAnswer:
        query = statement.query
        if query.emit is None:
            return await self._pull(query)
        if query.emit == "changes" and isinstance(query.relation, NamedRelation):
            source = self._parts.catalog.source(query.relation.name, query.relation.position)
            try:
                rows = SourceRows.of(source)
                chosen = await self._parts.threads.run(partial(selection, query, rows, with_coordinates=True))
            except NeedsSpark:
                pass
            else:
                reset = properties.get(RESET, "earliest" if source.is_table else "latest")
                return self._registered(
                    await self._scanned(query, rows, chosen, self._new_id(), earliest=reset == "earliest")
                )
        return await self._push(statement, properties)

    async def _with_members(self, query: Query) -> Query:
        """Returns the query with its subqueries replaced by their present results. SqlError when these are too large."""
        if query.where is None or not query.subqueries:
            return query
        members = []
        for subquery in query.subqueries:
            pulled_query = await self._pull(subquery)
            if len(pulled_query.columns) != 1:
                raise SqlError(
                    f"a subquery of IN has one column, not {len(pulled_query.columns)}", subquery.position
                )
            values: dict[object, None] = {}
            try:
                async for batch in pulled_query.rows:
                    values |= dict.fromkeys(value for (value,) in batch)
                    if len(values) > _MEMBERS_MAX:
                        raise SqlError(
                            f"a subquery of IN has more than {_MEMBERS_MAX} values", subquery.position
                        )
            finally:
                await pulled_query.close()
            members.append(list(values))
        return replace(query, where=with_members(query.where, members), subqueries=())

    async def _pull(self, query: Query) -> QueryAnswer:
        relation = query.relation
        if not isinstance(relation, NamedRelation):
            raise SqlError(
                "Pull queries don't support JOIN clauses, and read one stream or table.",
                query.position,
                "Write EMIT CHANGES.",
            )
        query = await self._with_members(query)
        source = self._parts.catalog.source(relation.name, relation.position)
        try:
            rows = SourceRows.of(source)
            chosen = await self._parts.threads.run(
                partial(selection, query, rows, with_coordinates=not source.is_table)
            )
        except NeedsSpark as error:
            raise SqlError(
                str(error) or _PULL_QUERIES_HAVE,
                query.position,
                "Write EMIT CHANGES, or make a table with CREATE TABLE … AS SELECT and ask that.",
            ) from None
        if source.is_table:
            return await pulled(self._parts.views, query, rows, chosen)
        return await self._scanned(query, rows, chosen, None, earliest=True)

    async def _scanned(
        self, query: Query, rows: SourceRows, chosen: LocalSelection, query_id: str | None, *, earliest: bool
    ) -> QueryAnswer:
        leave_out = partial(self._processing_log.note, query_id or f"{rows.source.name}_pull")
        servers, settings = self._brokers
        return await scanned(
            servers, settings, query, rows, chosen, query_id=query_id, earliest=earliest, leave_out=leave_out
        )

    async def _push(self, statement: SelectStatement, properties: Mapping[str, str]) -> QueryAnswer:
        planned = await self._parts.threads.run(select_plan, self._parts.catalog, statement.query)
        query_id = self._new_id()
        text = PlannedText.of(self._parts.catalog, statement.text)
        starting = await self._parts.topics.starting(planned.sources, properties)
        pushed = await self._parts.engine.push(
            StartPush(
                query_id=query_id,
                build=PushBuild(text=text),
                servers=self._parts.topics.servers,
                options=self._spark_options,
                limit=planned.limit,
                starting=starting_options(starting),
                left_out_log=self._processing_log.of(query_id),
            )
        )

        async def close() -> None:
            self._parts.engine.close_push(query_id)

        columns = tuple(AnswerColumn(name=output.name, type=str(output.type)) for output in planned.value)
        return QueryAnswer(
            query_id=query_id,
            columns=columns,
            rows=_rows_of(pushed),
            close=close,
            ending=lambda: LIMIT_REACHED if pushed.has_reached_limit else COMPLETED,
        )

    def _registered(self, query_answer: QueryAnswer) -> QueryAnswer:
        """Registers a query of ours, so that /close-query can end it."""
        ended = asyncio.Event()
        query_id = query_answer.query_id or ""
        self._ends[query_id] = ended.set

        async def rows() -> AsyncIterator[list[list[SqlValue]]]:
            async for batch in query_answer.rows:
                yield batch
                if ended.is_set():
                    return

        async def close() -> None:
            self._ends.pop(query_id, None)
            await query_answer.close()

        return QueryAnswer(
            query_id=query_answer.query_id,
            columns=query_answer.columns,
            rows=rows(),
            close=close,
            ending=query_answer.ending,
        )

    def _new_id(self) -> str:
        return f"transient_{self._entropy.uuid()}"


async def _rows_of(pushed: PushedRows) -> AsyncIterator[list[list[SqlValue]]]:
    while (rows := await pushed.next_rows(_IDLE_S)) is not None:
        yield rows
