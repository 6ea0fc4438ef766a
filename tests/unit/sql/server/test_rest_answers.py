"""What /query answers, word for word: keys in headers, ROWTIME of tables, bounds of windows as texts, LIMIT, final messages."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.sql.running_server import sql_server

from odradek.client import Producer
from odradek.sql.rest_client import RestClient, ServerRefusal
from odradek.testing import LocalBroker

EARLIEST = {"auto.offset.reset": "earliest"}
START_MS = 1_577_836_800_000
"""2020-01-01T00:00:00 in UTC."""


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with LocalBroker() as broker:
        yield broker.address


@pytest.fixture(scope="module")
def client(servers: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestClient]:
    with sql_server(servers, "answers", tmp_path_factory.mktemp("sql")) as client:
        client.execute(
            "CREATE TABLE plain (id STRING PRIMARY KEY, n INT)"
            " WITH (KAFKA_TOPIC='plain', VALUE_FORMAT='JSON', PARTITIONS=1);"
            "CREATE TABLE several (a INT PRIMARY KEY, b STRING PRIMARY KEY, n INT)"
            " WITH (KAFKA_TOPIC='several', FORMAT='JSON', PARTITIONS=1);"
            "CREATE TABLE stamped (id STRING PRIMARY KEY, at BIGINT)"
            " WITH (KAFKA_TOPIC='stamped', VALUE_FORMAT='JSON', TIMESTAMP='AT', PARTITIONS=1);"
            "CREATE STREAM events (id STRING KEY, n INT)"
            " WITH (KAFKA_TOPIC='events', VALUE_FORMAT='JSON', PARTITIONS=1);"
            "CREATE TABLE hourly (id STRING PRIMARY KEY, n INT) WITH (KAFKA_TOPIC='hourly', VALUE_FORMAT='JSON',"
            " WINDOW_TYPE='TUMBLING', WINDOW_SIZE='1 HOURS', PARTITIONS=1);"
            "CREATE TABLE visits (id STRING PRIMARY KEY, n INT) WITH (KAFKA_TOPIC='visits', VALUE_FORMAT='JSON',"
            " WINDOW_TYPE='SESSION', PARTITIONS=1);"
        )
        with Producer(servers) as producer:
            for place, name in enumerate("cab"):
                value = json.dumps({"N": place}).encode()
                producer.send("plain", value, key=name.encode(), timestamp_ms=1_000 + place)
                producer.send("events", value, key=name.encode(), timestamp_ms=2_000 - place)
            producer.send("plain", b'{"N":7}', key=b"a", timestamp_ms=5)
            producer.send("several", b'{"N":1}', key=b'{"A":1,"B":"x"}', timestamp_ms=3)
            producer.send("stamped", b'{"AT":77}', key=b"a", timestamp_ms=3)
            for hour in range(3):
                start_ms = START_MS + hour * 3_600_000
                key = b"a" + start_ms.to_bytes(8, "big")
                producer.send("hourly", b'{"N":%d}' % hour, key=key, timestamp_ms=start_ms + 1)
            bounds = (START_MS + 9).to_bytes(8, "big") + START_MS.to_bytes(8, "big")
            producer.send("visits", b'{"N":1}', key=b"a" + bounds, timestamp_ms=START_MS + 9)
        yield client


def answer(client: RestClient, text: str, properties: dict[str, str] | None = None) -> list[Any]:
    """The parts of the answer of /query: the schema of the header, rows, and the final message."""
    body = json.dumps({"ksql": text, "streamsProperties": properties or {}}).encode()
    request = urllib.request.Request(f"{client.url}/query", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as response:
        header, *rows, final = json.loads(response.read())
    return [header["header"]["schema"], *(row["row"]["columns"] for row in rows), final["finalMessage"]]


HOURLY = "`ID` STRING KEY, `WINDOWSTART` BIGINT KEY, `WINDOWEND` BIGINT KEY, `N` INTEGER"


@pytest.mark.parametrize(
    ("text", "schema"),
    [
        ("SELECT * FROM plain WHERE id = 'a';", "`ID` STRING KEY, `N` INTEGER"),
        ("SELECT * FROM plain;", "`ID` STRING KEY, `N` INTEGER"),
        ("SELECT n, id FROM plain;", "`N` INTEGER, `ID` STRING KEY"),
        ("SELECT n FROM plain WHERE id = 'none';", "`N` INTEGER"),
        ("SELECT id AS x FROM plain;", "`X` STRING"),
        ("SELECT id, n, ROWTIME FROM plain;", "`ID` STRING KEY, `N` INTEGER, `ROWTIME` BIGINT"),
        ("SELECT * FROM several;", "`A` INTEGER KEY, `B` STRING KEY, `N` INTEGER"),
        ("SELECT * FROM hourly WHERE id = 'a';", HOURLY),
        ("SELECT * FROM visits;", HOURLY),
        ("SELECT n, WINDOWSTART FROM hourly;", "`N` INTEGER, `WINDOWSTART` BIGINT KEY"),
        ("SELECT * FROM events;", "`ID` STRING, `N` INTEGER"),
        ("SELECT * FROM events EMIT CHANGES LIMIT 1;", "`ID` STRING, `N` INTEGER"),
        ("SELECT * FROM plain EMIT CHANGES LIMIT 1;", "`ID` STRING, `N` INTEGER"),
        ("SELECT * FROM hourly EMIT CHANGES LIMIT 1;", HOURLY.replace(" KEY", "")),
    ],
)
def test_the_header_of_a_pull_query_over_a_table_names_its_keys(
    client: RestClient, text: str, schema: str
) -> None:
    assert answer(client, text, EARLIEST)[0] == schema


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("SELECT id, ROWTIME FROM plain WHERE id = 'b';", [["b", 1_002]]),
        ("SELECT id, ROWTIME FROM plain;", [["a", 5], ["b", 1_002], ["c", 1_000]]),
        ("SELECT id FROM plain WHERE ROWTIME >= 1000;", [["b"], ["c"]]),
        ("SELECT ROWTIME + 10 AS later FROM plain WHERE id = 'a';", [[15]]),
        ("SELECT id, ROWTIME FROM stamped;", [["a", 77]]),
        ("SELECT b, ROWTIME FROM several;", [["x", 3]]),
        ("SELECT n, ROWTIME FROM hourly WHERE id = 'a' LIMIT 1;", [[0, START_MS + 1]]),
        ("SELECT n, ROWTIME FROM visits WHERE id = 'a';", [[1, START_MS + 9]]),
        ("SELECT id FROM plain WHERE ROWTIME < '2020-01-01';", [["a"], ["b"], ["c"]]),
    ],
)
def test_rows_of_tables_have_the_time_of_their_record(
    client: RestClient, text: str, rows: list[list[Any]]
) -> None:
    assert answer(client, text)[1:-1] == rows


@pytest.mark.parametrize(
    ("condition", "hours"),
    [
        ("WINDOWSTART = '2020-01-01T01:00:00'", [1]),
        ("WINDOWSTART >= '2020-01-01T01'", [1, 2]),
        ("'2020-01-01T01:00' > WINDOWSTART", [0]),
        ("WINDOWSTART > '2020-01-01T00:00:00.000' AND WINDOWEND <= '2020-01-01T02:00:00.000'", [1]),
        ("WINDOWSTART BETWEEN '2020-01-01' AND '2020-01-01T01:00:00Z'", [0, 1]),
        ("WINDOWSTART IN ('2020-01-01', '2020-01-01T03:00:00+01:00')", [0, 2]),
        ("WINDOWEND < '2020-01-01T00:00:00+0100'", []),
        ("WINDOWSTART <> '2020'", [1, 2]),
        (f"WINDOWSTART = {START_MS}", [0]),
    ],
)
def test_bounds_of_windows_are_compared_with_texts(
    client: RestClient, condition: str, hours: list[int]
) -> None:
    for key in ("id = 'a' AND ", ""):
        assert answer(client, f"SELECT n FROM hourly WHERE {key}{condition};")[1:-1] == [[n] for n in hours]


def test_a_text_that_is_no_time_is_refused_beside_a_bound(client: RestClient) -> None:
    with pytest.raises(ServerRefusal, match="'soon' is no time"):
        client.query("SELECT n FROM hourly WHERE WINDOWSTART > 'soon';").__enter__()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT id FROM events LIMIT 2;", [["c"], ["a"], "Limit Reached"]),
        ("SELECT id FROM events LIMIT 3;", [["c"], ["a"], ["b"], "Limit Reached"]),
        ("SELECT id FROM events LIMIT 9;", [["c"], ["a"], ["b"], "Query Completed"]),
        ("SELECT id FROM events LIMIT 0;", ["Limit Reached"]),
        ("SELECT id FROM events;", [["c"], ["a"], ["b"], "Query Completed"]),
        ("SELECT id FROM events EMIT CHANGES LIMIT 2;", [["c"], ["a"], "Limit Reached"]),
        ("SELECT id FROM plain LIMIT 2;", [["a"], ["b"], "Query Completed"]),
        ("SELECT id FROM plain LIMIT 9;", [["a"], ["b"], ["c"], "Query Completed"]),
        ("SELECT id, n FROM plain EMIT CHANGES LIMIT 2;", [["c", 0], ["a", 1], "Limit Reached"]),
        ("SELECT n FROM hourly LIMIT 2;", [[0], [1], "Query Completed"]),
        ("SELECT n FROM hourly EMIT CHANGES LIMIT 2;", [[0], [1], "Limit Reached"]),
        ("SELECT n FROM hourly WHERE n > 1 EMIT CHANGES LIMIT 1;", [[2], "Limit Reached"]),
        ("SELECT n FROM visits EMIT CHANGES LIMIT 1;", [[1], "Limit Reached"]),
    ],
)
def test_a_limit_keeps_the_order_and_says_whether_it_was_reached(
    client: RestClient, text: str, expected: list[Any]
) -> None:
    assert answer(client, text, EARLIEST)[1:] == expected


def post(client: RestClient, path: str, message: Any) -> Any:
    body = json.dumps(message).encode()
    request = urllib.request.Request(f"{client.url}{path}", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.loads(response.read())


def test_the_cluster_is_shown_with_the_servers_that_sent_heartbeats(client: RestClient) -> None:
    host = {"host": "other", "port": 8088}
    assert post(client, "/heartbeat", {"hostInfo": host, "timestamp": 1}) == {"isOk": True}
    lags = {"stateStoreLags": {}, "updateTimeMs": 5}
    assert post(client, "/lag", {"ksqlHost": host, "hostStoreLags": lags}) == {"isOk": True}
    with urllib.request.urlopen(f"{client.url}/clusterStatus", timeout=60) as response:
        shown = json.loads(response.read())["clusterStatus"]
    assert list(shown) == [client.url.removeprefix("http://"), "other:8088"]
    assert [status["hostAlive"] for status in shown.values()] == [True, True]
    assert shown["other:8088"]["hostStoreLags"] == lags


def test_a_service_is_terminated(servers: str, tmp_path: Path) -> None:
    with sql_server(servers, "ended", tmp_path) as client:
        client.execute(
            "CREATE STREAM kept (a INT) WITH (KAFKA_TOPIC='kept', VALUE_FORMAT='JSON', PARTITIONS=1);"
            "CREATE TABLE held (k INT PRIMARY KEY) WITH (KAFKA_TOPIC='held', VALUE_FORMAT='JSON', PARTITIONS=1);"
        )
        answers = post(client, "/ksql/terminate", {"deleteTopicList": [".*"]})
        assert [entity["commandStatus"]["status"] for entity in answers] == ["SUCCESS"] * 2
        streams, tables, topics = client.execute("SHOW STREAMS; SHOW TABLES; SHOW TOPICS;")
        assert (streams["streams"], tables["tables"]) == ([], [])
        assert {"kept", "held"} <= {topic["name"] for topic in topics["topics"]}  # no query wrote them
        assert post(client, "/ksql/terminate", {}) == []
