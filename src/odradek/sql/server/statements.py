"""Runs each statement of /ksql: which part handles it, by its kind."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from odradek.pipelines.upgrade import UpgradeMode
from odradek.sql.language import statements as language
from odradek.sql.language.parsing import parse_one
from odradek.sql.language.rewriting import quoted
from odradek.sql.language.statements import Statement
from odradek.sql.metastore.catalog import Source
from odradek.sql.server.archives import Archives
from odradek.sql.server.assertions import Assertions
from odradek.sql.server.distribution import CommandDistribution
from odradek.sql.server.entities import Entity
from odradek.sql.server.inserts import Inserts
from odradek.sql.server.parts import ServerParts
from odradek.sql.server.questions import Questions
from odradek.sql.server.refusals import QUERY_ENDPOINT, RestRefusal
from odradek.sql.server.upgrades import Upgrades
from odradek.sql.upgrades import mode_of
from odradek.values.errors import SqlError

Properties = Mapping[str, str]


class Statements:
    """Dispatches each statement to the handler of its kind."""

    def __init__(self, parts: ServerParts) -> None:
        archives, upgrades, assertions = Archives(parts), Upgrades(parts), Assertions(parts)
        self._distribution = CommandDistribution(parts, archives, upgrades)
        self._questions = Questions(parts, archives, upgrades)
        self._inserts = Inserts(parts)
        self._handlers: Final[dict[type[Statement], Callable[[Any], Awaitable[Entity | None]]]] = {
            language.InsertValues: self._inserts.values,
            language.Describe: self._questions.describe,
            language.DescribeAll: self._questions.describe_all,
            language.DescribeArchive: self._questions.describe_archive,
            language.DescribeFunction: self._questions.describe_function,
            language.Explain: self._questions.explain,
            language.AssertTopic: assertions.topic,
            language.AssertSource: assertions.source,
            language.AssertSchema: assertions.schema,
            language.AssertValues: assertions.values,
        }

    async def run(self, statement: Statement, properties: Properties, variables: Properties) -> Entity | None:
        """Runs a statement; returns None for one without an answer, such as INSERT VALUES. SqlError."""
        match statement:
            case language.SelectStatement() | language.PrintTopic():
                raise RestRefusal(
                    QUERY_ENDPOINT,
                    "The following statement types should be issued to the websocket endpoint '/query':\n\tPRINT\n\tSELECT",
                    statement=statement.text,
                )
            case language.Show():
                return await self._questions.show(statement, properties, variables)
            case (
                language.SetProperty()
                | language.UnsetProperty()
                | language.DefineVariable()
                | language.UndefineVariable()
            ):
                return None  # of the session, which the client keeps
            case language.AlterQuery() if mode_of(statement) is UpgradeMode.REBUILD:
                return await self._distribution.rebuild(statement, properties)
            case language.CreateArchive(query=query) if query is not None:
                return await self._distribution.archive_query(statement, properties)
        handler = self._handlers.get(type(statement))
        if handler is not None:
            return await handler(statement)
        if isinstance(statement, _COMMANDS):
            return await self._distribution.distribute(statement, properties)
        raise SqlError(
            f"{' '.join(statement.text.split()[:2]).upper()} is not supported yet",
            statement.position,
            "docs/sql.md lists what is.",
        )

    async def swap(self, candidate: Source) -> None:
        """Puts the candidate of a rebuilt source in its place, for all servers: by a command. SqlError."""
        text = f"ALTER {candidate.kind.upper()} {quoted(candidate.name)} SWAP"
        await self.run(parse_one(text), {}, {})

    async def insert_json(self, target: str, row: Mapping[str, object]) -> None:
        """Writes a row of /inserts-stream. SqlError."""
        await self._inserts.json(target, row)


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
