"""Turns a statement that changes something into its command, and does what follows. The steps go one way:

1. check: the statement is applied to the catalog on a thread, without effect (`applying.apply`, pure);
2. prepare: what its changes need outside is looked up and made: topics, schemas, changelogs, starting offsets;
3. decide: when all commands of the log are applied, it must still change something;
4. log: the command is written to the command topic, read back, and applied (`CommandEffects`);
5. follow: queries that it ends are waited for, and topics and files of what it drops are deleted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from odradek.pipelines.upgrade import UpgradeMode
from odradek.sql import changes
from odradek.sql.applying import apply
from odradek.sql.archives import query_archive
from odradek.sql.language import statements as language
from odradek.sql.language.rewriting import with_default_formats
from odradek.sql.language.statements import Statement
from odradek.sql.metastore.catalog import Catalog, Source
from odradek.sql.metastore.query_ids import check_query_id
from odradek.sql.planning import Plan
from odradek.sql.server import entities
from odradek.sql.server.archives import Archives
from odradek.sql.server.command_log.commands import SqlCommand
from odradek.sql.server.command_log.state import command_id
from odradek.sql.server.entities import Entity
from odradek.sql.server.parts import ServerParts
from odradek.sql.server.upgrades import JudgedUpgrade, Upgrades
from odradek.sql.upgrades import altered, mode_of, with_mode
from odradek.values.errors import SqlError

Properties = Mapping[str, str]
_QUERIES_END_S: Final = 60.0
"""A statement that ends queries waits for them at most this long; then it answers that they are still ending."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenUpgrade:
    """An upgrade of a query whose mode is chosen.

    `statement`: as it is written to the command topic.
    """

    statement: Statement
    mode: UpgradeMode
    judged: JudgedUpgrade

    def check(self, catalog: Catalog) -> None:
        """Raises SqlError: the query is not the one any more that was looked at."""
        if catalog.queries.get(self.judged.query.id) != self.judged.query:
            raise SqlError(
                f"{self.judged.query.id} was changed a moment ago", self.statement.position, "Try again."
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedCommand:
    """A command for which all that it needs outside is there. `checked`: its statement, and the catalog that this changes."""

    command: SqlCommand
    statement: Statement
    checked: tuple[Statement, Catalog]
    upgrade: ChosenUpgrade | None

    def decided(self, catalog: Catalog) -> SqlCommand | None:
        """Returns the command to write after all commands that the catalog is made of; None if it changes nothing. SqlError."""
        if self.upgrade is not None:
            self.upgrade.check(catalog)
        is_checked = self.checked[0] is self.statement and self.checked[1] is catalog
        changes_it = is_checked or bool(apply(catalog, self.statement, 0).changes)
        return self.command if changes_it else None


class CommandDistribution:
    """Writes commands. What they change is changed when they are read back, in `CommandEffects`."""

    def __init__(self, parts: ServerParts, archives: Archives, upgrades: Upgrades) -> None:
        self._parts = parts
        self._archives = archives
        self._upgrades = upgrades

    async def rebuild(self, statement: language.AlterQuery, properties: Properties) -> Entity:
        """Starts a query that rebuilds a source from its first records, into a topic of its own."""
        source, _ = altered(self._parts.catalog, statement)
        await self._parts.threads.run(
            apply, self._parts.catalog, statement, 0
        )  # all that is wrong with it is reported before topics are looked up
        rebuilding = await self._upgrades.rebuilding(statement, source)
        return await self.distribute(rebuilding, {**properties, "auto.offset.reset": "earliest"})

    async def archive_query(self, statement: language.CreateArchive, properties: Properties) -> Entity:
        """Runs the two statements of CREATE ARCHIVE AS SELECT in turn. Checks both before the first takes effect."""
        catalog = self._parts.catalog
        first = await self._parts.threads.run(apply, catalog, statement, 0)
        if not first.changes:
            return await self.distribute(statement, properties)
        await self._archives.check(statement, first)
        stream, archive = query_archive(catalog, statement)
        await self.distribute(stream, properties)
        written = await self.distribute(archive, properties)
        return {**written, "statementText": statement.text + ";"}

    async def distribute(self, statement: Statement, properties: Properties) -> Entity:
        """Checks a statement, makes its topics, and writes it to the command topic."""
        parts, identity = self._parts, command_id(statement)
        check_query_id(statement)
        statement = await parts.schemas.with_columns(with_default_formats(statement, properties))
        checked_against = parts.catalog
        first = await parts.threads.run(apply, checked_against, statement, 0)
        if not first.changes:
            status = {"status": "SUCCESS", "message": first.message, "queryId": None}
            return entities.status_entity(statement.text + ";", identity, status, -1)
        prepared = await self._prepared(statement, first, checked_against, properties)
        offset = await parts.commands.write(lambda: prepared.decided(parts.catalog))
        still_ending = await self._follow(first)
        status = parts.state.statuses.get(identity) or {"status": "SUCCESS", "message": first.message}
        if still_ending:
            message = (
                f"{', '.join(still_ending)} has not ended after {_QUERIES_END_S:.0f} s: it may still write."
            )
            status = {**status, "status": "EXECUTING", "message": message}
        text = statement.text if prepared.upgrade is None else prepared.upgrade.statement.text
        return entities.status_entity(text + ";", identity, status, -1 if offset is None else offset)

    async def _prepared(
        self, statement: Statement, first: changes.AppliedChange, catalog: Catalog, properties: Properties
    ) -> PreparedCommand:
        """Makes what the changes need outside. `catalog`: the one that the statement was checked against."""
        parts, identity = self._parts, command_id(statement)
        for source in _declared(first):
            await parts.topics.check_declared(source)
        await self._archives.check(statement, first)
        upgrade = await self._upgrade(statement, first)
        if upgrade is not None:
            statement = upgrade.statement
        complete = await parts.schemas.with_ids(statement, first)  # a refused schema must leave no topic
        for source in _declared(first):
            await parts.topics.ensure_declared(source)
        starting: dict[str, dict[int, int]] = {}
        for change in first.changes:
            if isinstance(change, changes.QueryStarted):
                starting = await self._ensure_sink(change.plan, upgrade, properties)
        command = SqlCommand(
            command_id=identity, statement=complete.text, properties=properties, starting=starting
        )
        return PreparedCommand(
            command=command, statement=complete, checked=(statement, catalog), upgrade=upgrade
        )

    async def _ensure_sink(
        self, planned: Plan, upgrade: ChosenUpgrade | None, properties: Properties
    ) -> dict[str, dict[int, int]]:
        """Makes the topics that a query writes to. Returns where it begins to read."""
        parts = self._parts
        assert planned.sink is not None
        starting = await parts.topics.starting(planned.sources, properties)
        if upgrade is not None:
            starting = upgrade.judged.starting(starting)
            await self._upgrades.prepare(upgrade.judged, upgrade.mode)
        like = parts.catalog.sources.get(planned.sink.name, planned.sources[0])
        await parts.topics.ensure_sink(planned.sink, like)
        return starting

    async def _follow(self, applied: changes.AppliedChange) -> list[str]:
        """Waits for the queries that a statement ends, then deletes topics and files. Returns the queries that still write."""
        parts = self._parts
        still_ending = await parts.engine.all_stopped(_ended_queries(applied), _QUERIES_END_S)
        for change in applied.changes:
            if isinstance(change, changes.SourceDropped) and change.delete_topic:
                await parts.views.forget(change.source.topic)
                await parts.topics.delete(change.source.topic)
                await parts.schemas.forget(change.source)
        await self._archives.delete_files(applied)
        return still_ending

    async def _upgrade(self, statement: Statement, first: changes.AppliedChange) -> ChosenUpgrade | None:
        """Returns the upgrade for a statement that changes a running query's; SqlError states why the query cannot continue."""
        match statement, first.changes:
            case (
                (language.AlterQuery() | language.CreateAsSelect()) as written,
                (changes.SourceCreated(replaces=source), *_),
            ) if source is not None:
                judged = await self._upgrades.judged(written, self._parts.catalog, source)
            case _:
                return None
        if judged is None:
            return None
        if isinstance(written, language.AlterQuery):
            mode = judged.chosen(mode_of(written), written)
            return ChosenUpgrade(statement=with_mode(written, mode), mode=mode, judged=judged)
        mode = judged.chosen(UpgradeMode.KEEP, written)
        return ChosenUpgrade(statement=written, mode=mode, judged=judged)


def _declared(applied: changes.AppliedChange) -> list[Source]:
    """Returns the sources that a statement declares with columns."""
    return [
        change.source
        for change in applied.changes
        if isinstance(change, changes.SourceCreated) and change.source.query_id is None
    ]


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
