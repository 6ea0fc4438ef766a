"""A server on a broker, without Spark: statements, inserts, pull queries, simple push queries, a restart."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.sql.running_server import sql_server

from odradek.client import Admin, ConfigResource, NewTopic, Producer
from odradek.sql.rest_client import RestClient, ServerRefusal
from odradek.testing import LocalBroker

EARLIEST = {"auto.offset.reset": "earliest"}


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with LocalBroker() as broker:
        yield broker.address


@pytest.fixture(scope="module")
def client(servers: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestClient]:
    with sql_server(servers, "tests", tmp_path_factory.mktemp("sql")) as client:
        yield client


def test_an_extended_description_says_how_many_records_come_and_when_the_last_came(
    client: RestClient, servers: str
) -> None:
    def text_of() -> str:
        extended = client.execute("DESCRIBE described EXTENDED;")[0]["sourceDescription"]
        assert client.execute("DESCRIBE described;")[0]["sourceDescription"]["statistics"] == ""
        return str(extended["statistics"])

    client.execute(
        "CREATE STREAM described (a INT) WITH (KAFKA_TOPIC='described', VALUE_FORMAT='JSON', PARTITIONS=2);"
    )
    assert text_of() == "messages-per-sec: 0.00 total-messages: 0"
    with Producer(servers) as producer:
        producer.send("described", b"{}", partition=0, timestamp_ms=5)
        producer.send("described", b"{}", partition=1, timestamp_ms=1_000)
    assert text_of() == "messages-per-sec: 0.00 total-messages: 2 last-message: 1970-01-01T00:00:01.000Z"
    client.execute(
        "INSERT INTO described VALUES (1); INSERT INTO described VALUES (2); INSERT INTO described VALUES (3);"
    )
    rate, total, last = re.fullmatch(
        r"messages-per-sec: (\S+) total-messages: (\d+) last-message: (\S+)", text_of()
    ).groups()  # type: ignore[union-attr]
    assert (rate, total) == ("0.05", "5")
    assert last > "2026"


def test_a_stream_is_created_filled_and_read(client: RestClient) -> None:
    created, described, shown = client.execute(
        "CREATE STREAM orders (customer STRING KEY, item STRING, amount DOUBLE, at TIMESTAMP)"
        " WITH (KAFKA_TOPIC='orders', VALUE_FORMAT='JSON', PARTITIONS=1);"
        " DESCRIBE orders; SHOW STREAMS;"
    )
    assert created["commandStatus"]["status"] == "SUCCESS"
    assert created["commandId"] == "stream/`ORDERS`/create"
    assert [field["name"] for field in described["sourceDescription"]["fields"]] == [
        "CUSTOMER",
        "ITEM",
        "AMOUNT",
        "AT",
    ]
    assert {
        "type": "STREAM",
        "name": "ORDERS",
        "topic": "orders",
        "keyFormat": "KAFKA",
        "valueFormat": "JSON",
        "isWindowed": False,
    } in shown["streams"]
    assert (
        client.execute(
            "INSERT INTO orders VALUES ('ann', 'tea', 2, '2021-01-01T00:00:00');"
            "INSERT INTO orders (customer, item) VALUES ('bob', 'cup');"
            "INSERT INTO orders (rowtime, customer, item, amount) VALUES (5, 'ann', 'pot', 3.5);"
        )
        == []
    )
    with client.query("SELECT * FROM orders;") as query:
        assert query.query_id is None
        assert sorted(query, key=str) == sorted(
            [
                ["ann", "tea", 2.0, "2021-01-01T00:00:00.000"],
                ["bob", "cup", None, None],
                ["ann", "pot", 3.5, None],
            ],
            key=str,
        )
    with client.query(
        "SELECT item AS what, rowtime FROM orders o WHERE o.amount >= 2 AND customer = 'ann' AND item = 'pot'"
        " EMIT CHANGES LIMIT 1;",
        properties=EARLIEST,
    ) as query:
        assert query.columns == (("WHAT", "STRING"), ("ROWTIME", "BIGINT"))
        assert list(query) == [["pot", 5]]


def test_sources_are_altered_replaced_and_explained(client: RestClient, servers: str) -> None:
    made = client.execute(
        "CREATE SOURCE STREAM read_only (a INT) WITH (KAFKA_TOPIC='read-only', VALUE_FORMAT='JSON', PARTITIONS=1);"
        " CREATE STREAM growing (k INT KEY, a INT) WITH (KAFKA_TOPIC='growing', VALUE_FORMAT='JSON', PARTITIONS=3,"
        " RETENTION_MS=86400000, CLEANUP_POLICY='compact, delete');"
        " CREATE STREAM IF NOT EXISTS growing (b INT) WITH (KAFKA_TOPIC='x', VALUE_FORMAT='JSON', PARTITIONS=1);"
        " ALTER STREAM growing ADD COLUMN b STRING;"
        " CREATE OR REPLACE STREAM growing (k INT KEY, a INT, b STRING, c DOUBLE)"
        " WITH (KAFKA_TOPIC='growing', VALUE_FORMAT='JSON');"
    )
    assert [entity["commandStatus"]["status"] for entity in made] == ["SUCCESS"] * 5
    with Admin(servers) as admin:
        resource = ConfigResource.topic("growing")
        settings = admin.describe_configs([resource])[resource]
    assert (settings["retention.ms"].value, settings["cleanup.policy"].value) == (
        "86400000",
        "compact,delete",
    )
    described, all_streams, explained = client.execute(
        "DESCRIBE growing EXTENDED; DESCRIBE STREAMS EXTENDED;"
        " EXPLAIN SELECT a, COUNT(*) AS n FROM growing GROUP BY a EMIT CHANGES;"
    )
    description = described["sourceDescription"]
    assert [field["name"] for field in description["fields"]] == ["K", "A", "B", "C"]
    assert (description["partitions"], description["replication"], description["extended"]) == (3, 1, True)
    assert "GROWING" in [source["name"] for source in all_streams["sourceDescriptions"]]
    plan = explained["queryDescription"]
    assert [field["name"] for field in plan["fields"]] == ["A", "N"]
    assert (plan["sources"], plan["queryType"]) == (["GROWING"], "PUSH")
    with pytest.raises(ServerRefusal, match="refused: aggregate: WINDOW clause is only supported"):
        client.execute(
            "CREATE TABLE explained (k INT PRIMARY KEY, a INT)"
            " WITH (KAFKA_TOPIC='explained', VALUE_FORMAT='JSON', PARTITIONS=1);"
            " EXPLAIN SELECT a, COUNT(*) AS n FROM explained WINDOW TUMBLING (SIZE 1 HOUR) GROUP BY a EMIT CHANGES;"
        )
    with pytest.raises(ServerRefusal, match="read-only"):
        client.execute("INSERT INTO read_only VALUES (1);")
    (dropped, left) = client.execute("DROP STREAM growing DELETE TOPIC; SHOW ALL TOPICS;")
    assert dropped["commandStatus"]["status"] == "SUCCESS"
    assert "growing" not in [topic["name"] for topic in left["topics"]]


def test_joins_are_explained(client: RestClient) -> None:
    """The key of a join by foreign key is that of its left table, so `*` has no ROWKEY, as in ksqlDB (`JoinNode`)."""
    client.execute(
        "CREATE TABLE visits (id STRING PRIMARY KEY, who STRING)"
        " WITH (KAFKA_TOPIC='visits', VALUE_FORMAT='JSON', PARTITIONS=1);"
        "CREATE TABLE citizens (name STRING PRIMARY KEY, city STRING)"
        " WITH (KAFKA_TOPIC='citizens', VALUE_FORMAT='JSON', PARTITIONS=1);"
        "CREATE TABLE hourly (name STRING PRIMARY KEY, n BIGINT) WITH (KAFKA_TOPIC='hourly', VALUE_FORMAT='JSON', PARTITIONS=1,"
        " WINDOW_TYPE='TUMBLING', WINDOW_SIZE='1 HOURS', RETENTION_MS=7200000);"
    )

    def explained(text: str) -> Any:
        return client.execute(f"EXPLAIN {text}")[0]["queryDescription"]

    for kind in ("JOIN", "LEFT JOIN"):
        for key in ("v.who", "UCASE(v.who)"):
            fields = explained(f"SELECT * FROM visits v {kind} citizens p ON {key} = p.name EMIT CHANGES;")[
                "fields"
            ]
            assert [field["name"] for field in fields] == ["V_ID", "V_WHO", "P_NAME", "P_CITY"]
    windows = explained(
        "SELECT h.name, n, city FROM hourly h LEFT JOIN citizens p ON h.name = p.name EMIT CHANGES;"
    )
    assert windows["windowType"] == "TUMBLING"
    assert "windows held 7200000 ms" in windows["executionPlan"]
    with pytest.raises(ServerRefusal, match="Write H LEFT JOIN P"):
        explained("SELECT h.name FROM hourly h FULL JOIN citizens p ON h.name = p.name EMIT CHANGES;")


def test_a_table_is_asked_by_key_and_in_full(client: RestClient, servers: str) -> None:
    client.execute(
        "CREATE TABLE users (id BIGINT PRIMARY KEY, name STRING, age INT)"
        " WITH (KAFKA_TOPIC='users', VALUE_FORMAT='JSON', PARTITIONS=1);"
        " INSERT INTO users VALUES (1, 'Ann', 30); INSERT INTO users VALUES (2, 'Bob', 41);"
        " INSERT INTO users VALUES (1, 'Anna', 31); INSERT INTO users VALUES (3, 'Cy', NULL);"
    )
    with Producer(servers) as producer:
        producer.send("users", None, key=(2).to_bytes(8, "big"))

    def rows(text: str) -> list[list[object]]:
        with client.query(text) as query:
            return list(query)

    assert rows("SELECT * FROM users WHERE id = 1;") == [[1, "Anna", 31]]
    assert rows("SELECT name FROM users WHERE id IN (3, 2, 1) AND age > 30;") == [["Anna"]]
    assert rows("SELECT id, age + 1 AS next FROM users;") == [[1, 32], [3, None]]
    assert rows("SELECT id FROM users LIMIT 1;") == [[1]]
    assert rows("SELECT * FROM users WHERE id = 9;") == []


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("id IN (SELECT owner FROM pets WHERE legs = 4)", [1, 3]),
        ("id NOT IN (SELECT owner FROM pets WHERE legs = 4)", [2]),
        ("name IN (SELECT name FROM pets) OR id = 2", [2, 3]),
        ("id IN (SELECT owner FROM pets WHERE legs > 90)", []),
        ("NOT (id IN (SELECT owner FROM pets WHERE legs > 90))", [1, 2, 3]),
        ("id IN (SELECT owner FROM pets WHERE name IN (SELECT name FROM people))", [1]),
    ],
)
def test_a_pull_query_has_subqueries_in_its_condition(
    client: RestClient, where: str, expected: list[int]
) -> None:
    client.execute(
        "CREATE TABLE IF NOT EXISTS people (id BIGINT PRIMARY KEY, name STRING)"
        " WITH (KAFKA_TOPIC='people', VALUE_FORMAT='JSON', PARTITIONS=1);"
        " CREATE TABLE IF NOT EXISTS pets (pet STRING PRIMARY KEY, owner BIGINT, name STRING, legs INT)"
        " WITH (KAFKA_TOPIC='pets', VALUE_FORMAT='JSON', PARTITIONS=1);"
        " INSERT INTO people VALUES (1, 'Ann'); INSERT INTO people VALUES (2, 'Bob'); INSERT INTO people VALUES (3, 'Rex');"
        " INSERT INTO pets VALUES ('a', 1, 'Rex', 4); INSERT INTO pets VALUES ('b', 3, 'Tom', 4);"
        " INSERT INTO pets VALUES ('c', 2, 'Bird', 2);"
    )
    with client.query(f"SELECT id FROM people WHERE {where};") as query:
        assert sorted(row[0] for row in query) == expected


def test_a_pull_query_has_calls_with_over(client: RestClient) -> None:
    client.execute(
        "CREATE TABLE players (id STRING PRIMARY KEY, team STRING, points INT)"
        " WITH (KAFKA_TOPIC='players', VALUE_FORMAT='JSON', PARTITIONS=1);"
        " INSERT INTO players VALUES ('a', 'red', 5); INSERT INTO players VALUES ('b', 'blue', 9);"
        " INSERT INTO players VALUES ('c', 'red', 7); INSERT INTO players VALUES ('d', 'red', 1);"
    )
    statement = (
        "SELECT id, RANK() OVER (PARTITION BY team ORDER BY points DESC) AS place, SUM(points) OVER () + 1 AS more"
        " FROM players WHERE points > 1 LIMIT 2;"
    )
    with client.query(statement) as query:
        assert list(query) == [["a", 2, 22], ["b", 1, 22]]
    with pytest.raises(ServerRefusal, match="a running query never has"):
        client.query("SELECT RANK() OVER (ORDER BY points) FROM players EMIT CHANGES;").__enter__()


def test_a_push_query_is_ended_by_its_id(client: RestClient) -> None:
    client.execute(
        "CREATE STREAM ticks (n INT) WITH (KAFKA_TOPIC='ticks', VALUE_FORMAT='DELIMITED', PARTITIONS=1);"
    )
    with client.query("SELECT n FROM ticks EMIT CHANGES;") as query:
        client.execute("INSERT INTO ticks VALUES (7);")
        rows = iter(query)
        assert next(rows) == [7]
        assert query.query_id is not None
        client.close_query(query.query_id)
        assert list(rows) == []


def test_print_shows_records(client: RestClient) -> None:
    client.execute(
        "CREATE STREAM raw (k INT KEY, v STRING) WITH (KAFKA_TOPIC='raw', VALUE_FORMAT='KAFKA', PARTITIONS=1);"
    )
    client.execute("INSERT INTO raw VALUES (5, 'text');")
    with client.query("PRINT 'raw' FROM BEGINNING LIMIT 1;") as query:
        assert [row[1:] for row in query] == [["5", "text", 0]]


def test_print_shows_what_is_no_text(client: RestClient, servers: str) -> None:
    any_time = {"message.timestamp.after.max.ms": str((1 << 63) - 1)}
    with Admin(servers) as admin:
        admin.create_topics([NewTopic("odd", 1, configs=any_time)])
    values = [b"\xff\xfe\x00", None, b"", b"a\tb", b'{"a":\n1}', (258).to_bytes(8, "big"), "ö".encode()]
    with Producer(servers) as producer:
        for value in values:
            producer.send("odd", value, timestamp_ms=(1 << 63) - 1)
    with client.query("PRINT 'odd' FROM BEGINNING LIMIT 7;") as query:
        rows = list(query)
    assert [row[2] for row in rows] == ["0xfffe00", None, "", "0x610962", '{"a":\n1}', "258", "ö"]
    assert {row[0] for row in rows} == {"+292278994-08-17T07:12:55.807Z"}
    with client.query("PRINT 'odd' FROM BEGINNING INTERVAL 3 LIMIT 2;") as query:
        assert [row[2] for row in query] == ["0xfffe00", "0x610962"]
    with client.query("PRINT 'odd' FROM BEGINNING LIMIT 0;") as query:
        assert list(query) == []


@pytest.mark.parametrize(
    ("text", "code", "says"),
    [
        ("SELECT * FROM x;", 40002, "should be issued to"),
        ("DESCRIBE nothing;", 40001, "NOTHING does not exist"),
        ("SHWO STREAMS;", 40001, "line 1:1"),
        (
            "CREATE STREAM s (a INT) WITH (KAFKA_TOPIC='absent', VALUE_FORMAT='JSON');",
            40001,
            "Kafka topic does not exist: absent",
        ),
        ("CREATE FUNCTION f(a INT) RETURNS INT AS $$ 1 $$;", 40001, "switched off"),
        ("ASSERT TOPIC absent TIMEOUT 0 SECONDS;", 41700, "does not exist"),
        ("ASSERT STREAM nothing;", 40001, "NOTHING does not exist"),
        ("CREATE ARCHIVE a WITH (PATH='/a') AS SELECT * FROM nothing;", 40001, "NOTHING does not exist"),
        ("DESCRIBE ARCHIVE nothing;", 40001, "Archive NOTHING does not exist"),
        ("SHOW CONNECTORS;", 40001, "connectors are not supported"),
        ("ALTER SYSTEM 'auto.offset.reset' = 'earliest';", 40001, "not supported yet"),
    ],
)
def test_what_is_refused(client: RestClient, text: str, code: int, says: str) -> None:
    with pytest.raises(ServerRefusal, match=says) as refused:
        client.execute(text)
    assert refused.value.code == code


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        (
            "FROM to_archive WITH (PATH='{there}/file', FORMAT='parquet')",
            "{there}/file is a file: an archive is a directory",
        ),
        (
            "WITH (PATH='{there}', FORMAT='parquet') AS SELECT a FROM to_archive",
            "{there} is no archive, and holds something else (file)",
        ),
        (
            "FROM to_archive WITH (PATH='{there}/file/below', FORMAT='parquet')",
            "{there}/file is no directory that this process may write to",
        ),
        (
            "FROM to_archive WITH (PATH='s3://lake/a', ENDPOINT='http://127.0.0.1:9')",
            "s3://lake/a cannot be looked at",
        ),
        (
            "FROM to_archive WITH (PATH='s3://lake/a', ENDPOINT='http://127.0.0.1:8')",
            "this server does not connect to the endpoint http://127.0.0.1:8",
        ),
        (
            "FROM to_archive WITH (PATH='hdfs://lake/a')",
            "an archive is a directory or s3://bucket/prefix, not hdfs://",
        ),
        ("WITH (PATH='{there}/new') AS SELECT a FROM to_archive", "needs `pip install 'odradek[delta]'`"),
    ],
)
def test_a_place_that_cannot_be_an_archive_is_refused(
    client: RestClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, statement: str, says: str
) -> None:
    monkeypatch.setitem(sys.modules, "deltalake", None)  # as if the package were not there
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9")
    (tmp_path / "file").write_text("of someone")
    client.execute(
        "CREATE STREAM IF NOT EXISTS to_archive (a INT) WITH (KAFKA_TOPIC='to-archive', VALUE_FORMAT='JSON', PARTITIONS=1);"
    )
    with pytest.raises(ServerRefusal, match=re.escape(says.format(there=tmp_path))) as refused:
        client.execute(f"CREATE ARCHIVE wrong {statement.format(there=tmp_path)};")
    assert refused.value.code == 40001
    archives, queries, streams = client.execute("SHOW ARCHIVES; SHOW QUERIES; SHOW STREAMS;")
    assert (archives["archives"], queries["queries"]) == ([], [])
    assert "WRONG" not in [stream["name"] for stream in streams["streams"]]


def test_statements_before_the_wrong_one_have_run(client: RestClient) -> None:
    with pytest.raises(ServerRefusal) as refused:
        client.execute("SHOW TYPES; DESCRIBE nothing;")
    assert [entity["@type"] for entity in refused.value.entities] == ["type_list"]


def test_properties_that_do_not_exist_are_refused(client: RestClient) -> None:
    with pytest.raises(ServerRefusal, match="is one of latest, earliest, not 'middle'"):
        client.execute("SHOW STREAMS;", properties={"auto.offset.reset": "middle"})
    with pytest.raises(ServerRefusal, match="no property that can be set"):
        client.execute("SHOW STREAMS;", properties={"x": "y"})


def test_what_is_there_is_listed(client: RestClient) -> None:
    topics, functions, properties, health = (
        client.execute("SHOW TOPICS;")[0],
        client.execute("SHOW FUNCTIONS;")[0],
        client.execute("SHOW PROPERTIES;", properties=EARLIEST)[0],
        client.info(),
    )
    assert not any(topic["name"].startswith("_") for topic in topics["topics"])
    assert "UCASE" in [function["name"] for function in functions["functions"]]
    assert {
        "name": "auto.offset.reset",
        "scope": "KSQL",
        "value": "earliest",
        "editable": True,
    } in properties["properties"]
    assert (health["serverStatus"], health["ksqlServiceId"]) == ("RUNNING", "tests")


def test_everything_is_there_again_after_a_restart_and_on_another_server(
    servers: str, tmp_path: Path
) -> None:
    with Admin(servers) as admin:
        admin.create_topics([NewTopic("again", 1)])
    with (
        sql_server(servers, "again", tmp_path / "a") as first,
        sql_server(servers, "again", tmp_path / "b") as second,
    ):
        first.execute(
            "CREATE TYPE address AS STRUCT<city STRING>;"
            " CREATE STREAM a (v address) WITH (KAFKA_TOPIC='again', VALUE_FORMAT='JSON');"
        )
        with pytest.raises(ServerRefusal, match="already exists"):
            second.execute("CREATE STREAM a (v INT) WITH (KAFKA_TOPIC='again', VALUE_FORMAT='JSON');")
        second.execute(
            "DROP STREAM a; CREATE STREAM b (v address) WITH (KAFKA_TOPIC='again', VALUE_FORMAT='JSON');"
        )
    with sql_server(servers, "again", tmp_path / "c") as third:
        assert [source["name"] for source in third.execute("SHOW STREAMS;")[0]["streams"]] == ["B"]
        assert third.execute("SHOW TYPES;")[0]["types"]["ADDRESS"]["fields"][0]["name"] == "CITY"
    with sql_server(servers, "other", tmp_path / "d") as other:
        assert other.execute("SHOW STREAMS;")[0]["streams"] == []


def test_functions_of_users_are_there_again_after_a_restart(servers: str, tmp_path: Path) -> None:
    def own(client: RestClient) -> list[tuple[str, str]]:
        listed = client.execute("SHOW FUNCTIONS;")[0]["functions"]
        return [(line["name"], line["type"]) for line in listed if line["category"] == "USER"]

    with sql_server(servers, "functions", tmp_path / "a", python_functions=True) as first:
        created, described, _, _ = first.execute(
            "CREATE FUNCTION bump(a INT) RETURNS INT AS $$ a + 1 $$; DESCRIBE FUNCTION bump;"
            " CREATE TABLE FUNCTION letters(w STRING) RETURNS STRING AS $$ list(w) $$; DROP FUNCTION IF EXISTS nothing;"
        )
        assert created["commandStatus"]["message"] == "Function created"
        assert [function["returnType"] for function in described["functions"]] == ["INTEGER"]
        assert own(first) == [("BUMP", "SCALAR"), ("LETTERS", "TABLE")]
        first.execute("DROP FUNCTION letters;")
    with sql_server(servers, "functions", tmp_path / "b", python_functions=True) as second:
        assert own(second) == [("BUMP", "SCALAR")]
    with sql_server(servers, "functions", tmp_path / "c") as third:
        assert own(third) == []  # this server does not run Python of others


def test_assert_says_how_a_source_differs(client: RestClient) -> None:
    client.execute(
        "CREATE STREAM asserted (a STRING, k INT KEY, at BIGINT)"
        " WITH (KAFKA_TOPIC='asserted', VALUE_FORMAT='JSON', PARTITIONS=1, TIMESTAMP='at');"
    )
    held, *_ = client.execute(
        "ASSERT STREAM asserted (k INT KEY, a VARCHAR, at BIGINT) WITH (KAFKA_TOPIC='asserted', TIMESTAMP='AT');"
        " ASSERT STREAM asserted; ASSERT STREAM asserted WITH (value_format='json', key_format='KAFKA');"
    )
    assert (held["@type"], held["name"]) == ("assert_stream", "ASSERTED")
    for text, says in (
        ("ASSERT TABLE asserted;", "Expected table, got stream"),
        ("ASSERT STREAM asserted (k INT KEY, a VARCHAR);", "has other columns"),
        ("ASSERT STREAM asserted (k INT KEY, a INT, at BIGINT);", "`A` INTEGER, .*; got .*`A` STRING"),
        ("ASSERT STREAM asserted WITH (VALUE_FORMAT='AVRO');", "Expected AVRO; got JSON"),
        (
            "ASSERT STREAM asserted WITH (WINDOW_TYPE='SESSION');",
            "another WINDOW_TYPE. Expected SESSION; got None",
        ),
    ):
        with pytest.raises(ServerRefusal, match=says) as refused:
            client.execute(text)
        assert refused.value.code == 41700


@pytest.mark.parametrize(
    ("properties", "key", "shown"),
    [
        (
            "WINDOW_TYPE='TUMBLING', WINDOW_SIZE='10 SECONDS'",
            b"ann" + (5_000).to_bytes(8, "big"),
            "[ann@5000/15000]",
        ),
        (
            "WINDOW_TYPE='SESSION'",
            b"ann" + (7_000).to_bytes(8, "big") + (5_000).to_bytes(8, "big"),
            "[ann@5000/7000]",
        ),
        ("WINDOW_TYPE='SESSION'", b"short", "short"),
    ],
)
def test_print_shows_the_windows_of_keys(
    client: RestClient, servers: str, properties: str, key: bytes, shown: str
) -> None:
    client.execute(
        "CREATE STREAM windowed (k STRING KEY, v INT)"
        f" WITH (KAFKA_TOPIC='windowed', VALUE_FORMAT='JSON', PARTITIONS=1, {properties});"
    )
    try:
        with Producer(servers) as producer:
            producer.send("windowed", b"{}", key=key)
        with client.query("PRINT windowed FROM BEGINNING LIMIT 1;") as query:
            ((_, printed_key, _, _),) = query
        assert printed_key == shown
    finally:
        client.execute("DROP STREAM windowed DELETE TOPIC;")


def test_assert_values_finds_records_and_tombstones(client: RestClient, servers: str) -> None:
    client.execute(
        "CREATE TABLE held (id BIGINT PRIMARY KEY, name STRING, tags ARRAY<STRING>, price DECIMAL(4, 2))"
        " WITH (KAFKA_TOPIC='held', VALUE_FORMAT='JSON', PARTITIONS=2);"
        " INSERT INTO held (rowtime, id, name, tags, price) VALUES (7, 1, 'Ann', ARRAY['x'], 1.5);"
        " INSERT INTO held (id) VALUES (2);"
    )
    with Producer(servers) as producer:
        producer.send("held", None, key=(1).to_bytes(8, "big"))
    met = client.execute(
        "ASSERT VALUES held VALUES (1, 'Ann', ARRAY['x'], 1.50);"
        " ASSERT VALUES held (rowtime, id, name, price, tags) VALUES (7, 1, 'Ann', 1.5, ARRAY['x']);"
        " ASSERT VALUES held (id) VALUES (2); ASSERT NULL VALUES held (id) KEY (1); ASSERT NULL VALUES held KEY (1);"
    )
    assert [(entity["@type"], entity["name"]) for entity in met[::4]] == [
        ("assert_values", "HELD"),
        ("assert_null_values", "HELD"),
    ]


@pytest.mark.parametrize(
    ("text", "code", "says"),
    [
        (
            "ASSERT VALUES kept (id, name) VALUES (1, 'Bob')",
            41700,
            "Expected ID = 1, NAME = 'Bob'.*NAME = 'Ann'",
        ),
        ("ASSERT VALUES kept (id) VALUES (1)", 41700, "NAME = NULL"),
        ("ASSERT VALUES kept (rowtime, id, name) VALUES (6, 1, 'Ann')", 41700, "ROWTIME = 5"),
        ("ASSERT NULL VALUES kept KEY (1)", 41700, "no such tombstone.*a record with a value"),
        ("ASSERT VALUES bare (n) VALUES (1)", 41700, "It has no records"),
        ("ASSERT NULL VALUES kept (name) KEY ('Ann')", 40001, "key columns only, and `NAME` is a value"),
        (
            "ASSERT VALUES kept (id, nane) VALUES (1, 'Ann')",
            40001,
            "`NANE` does not exist[^$]*Did you mean NAME",
        ),
        ("ASSERT VALUES kept (id, name) VALUES (1)", 40001, "a value for each column"),
        ("ASSERT VALUES kept (id) VALUES ('one')", 40001, "Expected type BIGINT"),
        ("ASSERT VALUES nothing VALUES (1)", 40001, "NOTHING does not exist"),
        ("ASSERT VALUES headed (n) VALUES (1)", 40001, "which has headers"),
    ],
)
def test_assert_values_says_what_is_there(client: RestClient, text: str, code: int, says: str) -> None:
    client.execute(
        "CREATE TABLE IF NOT EXISTS kept (id BIGINT PRIMARY KEY, name STRING)"
        " WITH (KAFKA_TOPIC='kept', VALUE_FORMAT='JSON', PARTITIONS=1);"
        " CREATE STREAM IF NOT EXISTS bare (n INT) WITH (KAFKA_TOPIC='bare', VALUE_FORMAT='JSON', PARTITIONS=1);"
        " CREATE STREAM IF NOT EXISTS headed (n INT, h BYTES HEADER('h'))"
        " WITH (KAFKA_TOPIC='bare', VALUE_FORMAT='JSON');"
        " INSERT INTO kept (rowtime, id, name) VALUES (5, 1, 'Ann');"
    )
    timeout = "" if code == 40001 else " TIMEOUT 0 SECONDS"
    with pytest.raises(ServerRefusal, match=says) as refused:
        client.execute(f"{text}{timeout};")
    assert refused.value.code == code


def test_assert_values_waits_for_a_record_in_a_window(client: RestClient, servers: str) -> None:
    client.execute(
        "CREATE TABLE counted (k STRING PRIMARY KEY, n INT) WITH (KAFKA_TOPIC='counted', VALUE_FORMAT='JSON',"
        " PARTITIONS=1, WINDOW_TYPE='TUMBLING', WINDOW_SIZE='10 SECONDS');"
    )

    def send() -> None:
        with Producer(servers) as producer:
            producer.send("counted", b'{"N": 2}', key=b"ann" + (5_000).to_bytes(8, "big"))

    later = threading.Timer(0.3, send)
    later.start()
    client.execute(
        "ASSERT VALUES counted (k, windowstart, windowend, n) VALUES ('ann', 5000, 15000, 2) TIMEOUT 20 SECONDS;"
    )
    later.join()


def test_a_server_logs_in_to_its_brokers(tmp_path: Path) -> None:
    with (
        LocalBroker(secure=True) as broker,
        sql_server(broker.address, "secured", tmp_path, settings=broker.client_settings) as client,
    ):
        client.execute(
            "CREATE STREAM orders (item STRING) WITH (KAFKA_TOPIC='orders', VALUE_FORMAT='JSON', PARTITIONS=1);"
            "INSERT INTO orders VALUES ('tea');"
        )
        with client.query("SELECT * FROM orders;") as query:
            assert list(query) == [["tea"]]
