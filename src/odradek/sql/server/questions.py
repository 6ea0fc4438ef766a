"""SHOW, DESCRIBE and EXPLAIN: statements that change nothing."""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import indent

from odradek.runtime.real_clock import SystemClock
from odradek.sql import changes
from odradek.sql.applying import apply
from odradek.sql.language import statements as language
from odradek.sql.language.parsing import parse_one
from odradek.sql.metastore.catalog import Catalog, PersistentQuery, Source
from odradek.sql.planning import explain, explained_plan, plan
from odradek.sql.server import entities
from odradek.sql.server.archives import Archives, described_archive
from odradek.sql.server.entities import Entity, entity
from odradek.sql.server.parts import ServerParts
from odradek.sql.server.properties import PROPERTIES, SETTABLE, plain_property
from odradek.sql.server.upgrades import Upgrades, explained
from odradek.sql.upgrades import altered, check_replacement, mode_of
from odradek.values.errors import SqlError

Properties = Mapping[str, str]


class Questions:
    """Answers SHOW, DESCRIBE, EXPLAIN and similar statements from the catalog, the engine and the brokers."""

    def __init__(self, parts: ServerParts, archives: Archives, upgrades: Upgrades) -> None:
        self._parts = parts
        self._archives = archives
        self._upgrades = upgrades
        self._clock = SystemClock()

    async def show(self, statement: language.Show, properties: Properties, variables: Properties) -> Entity:
        catalog, text = self._parts.catalog, statement.text + ";"
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
            case "queries" if statement.extended:
                run = self._parts.threads.run
                descriptions = [
                    await run(self._described_query, query) for _, query in sorted(catalog.queries.items())
                ]
                return entity("query_descriptions", text, queryDescriptions=descriptions)
            case "queries":
                queries = [
                    entities.listed_query(catalog, query, self._parts.health(query.id))
                    for _, query in sorted(catalog.queries.items())
                ]
                return entity("queries", text, queries=queries)
            case "archives":
                return self._archives.shown(text, self._parts.health)
            case "topics":
                topics = [
                    {"name": name, "replicaInfo": replicas}
                    for name, replicas in (await self._parts.topics.listed()).items()
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

    def _properties(self, properties: Properties) -> dict[str, object]:
        known = {
            **{option.key: option.default_text for option in PROPERTIES.options},
            **self._parts.shown_properties,
        }
        overridden = {plain_property(name): value for name, value in properties.items()}
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

    async def describe_archive(self, statement: language.DescribeArchive) -> Entity:
        return await self._archives.described(statement, self._parts.health)

    async def describe(self, statement: language.Describe) -> Entity:
        catalog = self._parts.catalog
        if statement.name not in catalog.sources and statement.name in catalog.archives:
            return await self.describe_archive(
                language.DescribeArchive(
                    name=statement.name,
                    extended=statement.extended,
                    text=statement.text,
                    position=statement.position,
                )
            )
        source = self._parts.catalog.source(statement.name, statement.position)
        described = await self._source_json(source, extended=statement.extended)
        return entity(
            "sourceDescription",
            statement.text + ";",
            sourceDescription=described,
        )

    async def describe_all(self, statement: language.DescribeAll) -> Entity:
        return await self._described(statement.kind, statement.text + ";", extended=statement.extended)

    async def _described(self, kind: str, text: str, *, extended: bool = True) -> Entity:
        described = [
            await self._source_json(source, extended=extended)
            for _, source in sorted(self._parts.catalog.sources.items())
            if source.kind == kind
        ]
        return entity("source_descriptions", text, sourceDescriptions=described)

    async def _source_json(self, source: Source, *, extended: bool) -> Entity:
        parts = self._parts
        healths = {query_id: parts.health(query_id) for query_id in parts.catalog.queries}
        if not extended:
            return entities.described_source(parts.catalog, source, healths, None)
        topic = await parts.topics.sizes(source.topic) or (0, 0)
        statistics = await parts.topics.statistics(source.topic, self._clock.wall_ms())
        errors, now_ms = await parts.error_statistics.of(source.topic), self._clock.wall_ms()
        return entities.described_source(
            parts.catalog,
            source,
            healths,
            topic,
            statistics="" if statistics is None else statistics.text,
            error_text=errors.text(now_ms),
            error_stats=errors.entities(parts.address, now_ms),
        )

    async def describe_function(self, statement: language.DescribeFunction) -> Entity:
        described = entities.described_function(self._parts.catalog.functions, statement.name)
        return entity("describe_function", statement.text + ";", **described)

    async def explain(self, statement: language.Explain) -> Entity:
        catalog = self._parts.catalog
        if statement.query_id is not None:
            query = catalog.query(statement.query_id, statement.position)
            described = await self._parts.threads.run(self._described_query, query)
        elif isinstance(statement.statement, language.AlterQuery):
            return await self._explain_alter(statement.statement, statement.text + ";")
        elif isinstance(statement.statement, language.CreateArchive):
            described = _explained_archive(catalog, statement.statement)
        else:
            assert statement.statement is not None
            planned = explained_plan(catalog, statement.statement)
            described = entities.described_plan(planned, "", statement.statement.text, None)
        return entity("queryDescription", statement.text + ";", queryDescription=described)

    def _described_query(self, query: PersistentQuery) -> Entity:
        """Describes a query that runs or is paused, with its plan and its last errors."""
        catalog, health = self._parts.catalog, self._parts.health(query.id)
        if query.fills_archive:
            described = described_archive(catalog.archives[query.sink], query.id, health)
        else:
            planned = plan(catalog, parse_one(query.text))
            described = entities.described_plan(planned, query.id, query.text, health)
        return {**described, "ksqlHostQueryStatus": {self._parts.address: health.state}}

    async def _explain_alter(self, statement: language.AlterQuery, text: str) -> Entity:
        catalog = self._parts.catalog
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


def _explained_archive(catalog: Catalog, statement: language.CreateArchive) -> Entity:
    """Explains an archive; a query's archive has the query's plan below its own."""
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
