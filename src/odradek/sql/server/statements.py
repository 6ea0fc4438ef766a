"""Runs each statement of /ksql, and makes its answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from textwrap import indent
from typing import Any, Final, Protocol

from odradek.client.producer.aio import AsyncProducer
from odradek.pipelines.upgrade import UpgradeMode
from odradek.runtime.real_clock import SystemClock
from odradek.sql import changes
from odradek.sql.applying import apply
from odradek.sql.archives import query_archive
from odradek.sql.catalog import Catalog, Source
from odradek.sql.language import statements as language
from odradek.sql.language.parsing import parse_one
from odradek.sql.language.rewriting import with_default_formats
from odradek.sql.language.statements import Statement
from odradek.sql.planning import explain, explained_plan, plan
from odradek.sql.queries.engine import SqlEngine
from odradek.sql.queries.expressions import constant
from odradek.sql.queries.schema_rows import learn_all
from odradek.sql.queries.source_rows import codec_of
from odradek.sql.queries.tables import TableViews
from odradek.sql.server import entities
from odradek.sql.server.archives import ArchiveGround, Archives, described_archive
from odradek.sql.server.assertions import AssertionGround, Assertions
from odradek.sql.server.beside import StatementThreads
from odradek.sql.server.command_log.command_topic import CommandTopic
from odradek.sql.server.command_log.commands import SqlCommand
from odradek.sql.server.command_log.state import ServiceState, command_id
from odradek.sql.server.entities import Entity, QueryHealth, entity
from odradek.sql.server.properties import PROPERTIES, SETTABLE, plain_property
from odradek.sql.server.refusals import QUERY_ENDPOINT, RestRefusal
from odradek.sql.server.upgrades import JudgedUpgrade, Upgrades, explained
from odradek.sql.upgrades import altered, check_replacement, mode_of, with_mode
from odradek.values.errors import SqlError, nearest
from odradek.values.row_codec import UnreadableRecord, of_json
from odradek.values.types import BIGINT

Given = Mapping[str, str]
_QUERIES_END_S: Final = 60.0
"""A statement that ends queries waits for them at most so long; then it says that they are still ending."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenUpgrade:
    """`statement`: as it is written to the command topic."""

    statement: Statement
    mode: UpgradeMode
    judged: JudgedUpgrade

    def check(self, catalog: Catalog) -> None:
        """Raises SqlError: the query is not the one any more that was looked at."""
        if catalog.queries.get(self.judged.query.id) != self.judged.query:
            raise SqlError(
                f"{self.judged.query.id} was changed a moment ago", self.statement.position, "Try again."
            )


class StatementGround(AssertionGround, ArchiveGround, Protocol):
    """The parts of the server that statements need."""

    @property
    def state(self) -> ServiceState: ...

    @property
    def commands(self) -> CommandTopic: ...

    @property
    def views(self) -> TableViews: ...

    @property
    def engine(self) -> SqlEngine: ...

    @property
    def threads(self) -> StatementThreads: ...

    @property
    def producer(self) -> AsyncProducer: ...

    @property
    def shown_properties(self) -> dict[str, str]:
        """The server's own properties, for SHOW PROPERTIES."""

    async def starting(
        self, sources: tuple[Source, ...], properties: Mapping[str, str]
    ) -> dict[str, dict[int, int]]: ...


def _still_changes(statement: Statement, catalog: Catalog, checked: tuple[Statement, Catalog]) -> bool:
    """Tells whether it changes the present catalog. `checked`: a statement that changes a catalog. Raises SqlError."""
    is_checked = checked[0] is statement and checked[1] is catalog
    return is_checked or bool(apply(catalog, statement, 0).changes)


