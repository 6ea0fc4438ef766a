"""Statements of a server with Spark side by side: many at once, one that ends another's query, and one whose query fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from tests.spark.sql.test_sql_engine import committed, serving, wait_for

from odradek.client import Admin
from odradek.model.ids import TopicPartition
from odradek.sql.rest_client import RestClient

QUERIES: Final = 8


def listed(client: RestClient) -> dict[str, dict[str, Any]]:
    """The queries by their sink."""
    (shown,) = client.execute("SHOW QUERIES;")
    return {query["sinks"][0]: query for query in shown["queries"]}


def end_of(servers: str, topic: str) -> int:
    with Admin(servers) as admin:
        return admin.list_offsets({TopicPartition(topic, 0): -1})[TopicPartition(topic, 0)].offset


def test_queries_begin_side_by_side_end_when_that_is_said_and_say_that_they_fail(
    servers: str, tmp_path: Path
) -> None:
    with serving(servers, "orders", tmp_path / "a") as (client, _):
        client.execute(
            "CREATE STREAM numbers (k STRING KEY, v INT)"
            " WITH (KAFKA_TOPIC='orders-numbers', VALUE_FORMAT='JSON', PARTITIONS=1);"
            "CREATE STREAM fleeting (k STRING KEY, v INT)"
            " WITH (KAFKA_TOPIC='orders-fleeting', VALUE_FORMAT='JSON', PARTITIONS=1);"
        )
        statements = [
            f"CREATE STREAM d{number} AS SELECT k, v + {number} AS v FROM numbers;"
            for number in range(QUERIES)
        ]
        client.execute("".join(statements) + "CREATE STREAM failing AS SELECT k, v * 2 AS v FROM fleeting;")
        ended = listed(client)["D0"]["id"]
        (answered,) = client.execute(f"TERMINATE {ended};")  # the JVM has just begun
        assert answered["commandStatus"]["status"] == "SUCCESS"
        client.execute("INSERT INTO numbers VALUES ('a', 1);")
        for number in range(1, QUERIES):
            assert committed(servers, f"D{number}", 1) == [b'{"V":%d}' % (1 + number)]
        assert end_of(servers, "D0") == 0

        with Admin(servers) as admin:
            admin.delete_topics(["orders-fleeting"])
        failing = wait_for(
            lambda: listed(client)["FAILING"], lambda query: int(query.get("failureCount", 0)) > 1
        )
        assert (failing["state"], failing["statusCount"]) == ("ERROR", {"ERROR": 1})
        assert "orders-fleeting" in failing["queryErrors"][-1]["errorMessage"]
        assert failing["queryErrors"][0]["timestamp"] == failing["failingSince"]
        (explained,) = client.execute(f"EXPLAIN {failing['id']};")
        assert explained["queryDescription"]["failureCount"] >= failing["failureCount"]
        (extended,) = client.execute("SHOW QUERIES EXTENDED;")
        (of_failing,) = (query for query in extended["queryDescriptions"] if query["id"] == failing["id"])
        assert "orders-fleeting" in of_failing["queryErrors"][-1]["errorMessage"]
        (described,) = client.execute("DESCRIBE failing;")
        assert described["sourceDescription"]["writeQueries"][0]["state"] == "ERROR"
        others = [query for sink, query in listed(client).items() if sink != "FAILING"]
        assert [query["state"] for query in others] == ["RUNNING"] * (QUERIES - 1)
        client.execute(f"TERMINATE {failing['id']};")
        assert "FAILING" not in listed(client)


def test_a_query_with_the_id_of_an_ended_query_starts_from_its_own_offsets(
    servers: str, tmp_path: Path
) -> None:
    with serving(servers, "again", tmp_path / "a") as (client, _):
        client.execute(
            "CREATE STREAM firsts (k STRING KEY, v INT)"
            " WITH (KAFKA_TOPIC='again-firsts', VALUE_FORMAT='JSON', PARTITIONS=1);"
            "CREATE STREAM both (k STRING KEY, v INT) WITH (KAFKA_TOPIC='again-both', VALUE_FORMAT='JSON', PARTITIONS=1);"
            "SET 'auto.offset.reset'='earliest';"
            "INSERT INTO both WITH (QUERY_ID='copy') SELECT k, v FROM firsts;"
            "INSERT INTO firsts VALUES ('a', 1);"
        )
        assert committed(servers, "again-both", 1) == [b'{"V":1}']
        client.execute(
            "TERMINATE copy; SET 'auto.offset.reset'='earliest';"
            "INSERT INTO both WITH (QUERY_ID='copy') SELECT k, v + 100 AS v FROM firsts;"
        )
        assert committed(servers, "again-both", 2) == [b'{"V":1}', b'{"V":101}']
