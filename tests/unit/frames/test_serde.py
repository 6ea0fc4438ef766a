"""Frames by the schemas of a registry: what is written is read, nulls and tombstones, other schemas, records that are wrong."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from tests.schema_registry import HeldSchemas, schema_registry

from odradek.frames import FrameSerde, SerializationError
from odradek.model.errors import ConfigError
from odradek.values.formats.registered_values import NEW_SCHEMAS_MAX
from odradek.values.schema_registry import SchemaRegistryError

AVRO = {
    "type": "record",
    "name": "Flight",
    "fields": [
        {"name": "carrier", "type": "string"},
        {"name": "delayMin", "type": ["null", "int"], "default": None},
        {"name": "share", "type": ["null", "float"], "default": None},
        {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}], "default": None},
        {"name": "at", "type": ["null", {"type": "int", "logicalType": "time-millis"}], "default": None},
        {
            "name": "seen",
            "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}],
            "default": None,
        },
        {
            "name": "price",
            "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}],
            "default": None,
        },
        {"name": "stops", "type": {"type": "array", "items": "string"}, "default": []},
        {"name": "seats", "type": {"type": "map", "values": "long"}, "default": {}},
    ],
}
PROTO = """
syntax = "proto3";
import "google/protobuf/timestamp.proto";
message Flight {
  string carrier = 1;
  optional int32 delayMin = 2;
  optional float share = 3;
  google.protobuf.Timestamp seen = 6;
  repeated string stops = 8;
  map<string, int64> seats = 9;
}
"""
JSON = {
    "type": "object",
    "properties": {
        "carrier": {"type": "string"},
        "delayMin": {"type": "integer"},
        "stops": {"type": "array", "items": {"type": "string"}},
        "price": {"oneOf": [{"type": "null"}, {"type": "number"}]},
    },
    "required": ["carrier", "price"],
}
SIMPLE_ROW = {"carrier": "UA", "delayMin": 20, "stops": ["EWR", "ORD"]}
PROTO_ROW = {**SIMPLE_ROW, "share": 0.5, "seen": datetime(2026, 1, 2, 3, 4, 5, 6, UTC), "seats": [("a", 1)]}
AVRO_ROW = {**PROTO_ROW, "day": date(2026, 1, 2), "at": time(3, 4, 5, 6_000), "price": Decimal("12.50")}
JSON_ROW = {**SIMPLE_ROW, "price": 1.5}


@dataclass(frozen=True)
class RegistryOfSubjects:
    """A registry that serves subjects and ids, and what it was asked for."""

    url: str
    held: HeldSchemas

    def add(self, subject: str, schema_id: int, kind: str, schema: Any) -> None:
        text = schema if isinstance(schema, str) else json.dumps(schema)
        self.held.register(subject, text, kind, schema_id=schema_id)


@pytest.fixture
def registry() -> Iterator[RegistryOfSubjects]:
    held = HeldSchemas()
    with schema_registry(held) as url:
        running = RegistryOfSubjects(url, held)
        running.add("avro-value", 1, "AVRO", AVRO)
        running.add("proto-value", 2, "PROTOBUF", PROTO)
        running.add("json-value", 3, "JSON", JSON)
        running.add("avro-key", 4, "AVRO", '"long"')
        yield running


def polled(topic: str, values: list[bytes | None], **more: Any) -> pa.RecordBatch:
    count = len(values)
    columns = {"topic": [topic] * count, "partition": [0] * count, "offset": list(range(10, 10 + count))}
    return pa.RecordBatch.from_pydict(columns | {"value": pa.array(values, pa.binary()), **more})


@pytest.mark.parametrize(("topic", "row"), [("avro", AVRO_ROW), ("proto", PROTO_ROW), ("json", JSON_ROW)])
def test_what_is_written_is_read_with_tombstones_where_rows_have_no_value(
    registry: RegistryOfSubjects, topic: str, row: dict[str, Any]
) -> None:
    serde = FrameSerde(registry.url)
    empty = serde.deserialize(polled(topic, [None]))
    rows = pa.array([row, None, {**row, "delayMin": None}], empty["value"].type)
    sent = serde.serialize(pa.table({"value": rows, "timestamp": [1, 2, 3]}), topic)
    data = sent["value"].to_pylist()
    assert data[1] is None
    assert {piece[0] for piece in data if piece} == {0}
    assert sent["timestamp"].to_pylist() == [1, 2, 3]
    back = serde.deserialize(polled(topic, data))
    assert back.schema == empty.schema
    assert back["value"].to_pylist() == rows.to_pylist()
    assert back["offset"].to_pylist() == [10, 11, 12]


@pytest.mark.parametrize("topic", ["avro", "proto", "json"])
@pytest.mark.parametrize("library", [pl.DataFrame, pd.DataFrame])
def test_columns_of_frames_become_keys_and_values(
    registry: RegistryOfSubjects, topic: str, library: Any
) -> None:
    registry.add(f"{topic}-key", 4, "AVRO", '"long"')
    frame = library(
        {
            "number": [7, 8],
            "carrier": ["UA", "чай"],
            "delayMin": [1, 2],
            "stops": [["EWR"], []],
            "price": [1.5, 2.5],
        }
    )
    names = ["carrier", "delayMin", "stops"] + (["price"] if topic == "json" else [])
    serde = FrameSerde(registry.url)
    sent = serde.serialize(frame, topic, key="number", value=names)
    assert sent.schema.names == ["key", "value"]
    back = serde.deserialize(polled(topic, sent["value"].to_pylist(), key=sent["key"].combine_chunks()))
    assert back["key"].to_pylist() == [7, 8]
    assert [(row["carrier"], row["delayMin"], row["stops"]) for row in back["value"].to_pylist()] == [
        ("UA", 1, ["EWR"]),
        ("чай", 2, []),
    ]


def test_json_has_no_null_where_its_schema_has_none(registry: RegistryOfSubjects) -> None:
    rows = [{"carrier": "UA", "price": None, "delayMin": None, "stops": []}]
    (data,) = FrameSerde(registry.url).serialize(pl.DataFrame({"value": rows}), "json")["value"].to_pylist()
    assert json.loads(data[5:]) == {"carrier": "UA", "price": None, "stops": []}


def test_a_topic_without_a_subject_stays_bytes_and_is_asked_for_once(registry: RegistryOfSubjects) -> None:
    serde = FrameSerde(registry.url)
    rows = polled("plain", [b"a", None])
    for _ in range(3):
        assert serde.deserialize(rows) == rows
    assert len(registry.held.requests) == 2
    assert serde.serialize(pl.DataFrame({"value": [b"a"]}), "plain")["value"].to_pylist() == [b"a"]
    with pytest.raises(SerializationError, match="no subject 'plain-value' for the values, which are struct"):
        serde.serialize(pl.DataFrame({"value": [{"a": 1}]}), "plain")


def test_a_record_of_another_version_is_read_by_the_names_of_its_fields(registry: RegistryOfSubjects) -> None:
    old = {"type": "record", "name": "Flight", "fields": [{"name": "carrier", "type": "string"}]}
    registry.add("old-value", 9, "AVRO", old)
    serde = FrameSerde(registry.url)
    (data,) = serde.serialize(pl.DataFrame({"value": [{"carrier": "UA"}]}), "old")["value"].to_pylist()
    (row,) = serde.deserialize(polled("avro", [data]))["value"].to_pylist()
    assert (row["carrier"], row["delayMin"], row["stops"]) == ("UA", None, None)


def test_a_record_that_cannot_be_read_is_an_error_or_a_null_with_a_reason(
    registry: RegistryOfSubjects,
) -> None:
    serde = FrameSerde(registry.url)
    (fine,) = serde.serialize(pl.DataFrame({"value": [{"carrier": "UA"}]}), "avro")["value"].to_pylist()
    rows = polled(
        "avro", [fine, b"plain", fine[:6], struct.pack(">bI", 0, 77) + b"x", struct.pack(">bI", 0, 3), None]
    )
    with pytest.raises(
        SerializationError, match="the value at offset 11 of avro-0 cannot be read: no magic"
    ) as raised:
        serde.deserialize(rows)
    assert (raised.value.part, raised.value.row) == ("value", 1)
    read = serde.deserialize(rows, on_error="column")
    values, errors = read["value"].to_pylist(), read["value_error"].to_pylist()
    assert [value is not None for value in values] == [True, False, False, False, False, False]
    assert (errors[0], errors[5]) == (None, None)
    assert "the schema registry has no schema 77" in errors[3]
    assert "schema 3 is JSON, not AVRO" in errors[4]


def test_a_batch_that_names_very_many_schemas_costs_few_requests(registry: RegistryOfSubjects) -> None:
    serde = FrameSerde(registry.url)
    rows = polled("avro", [struct.pack(">bI", 0, 1_000 + number) for number in range(5_000)] * 2)
    read = serde.deserialize(rows, on_error="column")
    assert read["value"].null_count == 10_000
    assert (
        len([path for path in registry.held.requests if path.startswith("GET /schemas/")]) == NEW_SCHEMAS_MAX
    )
    assert "a batch may bring 64 new schemas" in read["value_error"][4_000].as_py()


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        ([{"carrier": "UA", "dely": 1}], "schema 1 of the values of 'avro' has no field dely"),
        (
            [{"carrier": 1.5, "delayMin": "x"}],
            "the values are struct<.*, and schema 1 of 'avro' is STRUCT<.*",
        ),
        ([{"carrier": "UA"}, {"carrier": None}], "row 1: schema 1 of the values of 'avro'"),
        (["UA"], "the values are string.*, and schema 1"),
    ],
)
def test_a_row_that_the_schema_does_not_have_is_refused_before_any_is_sent(
    registry: RegistryOfSubjects, rows: list[Any], text: str
) -> None:
    with pytest.raises(SerializationError, match=text):
        FrameSerde(registry.url).serialize(pl.DataFrame({"value": rows}), "avro")


def test_misuse_is_one_sentence(registry: RegistryOfSubjects) -> None:
    serde = FrameSerde(registry.url)
    with pytest.raises(ConfigError, match="no single nope, but a"):
        serde.serialize(pl.DataFrame({"a": [1]}), "avro", value=["nope"])
    with pytest.raises(ConfigError, match="'raise' or 'column'"):
        serde.deserialize(polled("avro", [None]), on_error="ignore")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="2 topics"):
        serde.deserialize(pa.concat_batches([polled("avro", [None]), polled("json", [None])]))
    with pytest.raises(TypeError, match=r"not from LazyFrame: collect\(\)"):
        serde.serialize(pl.LazyFrame({"value": [1]}), "avro")
    nothing = polled("avro", [])
    assert serde.deserialize(nothing) is nothing


def test_a_registry_that_is_away_is_no_matter_of_a_record(registry: RegistryOfSubjects) -> None:
    serde = FrameSerde("http://127.0.0.1:9")
    with pytest.raises(SchemaRegistryError, match="cannot be reached"):
        serde.deserialize(polled("avro", [b"x"]), on_error="column")
