"""What follows from commands and from a snapshot: the engine is to run the same queries in both cases."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.client.producer.aio import AsyncProducer
from odradek.sql.metastore.catalog import Catalog
from odradek.sql.queries.channel import StartQuery
from odradek.sql.queries.engine import SqlEngine
from odradek.sql.queries.tables import TableViews
from odradek.sql.server.checkpoints import QueryCheckpoints
from odradek.sql.server.command_effects import CommandEffects, QueryOrders
from odradek.sql.server.command_log import state
from odradek.sql.server.command_log.commands import SqlCommand
from odradek.sql.server.command_log.state import ServiceState
from odradek.sql.server.topics.processing_log import ServerProcessingLog
from odradek.sql.server.topics.source_topics import SourceTopics

COMMANDS = [
    "CREATE STREAM s (k STRING KEY, a BIGINT) WITH (KAFKA_TOPIC='s', VALUE_FORMAT='JSON')",
    "CREATE STREAM copied AS SELECT * FROM s",
    "CREATE TABLE counted AS SELECT k, COUNT(*) AS n FROM s GROUP BY k EMIT CHANGES",
    "INSERT INTO copied WITH (QUERY_ID='inserted') SELECT * FROM s WHERE a > 1",
    "CREATE ARCHIVE kept FROM s WITH (PATH='/archive/kept')",
    "PAUSE inserted",
    "ALTER TABLE counted WITH (MODE='carry') AS SELECT k, COUNT(*) AS n FROM s WHERE a > 0 GROUP BY k EMIT CHANGES",
    "TERMINATE CSAS_COPIED_1",
    "RESUME inserted",
    "PAUSE CTAS_COUNTED_2",
    "DROP ARCHIVE kept",
    "TERMINATE ALL",
    "CREATE STREAM again AS SELECT * FROM s",
    "INSERT INTO again WITH (QUERY_ID='inserted') SELECT * FROM s WHERE a > 2",
]


class EffectsOnAHeldEngine:
    """Commands take effect on an engine that starts no process."""

    def __init__(self) -> None:
        self.engine = SqlEngine()
        self.engine.hold()
        topics, producer = SourceTopics("x:1", {}), AsyncProducer("x:1")
        orders = QueryOrders(
            service_id="s",
            servers="x:1",
            settings={},
            spark_options={},
            checkpoints=QueryCheckpoints(Path("/checkpoints")),
            processing_log=ServerProcessingLog(None, "s", topics, producer),
        )
        self.catalogs: list[Catalog] = []
        self.effects = CommandEffects(ServiceState(), orders, self.engine, TableViews("x:1", {}, None))
        self.effects.on_catalog = self.catalogs.append

    def apply(self, begin: int, end: int) -> None:
        for offset in range(begin, end):
            text = COMMANDS[offset]
            self.effects.apply(
                offset, SqlCommand(command_id=text, statement=text, starting={"s": {0: offset}})
            )

    @property
    def wanted(self) -> dict[str, tuple[object, str]]:
        return {query_id: (query.order, query.state) for query_id, query in self.engine.wanted.items()}


@pytest.mark.parametrize("known", [0, 3, 6, 9])
@pytest.mark.parametrize("cut", range(0, len(COMMANDS) + 1, 2))
async def test_a_snapshot_makes_the_engine_run_what_the_commands_would(known: int, cut: int) -> None:
    """`known`: how many commands the server applied before; then it was behind, and gets the snapshot at `cut`."""
    whole, server = EffectsOnAHeldEngine(), EffectsOnAHeldEngine()
    whole.apply(0, cut)
    server.apply(0, min(known, cut))
    server.effects.restore(await whole.effects.content())
    assert server.wanted == whole.wanted
    assert server.catalogs[-1].sources.keys() == (whole.catalogs[-1].sources.keys() if cut else set())
    whole.apply(cut, len(COMMANDS))
    server.apply(cut, len(COMMANDS))
    assert server.wanted == whole.wanted


async def test_a_query_that_is_the_same_goes_on_undisturbed() -> None:
    whole, server = EffectsOnAHeldEngine(), EffectsOnAHeldEngine()
    whole.apply(0, 5)
    server.apply(0, 4)
    before = dict(server.engine.wanted)
    server.effects.restore(await whole.effects.content())
    assert all(server.engine.wanted[query_id] is query for query_id, query in before.items())
    assert server.engine.wanted.keys() - before.keys() == {"ARCHIVE_KEPT_4"}


async def test_a_query_does_not_go_on_from_where_another_with_its_id_has_ended() -> None:
    server = EffectsOnAHeldEngine()
    server.apply(0, 6)
    before = server.engine.wanted["INSERTED"].order
    server.apply(6, len(COMMANDS))
    after = server.engine.wanted["INSERTED"].order
    assert isinstance(before, StartQuery)
    assert isinstance(after, StartQuery)
    assert (before.name, before.checkpoint) == ("sql.s.INSERTED", "/checkpoints/INSERTED")
    assert (after.name, after.checkpoint) == ("sql.s.INSERTED.13", "/checkpoints/INSERTED.13")
    assert after.starting != before.starting


def test_ids_of_ended_queries_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "ENDED_IDS_MAX", 3)
    service = ServiceState()
    texts = [COMMANDS[0]]
    for number in range(5):
        texts += [f"INSERT INTO s WITH (QUERY_ID='q{number}') SELECT * FROM s", f"TERMINATE q{number}"]
    for offset, text in enumerate([*texts, "CREATE STREAM t AS SELECT * FROM s", "TERMINATE CSAS_T_11"]):
        assert service.replay(offset, SqlCommand(command_id=text, statement=text)) is not None
    assert list(service.ended_ids) == ["Q2", "Q3", "Q4"]