class Statements:
    """`server`: the catalog, the brokers, the engine."""

    def __init__(self, server: StatementGround) -> None:
        self._server = server
        assertions = Assertions(server)
        self._clock = SystemClock()
        self._archives = Archives(server)
        self._upgrades = Upgrades(server)
        self._handlers: Final[dict[type[Statement], Callable[[Any], Awaitable[Entity | None]]]] = {
            language.InsertValues: self._insert_values,
            language.Describe: self._describe,
            language.DescribeAll: self._describe_all,
            language.DescribeArchive: self._describe_archive,
            language.DescribeFunction: self._describe_function,
            language.Explain: self._explain,
            language.AssertTopic: assertions.topic,
            language.AssertSource: assertions.source,
            language.AssertSchema: assertions.schema,
            language.AssertValues: assertions.values,
        }

    async def run(self, statement: Statement, properties: Given, variables: Given) -> Entity | None:
        """Runs a statement; returns None for one without an answer, such as INSERT VALUES. SqlError."""
        match statement:
            case language.SelectStatement() | language.PrintTopic():
                raise RestRefusal(
                    QUERY_ENDPOINT,
                    "The following statement types should be issued to the websocket endpoint '/query':\n\tPRINT\n\tSELECT",
                    statement=statement.text,
                )
            case language.Show():
                return await self._show(statement, properties, variables)
            case (
                language.SetProperty()
                | language.UnsetProperty()
                | language.DefineVariable()
                | language.UndefineVariable()
            ):
                return None  # of the session, which the client keeps
            case language.AlterQuery() if mode_of(statement) is UpgradeMode.REBUILD:
                return await self._rebuild(statement, properties)
            case language.CreateArchive(query=query) if query is not None:
                return await self._archive_query(statement, properties)
        handler = self._handlers.get(type(statement))
        if handler is not None:
            return await handler(statement)
        if isinstance(statement, _COMMANDS):
            return await self._distribute(statement, properties)
        raise SqlError(
            f"{' '.join(statement.text.split()[:2]).upper()} is not supported yet",
            statement.position,
            "docs/sql.md lists what is.",
        )

    # ---- commands

    async def _rebuild(self, statement: language.AlterQuery, properties: Given) -> Entity:
        """Starts a query that rebuilds a source from its first records, into a topic of its own."""
        source, _ = altered(self._server.catalog, statement)
        await self._server.threads.run(
            apply, self._server.catalog, statement, 0
        )  # all that is wrong with it is said before topics are looked up
        rebuilding = await self._upgrades.rebuilding(statement, source)
        return await self._distribute(rebuilding, {**properties, "auto.offset.reset": "earliest"})

    async def _archive_query(self, statement: language.CreateArchive, properties: Given) -> Entity:
        """Runs the two statements of CREATE ARCHIVE AS SELECT in turn. Checks both before the first takes effect."""
        catalog = self._server.catalog
        first = await self._server.threads.run(apply, catalog, statement, 0)
        if not first.changes:
            return await self._distribute(statement, properties)
        await self._archives.check(statement, first)
        stream, archive = query_archive(catalog, statement)
        await self._distribute(stream, properties)
        made = await self._distribute(archive, properties)
        return {**made, "statementText": statement.text + ";"}

    async def _distribute(self, statement: Statement, properties: Given) -> Entity:
        """Checks a statement, makes its topics, and writes it to the command topic."""
        server, identity = self._server, command_id(statement)
        statement = await server.schemas.with_columns(with_default_formats(statement, properties))
        checked_against = server.catalog
        first = await server.threads.run(apply, checked_against, statement, 0)
        if not first.changes:
            status = {"status": "SUCCESS", "message": first.message, "queryId": None}
            return entities.status_entity(statement.text + ";", identity, status, -1)
        starting: dict[str, dict[int, int]] = {}
        declared = [
            change.source
            for change in first.changes
            if isinstance(change, changes.SourceCreated) and change.source.query_id is None
        ]
        for source in declared:
            await server.topics.check_declared(source)
        await self._archives.check(statement, first)
        upgrade = await self._upgrade(statement, first)
        if upgrade is not None:
            statement = upgrade.statement
        complete = await server.schemas.with_ids(statement, first)  # a refused schema leaves no topic behind
        for change in first.changes:
            match change:
                case changes.SourceCreated(source=source) if source.query_id is None:
                    await server.topics.ensure_declared(source)
                case changes.QueryStarted(plan=planned):
                    assert planned.sink is not None
                    starting = await server.starting(planned.sources, properties)
                    if upgrade is not None:
                        starting = upgrade.judged.starting(starting)
                        await self._upgrades.prepare(upgrade.judged, upgrade.mode)
                    like = server.catalog.sources.get(planned.sink.name, planned.sources[0])
                    await server.topics.ensure_sink(planned.sink, like)

        def decide() -> SqlCommand | None:
            if upgrade is not None:
                upgrade.check(server.catalog)
            return (
                SqlCommand(
                    command_id=identity,
                    statement=complete.text,
                    properties=properties,
                    starting=starting,
                )
                if _still_changes(complete, server.catalog, (statement, checked_against))
                else None
            )

        offset = await server.commands.write(decide)
        still_ending = await self._follow(first)
        status = server.state.statuses.get(identity) or {"status": "SUCCESS", "message": first.message}
        if still_ending:
            message = (
                f"{', '.join(still_ending)} has not ended after {_QUERIES_END_S:.0f} s: it may still write."
            )
            status = {**status, "status": "EXECUTING", "message": message}
        return entities.status_entity(
            statement.text + ";", identity, status, -1 if offset is None else offset
        )

    async def _follow(self, applied: changes.AppliedChange) -> list[str]:
        """Waits for the queries that a statement ends, then deletes topics and files. Returns the queries that still write."""
        server = self._server
        still_ending = await server.engine.all_stopped(_ended_queries(applied), _QUERIES_END_S)
        for change in applied.changes:
            if isinstance(change, changes.SourceDropped) and change.delete_topic:
                await server.views.forget(change.source.topic)
                await server.topics.delete(change.source.topic)
                await server.schemas.forget(change.source)
        await self._archives.delete_files(applied)
        return still_ending

    async def _upgrade(self, statement: Statement, first: changes.AppliedChange) -> ChosenUpgrade | None:
        """Returns the upgrade for a statement that changes a running query's; SqlError states why the query cannot continue."""
        match statement, first.changes:
            case (
                (language.AlterQuery() | language.CreateAsSelect()) as written,
                (changes.SourceCreated(replaces=source), *_),
            ) if source is not None:
                judged = await self._upgrades.judged(written, self._server.catalog, source)
            case _:
                return None
        if judged is None:
            return None
        if isinstance(written, language.AlterQuery):
            mode = judged.chosen(mode_of(written), written)
            return ChosenUpgrade(statement=with_mode(written, mode), mode=mode, judged=judged)
        mode = judged.chosen(UpgradeMode.KEEP, written)
        return ChosenUpgrade(statement=written, mode=mode, judged=judged)

    # ---- inserts

    async def _insert_values(self, statement: language.InsertValues) -> None:
        source = self._server.catalog.source(statement.target, statement.position)
        names = statement.columns or tuple(
            column.name for column in source.columns if column.role != "headers"
        )
        if len(names) != len(statement.values):
            raise SqlError(
                f"Expected a value for each column. Expected columns: {', '.join(names)}. Got {len(statement.values)} values",
                statement.position,
            )
        values: dict[str, Any] = {}
        timestamp_ms: int | None = None
        for name, value in zip(names, statement.values, strict=True):
            if name == "ROWTIME":
                timestamp_ms = constant(value, BIGINT)
                continue
            column = source.column(name)
            if column is None:
                known = [column.name for column in source.columns]
                raise SqlError(
                    f"Column name `{name}` does not exist.", statement.position, nearest(name, known)
                )
            values[name] = constant(value, column.type)
        await self._write(source, values, timestamp_ms)

    async def insert_json(self, target: str, row: Mapping[str, Any]) -> None:
        """A row of /inserts-stream. SqlError."""
        quoted = target.startswith("`") and target.endswith("`")
        source = self._server.catalog.source(target.strip("`") if quoted else target.upper())
        by_name = {column.name: column for column in source.columns}
        values: dict[str, Any] = {}
        for written, value in row.items():
            name = written.strip("`") if written.startswith("`") else written.upper()
            column = by_name.get(name) or by_name.get(written)
            if column is None:
                raise SqlError(f"Column name `{name}` does not exist.", hint=nearest(name, by_name))
            try:
                values[column.name] = of_json(value, column.type)
            except (UnreadableRecord, ValueError, ArithmeticError) as error:
                raise SqlError(
                    f"Can't coerce a field of type {type(value).__name__} into type {column.type}: {error}"
                ) from error
        await self._write(source, values, None)

    async def _write(self, source: Source, values: Mapping[str, Any], timestamp_ms: int | None) -> None:
        if source.read_only:
            raise SqlError(f"Cannot insert values into read-only {source.kind}: {source.name}")
        if source.window is not None:
            raise SqlError("Cannot insert values into windowed stream/table!")
        key_codec = codec_of(
            tuple((column.name, column.type) for column in source.key), source.key_format, is_key=True
        )
        value_codec = codec_of(
            tuple((column.name, column.type) for column in source.value), source.value_format, is_key=False
        )
        await learn_all((key_codec, value_codec), ((), ()))
        keys = [values.get(column.name) for column in source.key]
        if source.is_table and None in keys:
            raise SqlError(
                f"Failed to insert values into '{source.name}'. Value for primary key column(s) is required for tables"
            )
        content = [values.get(column.name) for column in source.value]
        stamp = source.timestamp
        if timestamp_ms is None and stamp is not None and isinstance(values.get(stamp.name), int):
            timestamp_ms = values[stamp.name]
        await self._server.producer.send_and_wait(
            source.topic,
            value_codec.encode(content),
            key=None if all(part is None for part in keys) else key_codec.encode(keys),
            timestamp_ms=timestamp_ms,
        )

    # ---- questions

    async def _show(self, statement: language.Show, properties: Given, variables: Given) -> Entity:
        catalog, text = self._server.catalog, statement.text + ";"
        match statement.what:
            case "streams" | "tables":
                if statement.extended:
                    return await self._described(statement.what.removesuffix("s"), text)
                listed = [
                    entities.listed_source(source)
                    for _, source in sorted(catalog.sources.items())
                    if source.kind + "s" == statement.what
                ]
                return entity(statement.what, text, **{statement.what: listed})
            case "queries":
                queries = [
                    entities.listed_query(catalog, query, self._health(query.id))
                    for _, query in sorted(catalog.queries.items())
                ]
                return entity("queries", text, queries=queries)
            case "archives":
                return self._archives.shown(text, self._health)
            case "topics":
                topics = [
                    {"name": name, "replicaInfo": replicas}
                    for name, replicas in (await self._server.topics.listed()).items()
                    if statement.include_hidden or not name.startswith("_")
                ]
                return entity("kafka_topics", text, topics=topics)
            case "functions":
                functions = [
                    {"name": line.name, "type": line.kind, "category": line.category}
                    for line in catalog.functions.listed()
                ]
                return entity("function_names", text, functions=functions)
            case "types":
                types = {name: kind.schema_json() for name, kind in sorted(catalog.types.items())}
                return entity("type_list", text, types=types)
            case "properties":
                return entity("properties", text, **self._properties(properties))
            case "variables":
                shown = [{"name": name, "value": value} for name, value in sorted(variables.items())]
                return entity("variables", text, variables=shown)
        raise SqlError(
            "connectors are not supported", statement.position, "Use `odradek archive`, or Kafka Connect."
        )

    def _properties(self, given: Given) -> dict[str, Any]:
        known = {
            **PROPERTIES,
            **self._server.shown_properties,
        }
        overridden = {plain_property(name): value for name, value in given.items()}
        rows = [
            {
                "name": name,
                "scope": "KSQL",
                "value": overridden.get(name, value),
                "editable": name in SETTABLE,
            }
            for name, value in sorted(known.items())
        ]
        return {
            "properties": rows,
            "overwrittenProperties": sorted(overridden),
            "defaultProperties": sorted(set(known) - set(overridden)),
        }

    def _health(self, query_id: str) -> QueryHealth:
        return QueryHealth.of(self._server.engine.wanted.get(query_id))

    async def _describe_archive(self, statement: language.DescribeArchive) -> Entity:
        return await self._archives.described(statement, self._health)

    async def _describe(self, statement: language.Describe) -> Entity:
        catalog = self._server.catalog
        if statement.name not in catalog.sources and statement.name in catalog.archives:
            return await self._describe_archive(
                language.DescribeArchive(
                    name=statement.name,
                    extended=statement.extended,
                    text=statement.text,
                    position=statement.position,
                )
            )
        source = self._server.catalog.source(statement.name, statement.position)
        described = await self._source_json(source, extended=statement.extended)
        return entity(
            "sourceDescription",
            statement.text + ";",
            sourceDescription=described,
            clusterStatistics=[],
            clusterErrorStats=[],
        )

    async def _describe_all(self, statement: language.DescribeAll) -> Entity:
        return await self._described(statement.kind, statement.text + ";", extended=statement.extended)

    async def _described(self, kind: str, text: str, *, extended: bool = True) -> Entity:
        described = [
            await self._source_json(source, extended=extended)
            for _, source in sorted(self._server.catalog.sources.items())
            if source.kind == kind
        ]
        return entity("source_descriptions", text, sourceDescriptions=described)

    async def _source_json(self, source: Source, *, extended: bool) -> Entity:
        topics, topic, said = self._server.topics, None, ""
        if extended:
            topic = await topics.sizes(source.topic) or (0, 0)
            statistics = await topics.statistics(source.topic, self._clock.wall_ms())
            said = "" if statistics is None else statistics.text
        healths = {query_id: self._health(query_id) for query_id in self._server.catalog.queries}
        return entities.described_source(self._server.catalog, source, healths, topic, said)

    async def _describe_function(self, statement: language.DescribeFunction) -> Entity:
        described = entities.described_function(self._server.catalog.functions, statement.name)
        return entity("describe_function", statement.text + ";", **described)

    async def _explain(self, statement: language.Explain) -> Entity:
        catalog = self._server.catalog
        if statement.query_id is not None:
            query = catalog.query(statement.query_id, statement.position)
            health = self._health(query.id)
            if query.fills_archive:
                return self._archives.explained(query, health, statement)
            planned = plan(catalog, parse_one(query.text))
            described = entities.described_plan(planned, query.id, query.text, health)
        elif isinstance(statement.statement, language.AlterQuery):
            return await self._explain_alter(statement.statement, statement.text + ";")
        elif isinstance(statement.statement, language.CreateArchive):
            described = _explained_archive(catalog, statement.statement)
        else:
            assert statement.statement is not None
            planned = explained_plan(catalog, statement.statement)
            described = entities.described_plan(planned, "", statement.statement.text, None)
        return entity("queryDescription", statement.text + ";", queryDescription=described)

    async def _explain_alter(self, statement: language.AlterQuery, text: str) -> Entity:
        catalog = self._server.catalog
        source, query = altered(catalog, statement)
        mode_of(statement)
        planned = plan(catalog, statement)
        assert planned.sink is not None
        columns_change = None
        try:
            check_replacement(source, planned.sink, statement)
        except SqlError as error:
            columns_change = error.message
        judged = await self._upgrades.judged(statement, catalog, source, columns_change)
        if judged is None:
            raise SqlError(f"{query.id} does not run", statement.position)
        return explained(statement, text, judged, planned)


