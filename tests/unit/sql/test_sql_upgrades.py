"""ALTER … AS SELECT: which modes are possible, judged by what runs and what is to run, on a broker without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from odradek.client import Admin, NewTopic, Producer
from odradek.model.ids import TopicPartition
from odradek.pipelines.upgrade import UpgradeMode
from odradek.spark.options.sink_ids import group_of
from odradek.sql.applying import apply
from odradek.sql.changes import QueryStarted, QueryStopped, SourceCreated
from odradek.sql.language import parse, parse_one
from odradek.sql.language.statements import AlterQuery, CreateAsSelect
from odradek.sql.metastore.catalog import SqlCatalog, SqlSource
from odradek.sql.queries.builds import PersistentBuild, PlannedText
from odradek.sql.queries.channel import StartQuery
from odradek.sql.queries.engine import SqlEngine
from odradek.sql.server.checkpoints import QueryCheckpoints
from odradek.sql.server.rebuilding import SWAP_LAG, RebuildWatch
from odradek.sql.server.topics.source_topics import SourceTopics
from odradek.sql.server.upgrades import JudgedUpgrade, Upgrades
from odradek.sql.upgrades import next_topic, with_mode
from odradek.testing import LocalBroker
from odradek.values.errors import SqlError

SOURCES = (
    "CREATE STREAM s (id INT KEY, a STRING, b INT) WITH (KAFKA_TOPIC='s', VALUE_FORMAT='JSON');"
    "CREATE STREAM other (id INT KEY, a STRING, b INT) WITH (KAFKA_TOPIC='other', VALUE_FORMAT='JSON');"
    "CREATE TABLE t (id INT PRIMARY KEY, n STRING) WITH (KAFKA_TOPIC='t', VALUE_FORMAT='JSON');"
    "CREATE AGGREGATE FUNCTION best(v INT) RETURNS INT AS $$\n"
    "def start(): return 0\ndef add(state, v): return max(state, v)\ndef merge(x, y): return max(x, y)\n$$;"
)


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with LocalBroker() as broker:
        yield broker.address


@dataclass
class Ground:
    """A server whose engine is held: its queries are wanted, and no process is started."""

    topics: SourceTopics
    engine: SqlEngine
    catalog: SqlCatalog
    broker_settings: tuple[str, dict[str, str]]


def ground_with(servers: str, directory: Path, query: str, starting: dict[str, str] | None = None) -> Ground:
    engine = SqlEngine()
    engine.hold()
    catalog = SqlCatalog(allows_python=True)
    for number, statement in enumerate(parse(SOURCES + query)):
        applied = apply(catalog, statement, number)
        for change in applied.changes:
            if isinstance(change, QueryStarted):
                text = PlannedText.of(catalog, statement.text)
                engine.run(
                    StartQuery(
                        query_id=change.query.id,
                        name=f"sql.tests.{change.query.id}",
                        build=PersistentBuild(text=text),
                        servers=servers,
                        options={},
                        checkpoint=str(directory / change.query.id),
                        starting=starting or {},
                    )
                )
        catalog = applied.catalog
    return Ground(SourceTopics(servers, {}), engine, catalog, (servers, {}))


async def judged_of(ground: Ground, text: str) -> JudgedUpgrade:
    statement = parse_one(text)
    assert isinstance(statement, AlterQuery | CreateAsSelect)
    source = ground.catalog.source(statement.name)
    judged = await Upgrades(ground).judged(statement, ground.catalog, source)
    assert judged is not None
    return judged


def possible(judged: JudgedUpgrade) -> list[str]:
    return [verdict.mode.value for verdict in judged.verdicts if verdict.is_possible]


SUMS = "SELECT id, SUM(b) AS x FROM s GROUP BY id"


@pytest.mark.parametrize(
    ("before", "after", "modes"),
    [
        ("SELECT id, a FROM s", "SELECT id, a, b FROM s WHERE b > 1", ["keep", "carry"]),
        ("SELECT id, a FROM s", "SELECT s.id AS id, a, n FROM s JOIN t ON s.id = t.id", ["carry"]),
        ("SELECT id, a FROM s", "SELECT id, a FROM other", ["keep"]),
        (SUMS, SUMS, ["keep", "carry"]),
        (SUMS, SUMS + " HAVING SUM(b) > 3", ["keep", "carry"]),
        (SUMS, "SELECT id, SUM(b) AS x FROM s WHERE b > 1 GROUP BY id", ["keep", "carry"]),
        (SUMS, "SELECT id, MAX(b) AS x FROM s GROUP BY id", []),
        (SUMS, "SELECT id, SUM(b) AS x, COUNT(*) AS n FROM s GROUP BY id", []),
        (SUMS, "SELECT id, SUM(b) AS x FROM s WINDOW TUMBLING (SIZE 1 HOUR) GROUP BY id", []),
        (SUMS.replace("SUM", "best"), SUMS.replace("SUM", "best"), ["keep", "carry"]),
    ],
)
async def test_modes_are_judged_by_what_queries_keep(
    servers: str, tmp_path: Path, before: str, after: str, modes: list[str]
) -> None:
    kind = "TABLE" if "GROUP BY" in before else "STREAM"
    ground = ground_with(servers, tmp_path, f"CREATE {kind} o AS {before};")
    judged = await judged_of(ground, f"ALTER {kind} o AS {after}")
    assert possible(judged) == [*modes, "rebuild"]


async def test_a_function_that_is_another_one_now_keeps_no_state(servers: str, tmp_path: Path) -> None:
    query = SUMS.replace("SUM", "best")
    changed = "CREATE OR REPLACE AGGREGATE FUNCTION best(v INT) RETURNS INT AS $$\n" + (
        "def start(): return 9\ndef add(state, v): return min(state, v)\ndef merge(x, y): return min(x, y)\n$$;"
    )
    ground = ground_with(servers, tmp_path, f"CREATE TABLE o AS {query}; {changed}")
    assert possible(await judged_of(ground, f"ALTER TABLE o AS {query}")) == ["rebuild"]


async def test_what_is_not_possible_says_why_and_what_is(servers: str, tmp_path: Path) -> None:
    ground = ground_with(servers, tmp_path, "CREATE STREAM o AS SELECT id, a FROM s;")
    joined = "AS SELECT s.id AS id, a, n FROM s JOIN t ON s.id = t.id"
    altering, replacing = (
        parse_one(f"ALTER STREAM o {joined}"),
        parse_one(f"CREATE OR REPLACE STREAM o {joined}"),
    )
    assert isinstance(altering, AlterQuery)
    assert isinstance(replacing, CreateAsSelect)
    judged = await judged_of(ground, altering.text)
    assert judged.chosen(None, altering) is UpgradeMode.CARRY
    with pytest.raises(
        SqlError, match="cannot go on by keep: the operator 'join-1' with state is new"
    ) as refused:
        judged.chosen(UpgradeMode.KEEP, replacing)
    assert refused.value.hint == "ALTER STREAM O WITH (MODE='carry') AS SELECT … is possible."
    (_, _, rebuild) = judged.verdicts
    assert rebuild.notes == ("O is in the topic O.v2 from then on",)
    sums = ground_with(servers, tmp_path, f"CREATE TABLE o AS {SUMS};")
    largest = parse_one(f"ALTER TABLE o AS {SUMS.replace('SUM', 'MAX')}")
    assert isinstance(largest, AlterQuery)
    with pytest.raises(
        SqlError, match="by keep or carry: what aggregate-1 keeps of each key changes"
    ) as refused:
        (await judged_of(sums, largest.text)).chosen(None, largest)
    assert refused.value.hint == "ALTER TABLE O WITH (MODE='rebuild') AS SELECT … is possible."


async def test_known_topics_begin_where_they_began_and_new_ones_as_was_asked(
    servers: str, tmp_path: Path
) -> None:
    ground = ground_with(
        servers, tmp_path, "CREATE STREAM o AS SELECT id, a FROM s;", {"s": '{"s": {"0": 7, "1": 0}}'}
    )
    judged = await judged_of(
        ground,
        "ALTER STREAM o AS SELECT s.id AS id, s.a AS a FROM s JOIN other WITHIN 1 HOUR ON s.id = other.id",
    )
    assert judged.starting({"s": {0: 90, 1: 90}, "other": {0: 40}}) == {"s": {0: 7, 1: 0}, "other": {0: 40}}
    from_the_first = ground_with(servers, tmp_path, "CREATE STREAM o AS SELECT id, a FROM s;")
    judged = await judged_of(from_the_first, "ALTER STREAM o AS SELECT id, a FROM s WHERE b > 1")
    assert judged.starting({"s": {0: 90}}) == {}


async def test_carry_makes_topics_for_what_is_new(servers: str, tmp_path: Path) -> None:
    with Admin(servers) as admin:
        admin.create_topics([NewTopic(topic, 1) for topic in ("s", "t")])
    ground = ground_with(servers, tmp_path, "CREATE STREAM o AS SELECT id, a FROM s;")
    judged = await judged_of(ground, "ALTER STREAM o AS SELECT s.id AS id, a, n FROM s JOIN t ON s.id = t.id")
    upgrades = Upgrades(ground)
    await upgrades.prepare(judged, UpgradeMode.KEEP)
    with Admin(servers) as admin:
        before = set(admin.list_topics())
        await upgrades.prepare(judged, UpgradeMode.CARRY)
        (made,) = set(admin.list_topics()) - before
    assert "CSAS_O_4" in made
    assert "join-1" in made


def test_a_mode_changes_the_checkpoint_or_not() -> None:
    catalog = SqlCatalog(allows_python=True)
    for number, statement in enumerate(
        parse(SOURCES + "CREATE STREAM o AS SELECT id, a FROM s; PAUSE CSAS_O_4;")
    ):
        catalog = apply(catalog, statement, number).catalog
    written = parse_one("ALTER STREAM `O` AS SELECT id, a, b FROM s WHERE a = 'it''s'")
    assert isinstance(written, AlterQuery)
    for mode, carried_at in ((UpgradeMode.KEEP, None), (UpgradeMode.CARRY, 9)):
        text = with_mode(written, mode).text
        assert text == f"ALTER STREAM `O` WITH (MODE='{mode}') AS SELECT id, a, b FROM s WHERE a = 'it''s'"
        applied = apply(catalog, parse_one(text), 9)
        created, started = applied.changes
        assert isinstance(created, SourceCreated)
        assert isinstance(started, QueryStarted)
        assert (created.source.topic, created.source.carried_at) == ("O", carried_at)
        assert [column.name for column in created.source.columns] == ["ID", "A", "B"]
        assert (started.query.id, started.replaces, started.query.state) == ("CSAS_O_4", "CSAS_O_4", "paused")
    replaced = parse_one("CREATE OR REPLACE STREAM o AS SELECT id, a, b FROM s")
    assert apply(applied.catalog, replaced, 10).catalog.source("O").carried_at == 9


async def test_queries_that_are_read_again_start_when_all_is_read(servers: str, tmp_path: Path) -> None:
    ground = ground_with(servers, tmp_path, "CREATE STREAM o AS SELECT id, a FROM s; TERMINATE CSAS_O_4;")
    ground.engine.terminate("CSAS_O_4")
    ground.engine.release()
    await ground.engine.close()
    assert ground.engine.process_id is None


REBUILD = "ALTER STREAM o WITH (MODE='rebuild', KAFKA_TOPIC='O.v2') AS SELECT id, b FROM other"


def catalog_of(text: str) -> SqlCatalog:
    catalog = SqlCatalog(allows_python=True)
    for number, statement in enumerate(parse(SOURCES + text)):
        catalog = apply(catalog, statement, number).catalog
    return catalog


def test_a_rebuilt_query_runs_beside_the_one_before_and_takes_its_place() -> None:
    catalog = catalog_of("CREATE STREAM o AS SELECT id, a FROM s;" + REBUILD + ";")
    assert list(catalog.queries) == ["CSAS_O_4", "CSAS_O_5"]
    assert (catalog.source("O").topic, catalog.candidates["O"].topic) == ("O", "O.v2")
    swapped = apply(catalog, parse_one("ALTER STREAM o SWAP"), 6)
    created, stopped = swapped.changes
    assert isinstance(created, SourceCreated)
    assert isinstance(stopped, QueryStopped)
    assert stopped.query.id == "CSAS_O_4"
    source = swapped.catalog.source("O")
    assert (source.topic, source.query_id) == ("O.v2", "CSAS_O_5")
    assert [column.name for column in source.columns] == ["ID", "B"]
    assert (list(swapped.catalog.queries), list(swapped.catalog.candidates)) == (["CSAS_O_5"], [])
    assert next_topic(source) == "O.v3"


def test_a_rebuild_is_given_up_with_its_query() -> None:
    catalog = catalog_of("CREATE STREAM o AS SELECT id, a FROM s;" + REBUILD + "; TERMINATE CSAS_O_5;")
    assert (list(catalog.queries), list(catalog.candidates)) == (["CSAS_O_4"], [])
    assert catalog.source("O").topic == "O"


@pytest.mark.parametrize(
    "text",
    [
        "CREATE STREAM reader AS SELECT * FROM o",
        "CREATE ARCHIVE kept FROM o WITH (PATH='/kept')",
        "INSERT INTO o SELECT id, a FROM s",
        "ALTER STREAM o AS SELECT id, a FROM s WHERE id > 1",
        "CREATE OR REPLACE STREAM o AS SELECT id, a FROM s WHERE id > 1",
        REBUILD.replace("O.v2", "O.v3"),
        "DROP STREAM o",
    ],
)
def test_what_is_being_rebuilt_is_left_alone(text: str) -> None:
    catalog = catalog_of("CREATE STREAM o AS SELECT id, a FROM s;" + REBUILD + ";")
    with pytest.raises(SqlError, match="CSAS_O_5") as refused:
        apply(catalog, parse_one(text), 6)
    assert refused.value.hint in (
        "Wait, or write ALTER STREAM O SWAP, or TERMINATE CSAS_O_5.",
        "You need to terminate them before dropping it.",
    )


async def test_a_rebuild_needs_a_topic_that_is_not_there(servers: str, tmp_path: Path) -> None:
    with Admin(servers) as admin:
        admin.create_topics([NewTopic("O.v2", 1)])
    ground = ground_with(servers, tmp_path, "CREATE STREAM o AS SELECT id, a FROM s;")
    statement = parse_one("ALTER STREAM o WITH (MODE='rebuild') AS SELECT id, b FROM s")
    assert isinstance(statement, AlterQuery)
    upgrades, source = Upgrades(ground), ground.catalog.source("O")
    (_, _, rebuild) = (await judged_of(ground, statement.text)).verdicts
    assert rebuild.reasons == (
        "topic O.v2 is there already: delete it first, or name another one with KAFKA_TOPIC",
    )
    with pytest.raises(SqlError, match=r"topic O\.v2 is there already"):
        await upgrades.rebuilding(statement, source)
    with Admin(servers) as admin:
        admin.delete_topics(["O.v2"])
    made = await upgrades.rebuilding(statement, source)
    assert made.text == ("ALTER STREAM `O` WITH (MODE='rebuild', KAFKA_TOPIC='O.v2') AS SELECT id, b FROM s")


async def test_a_rebuilt_query_is_swapped_when_it_has_read_nearly_all(servers: str, tmp_path: Path) -> None:
    with Admin(servers) as admin:
        admin.create_topics([NewTopic("other", 2)])
    with Producer(servers) as producer:
        for number in range(SWAP_LAG + 5):
            producer.send("other", b"{}", partition=number % 2)
    ground = ground_with(servers, tmp_path, "CREATE STREAM o AS SELECT id, a FROM s;" + REBUILD + ";")
    swapped: list[str] = []

    async def swap_it(candidate: SqlSource) -> None:
        swapped.append(candidate.topic)
        ground.catalog = apply(ground.catalog, parse_one("ALTER STREAM o SWAP"), 6).catalog

    watch, candidate = RebuildWatch(ground, swap_it), ground.catalog.candidates["O"]

    async def is_behind_after(offset: int) -> int | None:
        with Admin(servers) as admin:
            admin.alter_group_offsets(
                group_of("sql.tests.CSAS_O_5.to-1"), {TopicPartition("other", 0): offset}
            )
        behind = await watch.behind(candidate)
        await watch.swap_what_has_caught_up()
        return behind

    assert await watch.behind(candidate) is None  # it does not run yet
    ground.engine.wanted["CSAS_O_5"].state = "RUNNING"
    assert await watch.behind(candidate) is None  # it has read nothing yet
    assert await is_behind_after(4) == SWAP_LAG + 1
    assert swapped == []
    assert await is_behind_after(5) == SWAP_LAG
    await watch.swap_what_has_caught_up()
    assert swapped == ["O.v2"]


def test_checkpoints_that_no_query_goes_on_with_are_removed(tmp_path: Path) -> None:
    checkpoints = QueryCheckpoints(tmp_path / "service")
    checkpoints.remove_all_but(set())  # there is no directory yet
    first, second, other = (
        checkpoints.directory_of(query_id, carried_at)
        for query_id, carried_at in (("CTAS_T_1", None), ("CTAS_T_1", 7), ("CTAS_T_12", None))
    )
    for place in (first, second, other):
        (place / "offsets").mkdir(parents=True)
    checkpoints.remove_other_versions("CTAS_T_1", second)
    assert sorted(tmp_path.glob("service/*")) == sorted([second, other])
    checkpoints.remove_all_but({second})
    assert list(tmp_path.glob("service/*")) == [second]
