"""A server with a schema registry: columns from schemas, schemas of statements, rows in formats that need them."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro
import pytest
from tests.schema_registry import HeldSchemas, schema_registry
from tests.unit.sql.running_server import sql_server

from odradek.client import Admin, NewTopic, Producer
from odradek.sql.rest_client import RestClient, ServerRefusal
from odradek.testing import LocalBroker

EARLIEST = {"auto.offset.reset": "earliest"}
ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "item", "type": "string"},
        {"name": "amount", "type": ["null", "double"], "default": None},
        {"name": "tags", "type": {"type": "map", "values": "int"}, "default": {}},
    ],
}


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with LocalBroker() as broker:
        yield broker.address


@pytest.fixture(scope="module")
def held() -> HeldSchemas:
    return HeldSchemas(first_id=100)


@pytest.fixture(scope="module")
def client(servers: str, held: HeldSchemas, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestClient]:
    with (
        schema_registry(held) as url,
        sql_server(servers, "schemas", tmp_path_factory.mktemp("sql"), schema_registry=url) as client,
    ):
        yield client


def rows(client: RestClient, text: str) -> list[list[Any]]:
    with client.query(text, properties=EARLIEST) as query:
        return list(query)


def fields_of(client: RestClient, name: str) -> list[str]:
    described = client.execute(f"DESCRIBE {name};")[0]["sourceDescription"]
    return [
        f"{field['name']} {field['schema']['type']} {field.get('type', '')}".strip()
        for field in described["fields"]
    ]


def test_a_stream_without_columns_has_those_of_its_schema(
    client: RestClient, servers: str, held: HeldSchemas
) -> None:
    schema_id = held.register("known-value", json.dumps(ORDER))
    with Admin(servers) as admin:
        admin.create_topics([NewTopic("known", 1)])
    client.execute(
        "CREATE STREAM known (customer STRING KEY) WITH (KAFKA_TOPIC='known', VALUE_FORMAT='AVRO');"
    )
    assert fields_of(client, "known") == ["CUSTOMER STRING KEY", "ITEM STRING", "AMOUNT DOUBLE", "TAGS MAP"]
    out = io.BytesIO(b"\0" + schema_id.to_bytes(4, "big"))
    out.seek(5)
    fastavro.schemaless_writer(
        out, fastavro.parse_schema(ORDER), {"item": "tea", "amount": 2.5, "tags": {"hot": 1}}
    )
    with Producer(servers) as producer:
        producer.send("known", out.getvalue(), key=b"ann")
    client.execute("INSERT INTO known (customer, item, tags) VALUES ('bob', 'cup', MAP('new' := 1));")
    assert rows(client, "SELECT * FROM known EMIT CHANGES LIMIT 2;") == [
        ["ann", "tea", 2.5, {"hot": 1}],
        ["bob", "cup", None, {"new": 1}],
    ]


def test_key_and_value_may_both_come_from_the_registry(
    client: RestClient, servers: str, held: HeldSchemas
) -> None:
    held.register("both-key", '"long"')
    proto = 'syntax = "proto3"; message Reading { string sensor = 1; double celsius = 2; }'
    held.register("both-value", proto, "PROTOBUF")
    client.execute(
        "CREATE TABLE both WITH (KAFKA_TOPIC='both', KEY_FORMAT='AVRO', VALUE_FORMAT='PROTOBUF', PARTITIONS=1);"
        " INSERT INTO both VALUES (5, 'roof', 21.5); INSERT INTO both VALUES (6, 'cellar', 12);"
        " INSERT INTO both VALUES (5, 'roof', 22);"
    )
    assert fields_of(client, "both") == ["ROWKEY BIGINT KEY", "SENSOR STRING", "CELSIUS DOUBLE"]
    assert rows(client, "SELECT * FROM both WHERE ROWKEY = 5;") == [[5, "roof", 22.0]]
    assert rows(client, "SELECT SENSOR FROM both WHERE CELSIUS < 20;") == [["cellar"]]


@pytest.mark.parametrize("form", ["AVRO", "PROTOBUF", "JSON_SR"])
def test_the_schema_of_columns_is_registered_and_its_id_stays_in_the_statement(
    client: RestClient, held: HeldSchemas, form: str
) -> None:
    name = f"made_{form}"
    client.execute(
        f"CREATE STREAM {name} (id INT KEY, item STRING, at TIMESTAMP)"
        f" WITH (KAFKA_TOPIC='{name}', VALUE_FORMAT='{form}', PARTITIONS=1);"
        f" INSERT INTO {name} VALUES (1, 'tea', '2021-01-01T00:00:00');"
    )
    (schema_id,) = held.subjects[f"{name}-value"]
    assert f"{name}-key" not in held.subjects
    described = client.execute(f"DESCRIBE {name} EXTENDED;")[0]["sourceDescription"]
    assert f"VALUE_SCHEMA_ID={schema_id}" in described["statement"]
    assert rows(client, f"SELECT * FROM {name} EMIT CHANGES LIMIT 1;") == [
        [1, "tea", "2021-01-01T00:00:00.000"]
    ]
    client.execute(f"ASSERT SCHEMA SUBJECT '{name}-value' ID {schema_id};")
    client.execute(f"DROP STREAM {name} DELETE TOPIC; ASSERT NOT EXISTS SCHEMA SUBJECT '{name}-value';")


def test_a_schema_of_an_id_is_taken_although_a_newer_one_is_there(
    client: RestClient, held: HeldSchemas
) -> None:
    older = held.register("aged-value", json.dumps({**ORDER, "name": "Aged"}))
    held.register("aged-value", json.dumps({**ORDER, "name": "Aged", "fields": ORDER["fields"][:1]}))
    client.execute(
        "CREATE STREAM aged WITH (KAFKA_TOPIC='aged', VALUE_FORMAT='AVRO', PARTITIONS=1,"
        f" VALUE_SCHEMA_ID={older});"
    )
    assert fields_of(client, "aged") == ["ITEM STRING", "AMOUNT DOUBLE", "TAGS MAP"]


REFUSED = [
    (
        "CREATE STREAM s WITH (KAFKA_TOPIC='no-schema', VALUE_FORMAT='AVRO', PARTITIONS=1);",
        "does not exist in the Schema Registry. Subject: no-schema-value",
    ),
    (
        "CREATE STREAM s (a INT) WITH (KAFKA_TOPIC='x', VALUE_FORMAT='AVRO', VALUE_SCHEMA_ID=1, PARTITIONS=1);",
        "Table elements and VALUE_SCHEMA_ID cannot both exist",
    ),
    (
        "CREATE STREAM s WITH (KAFKA_TOPIC='x', VALUE_FORMAT='AVRO', VALUE_SCHEMA_ID=99999, PARTITIONS=1);",
        "has no schema 99999",
    ),
    (
        "CREATE STREAM s WITH (KAFKA_TOPIC='avro-here', VALUE_FORMAT='PROTOBUF', PARTITIONS=1);",
        "is AVRO, not PROTOBUF",
    ),
    (
        "CREATE STREAM s (`item` INT) WITH (KAFKA_TOPIC='avro-here', VALUE_FORMAT='AVRO', PARTITIONS=1);",
        "incompatible with an earlier schema",
    ),
    (
        "CREATE STREAM s WITH (KAFKA_TOPIC='x', VALUE_FORMAT='JSON', PARTITIONS=1);",
        "does not define any columns",
    ),
    (
        "ASSERT SCHEMA SUBJECT 'absent-value' TIMEOUT 0 SECONDS;",
        "Schema with subject name absent-value does not exist",
    ),
    ("ASSERT NOT EXISTS SCHEMA SUBJECT 'avro-here-value' TIMEOUT 0 SECONDS;", "exists"),
]


@pytest.mark.parametrize(("text", "says"), REFUSED)
def test_what_the_registry_does_not_allow_is_refused(
    client: RestClient, held: HeldSchemas, text: str, says: str
) -> None:
    held.register("avro-here-value", json.dumps(ORDER))
    with pytest.raises(ServerRefusal, match=says):
        client.execute(text)
    client.execute(
        "ASSERT NOT EXISTS TOPIC 'avro-here' TIMEOUT 0 SECONDS; ASSERT NOT EXISTS TOPIC x TIMEOUT 0 SECONDS;"
    )


def test_columns_of_a_source_with_a_schema_are_not_altered(client: RestClient) -> None:
    client.execute(
        "CREATE STREAM fixed (a INT) WITH (KAFKA_TOPIC='fixed', VALUE_FORMAT='AVRO', PARTITIONS=1);"
    )
    with pytest.raises(ServerRefusal, match="Write CREATE OR REPLACE"):
        client.execute("ALTER STREAM fixed ADD COLUMN b INT;")
    client.execute(
        "CREATE OR REPLACE STREAM fixed (a INT, b STRING) WITH (KAFKA_TOPIC='fixed', VALUE_FORMAT='AVRO');"
        " INSERT INTO fixed VALUES (1, 'x');"
    )
    assert rows(client, "SELECT * FROM fixed EMIT CHANGES LIMIT 1;") == [[1, "x"]]


def test_a_server_without_a_registry_says_so(servers: str, tmp_path: Path) -> None:
    with (
        sql_server(servers, "none", tmp_path) as client,
        pytest.raises(ServerRefusal, match="--schema-registry"),
    ):
        client.execute("CREATE STREAM s (a INT) WITH (KAFKA_TOPIC='s', VALUE_FORMAT='AVRO', PARTITIONS=1);")


def test_everything_is_there_again_after_a_restart(servers: str, tmp_path: Path) -> None:
    held = HeldSchemas(first_id=500)
    with schema_registry(held) as url:
        with sql_server(servers, "later", tmp_path / "a", schema_registry=url) as first:
            first.execute(
                "CREATE STREAM later (k STRING KEY, v MAP<STRING, INT>)"
                " WITH (KAFKA_TOPIC='later', FORMAT='JSON_SR', PARTITIONS=1);"
                " INSERT INTO later VALUES ('a', MAP('x' := 1));"
            )
        asked = len([request for request in held.requests if request.startswith("POST")])
        with sql_server(servers, "later", tmp_path / "b", schema_registry=url) as second:
            assert rows(second, "SELECT * FROM later EMIT CHANGES LIMIT 1;") == [["a", {"x": 1}]]
        assert len([request for request in held.requests if request.startswith("POST")]) == asked