def _ended_queries(applied: changes.AppliedChange) -> list[str]:
    """Returns the ids of the queries that a statement ends, pauses or replaces."""
    ended: list[str] = []
    for change in applied.changes:
        match change:
            case changes.QueryStopped(query=query) | changes.QueryPaused(query=query):
                ended.append(query.id)
            case changes.QueryStarted(replaces=replaced) if replaced is not None:
                ended.append(replaced)
    return ended


def _explained_archive(catalog: Catalog, statement: language.CreateArchive) -> Entity:
    """Explains an archive; that of a query has the query's plan below the archive's."""
    applied = apply(catalog, statement, 0)
    created = next((change for change in applied.changes if isinstance(change, changes.ArchiveCreated)), None)
    if created is None:
        raise SqlError(applied.message, statement.position)
    described = described_archive(created.archive, "", None)
    for change in applied.changes:
        if isinstance(change, changes.QueryStarted):
            described["executionPlan"] += "\n" + indent(explain(change.plan), "      ")
            described["sources"] = [source.name for source in change.plan.sources]
    return {**described, "statementText": statement.text}


_COMMANDS: Final = (
    language.CreateSource,
    language.CreateAsSelect,
    language.CreateArchive,
    language.InsertIntoSelect,
    language.DropArchive,
    language.DropSource,
    language.AlterSource,
    language.AlterQuery,
    language.AlterSwap,
    language.CreateType,
    language.DropType,
    language.CreateFunction,
    language.DropFunction,
    language.QueryControl,
)
