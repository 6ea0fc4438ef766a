"""A state from a snapshot and the commands after it equals the state from the whole history, for any history."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from random import Random

import pytest

from odradek.model.errors import OdradekError
from odradek.sql.applying import apply
from odradek.sql.language.parsing import parse_one
from odradek.sql.metastore.catalog import Catalog
from odradek.sql.server.command_log.commands import SqlCommand
from odradek.sql.server.command_log.snapshot_records import SnapshotUnreadable
from odradek.sql.server.command_log.state import STATUSES_MAX, ServiceState
from odradek.sql.server.command_log.state_format import state_content, state_of
from odradek.values.schema_registry import SchemaRegistryTerms

REGISTRY = SchemaRegistryTerms(url="http://registry:8081", user="sql", password="secret-of-the-registry")
STREAMS, TABLES, TYPES, FUNCTIONS, ARCHIVES = (
    ("s1", "s2", "`s,1`"),
    ("t1", "t2"),
    ("a1", "a2"),
    ("f1", "f2"),
    ("r1",),
)
COLUMNS = (
    "k STRING KEY, a BIGINT",
    "k STRING KEY, a BIGINT, b STRUCT<x INT, `y z` ARRAY<DECIMAL(12, 3)>>",
    "k STRING KEY, a BIGINT, c a1, d MAP<STRING, a2>",
    "a BIGINT, t TIMESTAMP, h BYTES HEADER('h')",
)
OPTIONS = (
    "VALUE_FORMAT='JSON'",
    "FORMAT='AVRO'",
    "VALUE_FORMAT='DELIMITED', VALUE_DELIMITER='TAB', PARTITIONS=3, REPLICAS=1, RETENTION_MS=1000",
    "VALUE_FORMAT='JSON', TIMESTAMP='a', BAD='left-out'",
    "VALUE_FORMAT='JSON', WINDOW_TYPE='TUMBLING', WINDOW_SIZE='10 SECONDS'",
    "FORMAT='PROTOBUF', VALUE_SCHEMA_ID=7",
)


KINDS = (
    "CREATE STREAM",
    "CREATE OR REPLACE STREAM",
    "CREATE SOURCE TABLE",
    "CREATE TABLE",
    "INSERT INTO",
    "ALTER STREAM",
    "DROP STREAM",
    "DROP TABLE",
    "CREATE TYPE",
    "DROP TYPE",
    "CREATE FUNCTION",
    "CREATE AGGREGATE FUNCTION",
    "DROP FUNCTION",
    "CREATE ARCHIVE",
    "DROP ARCHIVE",
    "PAUSE",
    "RESUME",
    "TERMINATE",
)
TEMPLATES = (
    "CREATE STREAM {s} ({columns}) WITH (KAFKA_TOPIC='topic-{n}', {options})",
    "CREATE OR REPLACE STREAM {s} ({columns}, e{n} DOUBLE) WITH (KAFKA_TOPIC='topic-{n}', {options})",
    "CREATE SOURCE TABLE {t} (k STRING PRIMARY KEY, a BIGINT) WITH (KAFKA_TOPIC='topic-{n}', {options})",
    "CREATE TABLE {t} (k STRING PRIMARY KEY, a BIGINT) WITH (KAFKA_TOPIC='topic-{n}', {options})",
    "CREATE STREAM {s} AS SELECT * FROM {s2} WHERE a > {n}",
    "CREATE STREAM {s} AS SELECT k, {f}(a) AS a FROM {s2} EMIT CHANGES",
    "CREATE STREAM {s} AS SELECT k, CAST(NULL AS {type}) AS c, a FROM {s2} EMIT CHANGES",
    "CREATE OR REPLACE STREAM {s} AS SELECT *, {n} AS e{n} FROM {s2}",
    "CREATE TABLE {t} AS SELECT k, COUNT(*) AS a FROM {s} GROUP BY k EMIT CHANGES",
    "CREATE TABLE {t} AS SELECT k, COUNT(*) AS a FROM {s} WINDOW TUMBLING (SIZE {n} DAYS) GROUP BY k EMIT CHANGES",
    "INSERT INTO {s} SELECT * FROM {s2} WHERE a < {n}",
    "INSERT INTO {s} WITH (QUERY_ID='mine{n}') SELECT * FROM {s2}",
    "ALTER STREAM {s} ADD COLUMN e{n} STRING",
    "ALTER STREAM {s} WITH (MODE='keep') AS SELECT * FROM {s2} WHERE a < {n}",
    "ALTER TABLE {t} WITH (MODE='carry') AS SELECT k, COUNT(*) AS a FROM {s} WHERE a > {n} GROUP BY k EMIT CHANGES",
    "ALTER TABLE {t} WITH (MODE='rebuild') AS SELECT k, SUM(a) AS a FROM {s} GROUP BY k EMIT CHANGES",
    "ALTER TABLE {t} SWAP",
    "DROP STREAM {s}",
    "DROP STREAM IF EXISTS {s} DELETE TOPIC",
    "DROP TABLE {t}",
    "CREATE TYPE {type} AS STRUCT<x INT, y ARRAY<STRING>>",
    "CREATE TYPE {type} AS DECIMAL({n}, 0)",
    "DROP TYPE {type}",
    "CREATE FUNCTION {f}(a BIGINT) RETURNS BIGINT AS $$ a + {n} $$",
    "CREATE OR REPLACE FUNCTION {f}(a BIGINT) RETURNS BIGINT AS $$\ndef {f}(a):\n    return a * {n}\n$$",
    "CREATE FUNCTION {f}(a BIGINT) RETURNS {type} AS $$ None $$",
    "CREATE AGGREGATE FUNCTION {f}(a BIGINT) RETURNS BIGINT AS $$\ndef start(): return {n}\ndef add(s, a): return s + a\n"
    "def merge(a, b): return a + b\n$$",
    "DROP FUNCTION {f}",
    "CREATE ARCHIVE {r} FROM {s} WITH (PATH='/archive/{n}', EVERY='{n} MINUTES')",
    "CREATE ARCHIVE {r} FROM {s} WITH (PATH='s3://b/{n}', ENDPOINT='http://store', VALUE='RAW',"
    " PARTITION_BY='d=hour(timestamp)')",
    "DROP ARCHIVE {r}",
    "PAUSE ALL",
    "RESUME ALL",
    "TERMINATE ALL",
    "TERMINATE mine{n}",
    "TERMINATE {query}",
    "PAUSE {query}",
    "RESUME {query}",
)
QUERY_TEMPLATES = (
    "CREATE STREAM {s} (k STRING KEY, a BIGINT) WITH (KAFKA_TOPIC='topic-{n}', VALUE_FORMAT='JSON')",
    *(text for text in TEMPLATES if " AS SELECT" in text or "SWAP" in text),
)
"""They need several others before them, so they are drawn more often."""
BEGINNING = (
    "CREATE TYPE a1 AS STRUCT<x INT>",
    "CREATE TYPE a2 AS DECIMAL(4, 0)",
    "CREATE FUNCTION f1(a BIGINT) RETURNS BIGINT AS $$ a $$",
    "CREATE STREAM s1 (k STRING KEY, a BIGINT) WITH (KAFKA_TOPIC='topic-1', VALUE_FORMAT='JSON')",
)


def drawn(random: Random) -> str:
    """Returns a statement: what there is of each kind is filled in."""
    kind = random.choice(("CSAS_S1", "CSAS_S2", "CTAS_T1", "CTAS_T2", "INSERTQUERY", "ARCHIVE_R1"))
    return random.choice(TEMPLATES + 4 * QUERY_TEMPLATES).format(
        s=random.choice(STREAMS),
        s2=random.choice(STREAMS),
        t=random.choice(TABLES),
        type=random.choice(TYPES),
        f=random.choice(FUNCTIONS),
        r=random.choice(ARCHIVES),
        columns=random.choice(COLUMNS),
        options=random.choice(OPTIONS),
        n=random.randrange(10),
        query=f"{kind}_{2 * random.randrange(60) + 3}",
    )


def fresh() -> ServiceState:
    return ServiceState(catalog=Catalog(allows_python=True, registry=REGISTRY))


@dataclass
class History:
    """The commands that servers would have written: those that the state before them allows."""

    state: ServiceState = field(default_factory=fresh)
    commands: list[tuple[int, SqlCommand]] = field(default_factory=list)

    def write(self, text: str) -> bool:
        offset = 2 * len(self.commands) + 3  # a marker follows each command
        try:
            if not apply(self.state.catalog, parse_one(text), 0).changes:
                return False
        except OdradekError:
            return False
        command = SqlCommand(
            command_id=f"id/{text[:12]}", statement=text, starting={"topic-1": {0: offset, 3: 1}}
        )
        self.commands.append((offset, command))
        self.state.replay(offset, command)
        return True


def replayed(state: ServiceState, commands: Sequence[tuple[int, SqlCommand]]) -> ServiceState:
    for offset, command in commands:
        state.replay(offset, command)
    return state


def restored(state: ServiceState) -> ServiceState:
    return state_of(state_content(state), allows_python=True, registry=REGISTRY)


def assert_equal(first: ServiceState, second: ServiceState) -> None:
    """Compares all that a state has. Functions are compared by their statements and types: code has no equality."""
    ours, theirs = first.catalog, second.catalog
    for name in ("sources", "candidates", "queries", "archives", "types"):
        assert list(getattr(ours, name).items()) == list(getattr(theirs, name).items()), name
    assert _functions(ours) == _functions(theirs)
    assert [line.name for line in ours.functions.listed()] == [
        line.name for line in theirs.functions.listed()
    ]
    assert list(first.statuses.items()) == list(second.statuses.items())
    assert first.applied_count == second.applied_count
    assert list(first.ended_ids) == list(second.ended_ids)
    assert list(first.runs) == list(second.runs)
    for query_id, run in first.runs.items():
        other = second.runs[query_id]
        assert (run.text.statement, run.starting, run.carried_at, run.begun_at) == (
            other.text.statement,
            other.starting,
            other.carried_at,
            other.begun_at,
        )
        part, others = run.text.part, other.text.part
        assert (part.sources, part.types, part.registry) == (others.sources, others.types, others.registry)
        assert _functions(run.text.catalog()) == _functions(other.text.catalog())


def _functions(catalog: Catalog) -> list[object]:
    return [
        (name, made.statement, made.parameters, made.returns, [function.name for function in made.registered])
        for name, made in catalog.created_functions.items()
    ]


@cache
def history_of(seed: int, count: int) -> History:
    """Returns a history; tests do not change it."""
    random, history = Random(seed), History()
    for text in BEGINNING:
        assert history.write(text)
    for _ in range(count):
        history.write(drawn(random))
    return history


@pytest.mark.parametrize("seed", range(6))
def test_a_snapshot_and_the_rest_make_the_state_of_the_whole_history(seed: int) -> None:
    history, random = history_of(seed, 400), Random(seed)
    state, begin = fresh(), 0
    cuts = sorted(random.sample(range(len(history.commands) + 1), 3))
    for end in cuts:
        state, begin = restored(replayed(state, history.commands[begin:end])), end
    state = replayed(state, history.commands[begin:])
    assert_equal(state, history.state)
    assert state_content(state) == state_content(history.state)


def test_the_histories_have_statements_of_all_kinds() -> None:
    """Histories in which nearly all is refused would compare nothing."""
    written = [command.statement for seed in range(6) for _, command in history_of(seed, 400).commands]
    unused = [start for start in KINDS if not any(text.startswith(start) for text in written)]
    assert unused == []
    assert [
        mode for mode in ("keep", "carry", "rebuild") if not any(f"MODE='{mode}'" in text for text in written)
    ] == []
    assert any(text.endswith("SWAP") for text in written)


def test_what_a_query_meant_when_it_began_stays() -> None:
    """Its type and function are made again with another meaning, and its source gets a column: it keeps the first ones."""
    history = History()
    for text in (
        "CREATE TYPE a1 AS STRUCT<x INT>",
        "CREATE FUNCTION f1(a BIGINT) RETURNS a1 AS $$ None $$",
        "CREATE STREAM s1 (k STRING KEY, a BIGINT) WITH (KAFKA_TOPIC='t', FORMAT='AVRO')",
        "CREATE STREAM s2 AS SELECT k, f1(a) AS b, CAST(NULL AS a1) AS c FROM s1 EMIT CHANGES",
        "DROP TYPE a1",
        "CREATE TYPE a1 AS INT",
        "CREATE OR REPLACE FUNCTION f1(a BIGINT) RETURNS INT AS $$ a $$",
        "ALTER STREAM s1 ADD COLUMN e STRING",
    ):
        assert history.write(text)
    state = restored(history.state)
    assert_equal(state, history.state)
    part = state.runs["CSAS_S2_9"].text.part
    assert [column.name for column in part.sources["S1"].columns] == ["K", "A"]
    assert (str(part.types["A1"]), str(part.functions[0].returns)) == ("STRUCT<`X` INTEGER>",) * 2


def test_the_password_of_the_registry_is_in_no_snapshot_and_each_server_uses_its_own() -> None:
    history = History()
    assert history.write("CREATE STREAM s1 (k STRING KEY, a BIGINT) WITH (KAFKA_TOPIC='x', FORMAT='AVRO')")
    assert history.write("CREATE STREAM s2 AS SELECT * FROM s1")
    content = state_content(history.state)
    assert b"secret" not in content
    assert b"registry:8081" not in content
    other = replace(REGISTRY, password="another")
    state = state_of(content, allows_python=False, registry=other)
    formats = [source.value_format for source in state.catalog.sources.values()]
    assert [form.registry for form in formats] == [other, other]
    assert state.runs["CSAS_S2_5"].text.part.registry == other


def test_a_server_that_does_not_allow_the_functions_of_a_snapshot_refuses_it() -> None:
    history = History()
    assert history.write("CREATE FUNCTION f1(a BIGINT) RETURNS INT AS $$ a $$")
    with pytest.raises(SnapshotUnreadable, match=r"odradek\.sql\.python\.functions=true"):
        state_of(state_content(history.state), allows_python=False, registry=None)


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content.pop("runs"),
        lambda content: content["runs"].pop(),
        lambda content: content["catalog"].update(connectors=[]),
        lambda content: content["catalog"]["queries"][0].update(state="asleep"),
        lambda content: content["catalog"]["queries"][0].update(owner="me"),
        lambda content: content["shared"]["sources"].pop(),
        lambda content: content["shared"]["sources"][0].update(columns="none"),
        lambda content: content["shared"]["sources"][0]["columns"][0].update(type=7),
        lambda content: content["shared"]["sources"][0]["key_format"].pop("wrapped"),
    ],
)
def test_a_content_of_another_form_is_refused_in_one_line(change: object) -> None:
    history = History()
    assert history.write(
        "CREATE STREAM s1 (k STRING KEY, a BIGINT) WITH (KAFKA_TOPIC='x', VALUE_FORMAT='JSON')"
    )
    assert history.write("CREATE STREAM s2 AS SELECT * FROM s1")
    content = json.loads(state_content(history.state))
    change(content)  # type: ignore[operator]
    with pytest.raises(SnapshotUnreadable) as refused:
        state_of(json.dumps(content).encode(), allows_python=True, registry=None)
    assert "\n" not in str(refused.value)


def test_the_statuses_of_old_commands_are_forgotten() -> None:
    state = ServiceState()
    for number in range(STATUSES_MAX + 5):
        state.replay(number, SqlCommand(command_id=f"type/T{number}/create", statement="DROP TYPE none"))
    state.replay(9999, SqlCommand(command_id="type/T7/create", statement="CREATE TYPE t7 AS INT"))
    assert len(state.statuses) == STATUSES_MAX
    assert (next(iter(state.statuses)), state.statuses["type/T7/create"]["status"]) == (
        "type/T5/create",
        "SUCCESS",
    )
