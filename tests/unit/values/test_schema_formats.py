"""AVRO, PROTOBUF and JSON_SR: the schemas of columns, the bytes of records, and data of schemas that others registered."""

from __future__ import annotations

import importlib.util
import io
import json
import pickle
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pytest
from tests.schema_registry import HeldSchemas, schema_registry

from odradek.model.errors import OdradekError
from odradek.values.errors import SqlError
from odradek.values.formats import RecordFormat, record_format
from odradek.values.formats.format_info import FormatColumn, FormatInfo
from odradek.values.formats.registered_schemas import columns_of, schema_text
from odradek.values.schema_registry import (
    RegisteredSchema,
    SchemaRegistry,
    SchemaRegistryError,
    SchemaRegistryTerms,
    UnknownSchemaId,
)
from odradek.values.types import SqlType, parse_type

ROW = (
    "STRUCT<`A` INT, `B` ARRAY<STRING>, `C` MAP<STRING, DOUBLE>, `D` STRUCT<`X` DECIMAL(4, 2), `Y` BIGINT>,"
    " `E` TIMESTAMP, `F` DATE, `G` TIME, `H` BYTES, `I` BOOLEAN, `J` STRING>"
)
VALUES: dict[str, Any] = {
    "A": -1,
    "B": ["x", "y"],
    "C": {"y": 1.5},
    "D": {"X": Decimal("-1.25"), "Y": 1 << 40},
    "E": datetime(2020, 1, 2, 3, 4, 5, 678000, tzinfo=UTC),
    "F": date(2020, 2, 29),
    "G": 3_723_004,
    "H": b"\0\xff",
    "I": True,
    "J": "é",
}
TYPES = {"AVRO": "AVRO", "PROTOBUF": "PROTOBUF", "JSON_SR": "JSON"}


@pytest.fixture
def held() -> HeldSchemas:
    return HeldSchemas(first_id=7)


@pytest.fixture
def terms(held: HeldSchemas) -> Iterator[SchemaRegistryTerms]:
    with schema_registry(held) as url:
        yield SchemaRegistryTerms.of(url)


def columns(kind: str) -> tuple[FormatColumn, ...]:
    return tuple(FormatColumn(name, name, part) for name, part in parse_type(kind).fields)


def made(name: str, kind: str, *, is_key: bool = False, **info: Any) -> RecordFormat:
    return record_format(FormatInfo(name=name, **info), columns(kind), is_key=is_key)


@pytest.mark.parametrize("name", ["AVRO", "PROTOBUF", "JSON_SR"])
def test_every_type_comes_back_through_a_registry(
    name: str, held: HeldSchemas, terms: SchemaRegistryTerms
) -> None:
    text = schema_text(FormatInfo(name=name), columns(ROW), is_key=False)
    schema_id = held.register("t-value", text, TYPES[name])
    form = made(name, ROW, schema_id=schema_id, registry=terms)
    data = form.encode(VALUES)
    assert data is not None
    assert data[:5] == b"\0\0\0\0\x07"
    assert form.decode(data) == VALUES
    assert pickle.loads(pickle.dumps(form)).decode(data) == VALUES
    asked = [request for request in held.requests if "/schemas/ids/" in request]
    assert len(asked) == (0 if name == "JSON_SR" else 1)  # JSON says itself what it is


@pytest.mark.parametrize("name", ["AVRO", "PROTOBUF", "JSON_SR"])
def test_a_schema_of_columns_has_these_columns(name: str) -> None:
    text = schema_text(FormatInfo(name=name), columns(ROW), is_key=False)
    read = columns_of(RegisteredSchema(id=1, type=TYPES[name], text=text), None)
    assert read == list(parse_type(ROW).fields)


@pytest.mark.parametrize("name", ["AVRO", "JSON_SR"])
def test_nulls_come_back(name: str) -> None:
    form = made(name, ROW, schema_id=1)
    nulls = dict.fromkeys(VALUES)
    data = form.encode(nulls)
    assert data is not None
    assert form.decode(data) == nulls


def test_protobuf_writes_null_as_the_default_of_a_simple_type() -> None:
    form = made("PROTOBUF_NOSR", "STRUCT<A INT, B STRING, C STRUCT<X INT>, D ARRAY<INT>, E TIMESTAMP>")
    data = form.encode(dict.fromkeys("ABCDE"))
    assert data == b""
    assert form.decode(data) == {"A": 0, "B": "", "C": None, "D": [], "E": None}


@pytest.mark.parametrize("nullable", ["OPTIONAL", "WRAPPER"])
def test_protobuf_keeps_nulls_where_it_is_asked_to(nullable: str) -> None:
    form = made("PROTOBUF_NOSR", "STRUCT<A INT, B STRING, C BOOLEAN>", nullable=nullable)
    row = {"A": None, "B": "", "C": False}
    data = form.encode(row)
    assert data is not None
    assert form.decode(data) == row


def test_protobuf_has_no_null_in_an_array() -> None:
    with pytest.raises(ValueError, match="no null in an ARRAY"):
        made("PROTOBUF_NOSR", "STRUCT<A ARRAY<INT>>").encode({"A": [1, None]})


def test_protobuf_has_no_array_of_arrays() -> None:
    with pytest.raises(SqlError, match="PROTOBUF has no ARRAY<ARRAY<INTEGER>>"):
        made("PROTOBUF_NOSR", "STRUCT<A ARRAY<ARRAY<INT>>>")


def test_the_text_of_a_message_is_what_kafka_connect_calls_its_parts() -> None:
    text = schema_text(
        FormatInfo(name="PROTOBUF"),
        columns("STRUCT<A INT, M MAP<STRING, INT>, S STRUCT<X BIGINT>>"),
        is_key=False,
    )
    assert " ".join(text.split()) == (
        'syntax = "proto3"; message ConnectDefault1 { int32 A = 1; repeated ConnectDefault2Entry M = 2;'
        " ConnectDefault3 S = 3; message ConnectDefault2Entry { string key = 1; int32 value = 2; }"
        " message ConnectDefault3 { int64 X = 1; } }"
    )


def test_the_first_message_is_one_zero_byte_and_others_are_counted_and_listed(
    held: HeldSchemas, terms: SchemaRegistryTerms
) -> None:
    proto = 'syntax = "proto3"; package p; message First { int32 a = 1; } message Second { int32 a = 3; }'
    schema_id = held.register("t-value", proto, "PROTOBUF")
    info: dict[str, Any] = {"schema_id": schema_id, "registry": terms}
    assert made("PROTOBUF", "STRUCT<A INT>", **info).encode({"A": 5}) == b"\0\0\0\0\x07\0\x08\x05"
    second = made("PROTOBUF", "STRUCT<A INT>", schema_name="p.Second", **info)
    assert second.encode({"A": 5}) == b"\0\0\0\0\x07\x02\x02\x18\x05"
    for data in (b"\0\0\0\0\x07\x02\0\x08\x05", b"\0\0\0\0\x07\x02\x02\x18\x05"):
        assert second.decode(data) == {"A": 5}
    with pytest.raises(ValueError, match="no message at"):
        second.decode(b"\0\0\0\0\x07\x02\x04\x18\x05")


FOREIGN_PROTO = """
// a file of others
syntax = "proto3";
package shop.v1;
import "google/protobuf/timestamp.proto";
import "common.proto";
option java_package = "com.shop";
message Order {
  reserved 2, 15 to 17;
  optional string customer = 1;   // who
  map<string, int64> counts = 3;
  repeated Line lines = 4;
  oneof payment { string card = 5; double cash = 6; }
  State state = 7 [deprecated = true];
  google.protobuf.Timestamp placed_at = 8;
  common.Money total = 9;
  uint32 visits = 10;
  float weight = 11;
  message Line { string item = 1; int32 number = 2; }
  enum State { NEW = 0; PAID = 1; }
}
service Shop { rpc Buy (Order) returns (Order) { option idempotency_level = IDEMPOTENT; } }
"""
COMMON_PROTO = 'syntax = "proto3"; package common; message Money { int64 units = 1; string currency = 2; }'


def with_common(held: HeldSchemas) -> int:
    held.register("common.proto", COMMON_PROTO, "PROTOBUF")
    reference = {"name": "common.proto", "subject": "common.proto", "version": 1}
    return held.register("t-value", FOREIGN_PROTO, "PROTOBUF", [reference])


def test_a_proto_file_of_others_has_columns(held: HeldSchemas, terms: SchemaRegistryTerms) -> None:
    with_common(held)
    schema = SchemaRegistry(terms).latest("t-value")
    assert schema is not None
    columns = columns_of(schema, None)
    assert not isinstance(columns, SqlType)
    assert [f"{name} {kind}" for name, kind in columns] == [
        "CUSTOMER STRING",
        "COUNTS MAP<STRING, BIGINT>",
        "LINES ARRAY<STRUCT<`ITEM` STRING, `NUMBER` INTEGER>>",
        "CARD STRING",
        "CASH DOUBLE",
        "STATE STRING",
        "PLACED_AT TIMESTAMP",
        "TOTAL STRUCT<`UNITS` BIGINT, `CURRENCY` STRING>",
        "VISITS BIGINT",
        "WEIGHT DOUBLE",
    ]


@pytest.mark.skipif(importlib.util.find_spec("grpc_tools") is None, reason="grpcio-tools is absent")
def test_what_the_compiler_of_others_makes_of_a_file_is_read(
    held: HeldSchemas, terms: SchemaRegistryTerms, tmp_path: Path
) -> None:
    (tmp_path / "order.proto").write_text(FOREIGN_PROTO)
    (tmp_path / "common.proto").write_text(COMMON_PROTO)
    text = (
        'customer: "ann" counts {key: "x" value: 3} lines {item: "tea" number: 2} cash: 1.5 state: PAID'
        ' placed_at {seconds: 1} total {units: 4 currency: "EUR"} visits: 4000000000'
    )
    done = subprocess.run(
        [sys.executable, "-m", "grpc_tools.protoc", f"-I{tmp_path}", "--encode=shop.v1.Order", "order.proto"],
        input=text.encode(),
        capture_output=True,
        check=True,
        timeout=60,
    )
    kind = (
        "STRUCT<CUSTOMER STRING, COUNTS MAP<STRING, BIGINT>, LINES ARRAY<STRUCT<ITEM STRING, NUMBER INT>>, CARD STRING,"
        " CASH DOUBLE, STATE STRING, PLACED_AT TIMESTAMP, TOTAL STRUCT<UNITS BIGINT, CURRENCY STRING>, VISITS BIGINT,"
        " ABSENT INT>"
    )
    schema_id = with_common(held)
    form = made("PROTOBUF", kind, registry=terms, schema_id=schema_id)
    row = {
        "CUSTOMER": "ann",
        "COUNTS": {"x": 3},
        "LINES": [{"ITEM": "tea", "NUMBER": 2}],
        "CARD": None,
        "CASH": 1.5,
        "STATE": "PAID",
        "PLACED_AT": datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC),
        "TOTAL": {"UNITS": 4, "CURRENCY": "EUR"},
        "VISITS": 4_000_000_000,
        "ABSENT": None,
    }
    assert form.decode(b"\0" + schema_id.to_bytes(4, "big") + b"\0" + done.stdout) == row
    data = form.encode(row)
    assert data is not None
    assert form.decode(data) == row


FOREIGN_AVRO = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "customer", "type": "string"},
        {"name": "counts", "type": {"type": "map", "values": "long"}},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
        {"name": "placed", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "before", "type": ["null", "State"], "default": None},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "note", "type": "string", "default": "none"},
    ],
}


def test_an_avro_schema_of_others_is_read_and_written(held: HeldSchemas, terms: SchemaRegistryTerms) -> None:
    schema_id = held.register("t-value", json.dumps(FOREIGN_AVRO))
    schema = SchemaRegistry(terms).by_id(schema_id)
    columns = columns_of(schema, None)
    assert not isinstance(columns, SqlType)
    shown = ", ".join(f"`{name}` {kind}" for name, kind in columns)
    assert shown == (
        "`CUSTOMER` STRING, `COUNTS` MAP<STRING, BIGINT>, `STATE` STRING, `PLACED` TIMESTAMP, `BEFORE` STRING,"
        " `TAGS` ARRAY<STRING>, `NOTE` STRING"
    )
    form = made("AVRO", f"STRUCT<{shown}>", schema_id=schema_id, registry=terms)
    moment = datetime(2021, 5, 6, 7, 8, 9, 123000, tzinfo=UTC)
    row = {
        "CUSTOMER": "ann",
        "COUNTS": {"a": 1},
        "STATE": "PAID",
        "PLACED": moment,
        "BEFORE": "NEW",
        "TAGS": [],
        "NOTE": "x",
    }
    data = form.encode(row)
    assert data is not None
    plain = fastavro.schemaless_reader(io.BytesIO(data[5:]), fastavro.parse_schema(FOREIGN_AVRO), None)
    assert plain == {
        "customer": "ann",
        "counts": {"a": 1},
        "state": "PAID",
        "placed": moment,
        "before": "NEW",
        "tags": [],
        "note": "x",
    }
    assert form.decode(data) == row
    with pytest.raises(ValueError, match="customer"):
        form.encode({**row, "CUSTOMER": None})


def test_data_of_an_older_schema_is_read(held: HeldSchemas, terms: SchemaRegistryTerms) -> None:
    older_kind, newer_kind = "STRUCT<A INT>", "STRUCT<A INT, B STRING>"
    ids = [
        held.register("t-value", schema_text(FormatInfo(name="AVRO"), columns(kind), is_key=False))
        for kind in (older_kind, newer_kind)
    ]
    older = made("AVRO", older_kind, schema_id=ids[0], registry=terms)
    newer = made("AVRO", newer_kind, schema_id=ids[1], registry=terms)
    written_before, written_after = older.encode({"A": 1}), newer.encode({"A": 2, "B": "x"})
    assert written_before is not None
    assert written_after is not None
    assert newer.decode(written_before) == {"A": 1, "B": None}
    assert older.decode(written_after) == {"A": 2}


def test_a_key_of_one_column_is_bare_but_in_protobuf() -> None:
    assert made("AVRO", "STRUCT<A STRING>", is_key=True, schema_id=1).encode({"A": "x"}) == b"\0\0\0\0\1\x02x"
    assert (
        made("JSON_SR", "STRUCT<A STRING>", is_key=True, schema_id=1).encode({"A": "x"}) == b'\0\0\0\0\1"x"'
    )
    assert made("PROTOBUF", "STRUCT<A STRING>", is_key=True, schema_id=1).encode({"A": "x"}) == (
        b"\0\0\0\0\1\0\n\1x"
    )


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("AVRO", b"{}"),
        ("AVRO", b"\0\0\0\0\1"),
        ("AVRO", b"\0\0\0\0\1\x02\xff"),
        ("PROTOBUF", b"\0\0\0\0\1"),
        ("PROTOBUF", b"\0\0\0\0\1\0\xff"),
        ("PROTOBUF", b"\0\0\0\0\1\xff\xff\xff\xff\x0f\0"),
        ("PROTOBUF_NOSR", b"\xff"),
        ("JSON_SR", b'{"A":1}'),
        ("JSON_SR", b"\0\0\0\0\1{"),
    ],
)
def test_other_bytes_are_refused(name: str, data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        made(name, "STRUCT<A INT>", schema_id=1).decode(data)


def test_an_unknown_id_is_a_bad_record_and_a_registry_that_is_away_is_not(
    held: HeldSchemas,
) -> None:
    with schema_registry(held) as url:
        form = made("AVRO", "STRUCT<A INT>", schema_id=7, registry=SchemaRegistryTerms.of(url))
        with pytest.raises(UnknownSchemaId, match="no schema 99"):
            form.decode(b"\0\0\0\0\x63\0")
    away = made("AVRO", "STRUCT<A INT>", schema_id=7, registry=SchemaRegistryTerms.of(url))
    with pytest.raises(SchemaRegistryError, match="cannot be reached") as refused:
        away.decode(b"\0\0\0\0\x63\0")
    assert not isinstance(refused.value, ValueError)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('syntax = "proto3"; message A { int32 = 1; }', "is no .proto file"),
        ("message A {", "ends too soon"),
        ('syntax = "proto3"; import "x.proto"; message A { x.B b = 1; }', "imports x.proto"),
        ('syntax = "proto3"; message A { A inner = 1; }', "holds itself"),
        ('syntax = "proto3"; message A { Absent b = 1; }', "is no .proto file"),
        ('syntax = "proto3";', "has no message"),
    ],
)
def test_proto_files_that_have_no_columns_are_refused(text: str, says: str) -> None:
    with pytest.raises(SqlError, match=says):
        columns_of(RegisteredSchema(id=1, type="PROTOBUF", text=text), None)


@pytest.mark.parametrize(
    ("kind", "text", "says"),
    [
        ("AVRO", "{", "is no Avro schema"),
        (
            "AVRO",
            '{"type": "record", "name": "A", "fields": [{"name": "a", "type": ["int", "string"]}]}',
            "2 types",
        ),
        ("JSON", "{", "is no JSON Schema"),
        ("JSON", '{"type": "object", "properties": {"a": {"type": "null"}}}', "no type of a column"),
        ("JSON", '{"type": "object", "properties": {"a": {"$ref": "#"}}}', "refers to|holds itself"),
    ],
)
def test_other_schemas_that_have_no_columns_are_refused(kind: str, text: str, says: str) -> None:
    with pytest.raises(SqlError, match=says):
        columns_of(RegisteredSchema(id=1, type=kind, text=text), None)


def test_an_address_may_hold_a_login() -> None:
    terms = SchemaRegistryTerms.of("https://me:p%40ss@host:8081/registry/")
    assert (terms.url, terms.user, terms.password) == ("https://host:8081/registry", "me", "p@ss")
    assert "p@ss" not in repr(terms)
    with pytest.raises(OdradekError, match="write http://host:8081"):
        SchemaRegistryTerms.of("host:8081")


@pytest.mark.parametrize(
    ("schema", "kind", "stored", "value"),
    [
        ({"type": "string", "logicalType": "uuid"}, "STRING", "8d777f38-5d3d-4fec-815d-20f7496026dc", None),
        ({"type": "long", "logicalType": "local-timestamp-millis"}, "BIGINT", 5, None),
        ({"type": "long", "logicalType": "timestamp-nanos"}, "BIGINT", 5, None),
        ({"type": "string", "logicalType": "date"}, "STRING", "x", None),
        ({"type": "bytes", "logicalType": "decimal"}, "BYTES", b"\1", None),
        ({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 5}, "BYTES", b"\1", None),
        ({"type": "long", "logicalType": "time-micros"}, "TIME", 3_723_004_000, 3_723_004),
        (
            {"type": "long", "logicalType": "timestamp-micros"},
            "TIMESTAMP",
            -1_000,
            datetime(1969, 12, 31, 23, 59, 59, 999000, tzinfo=UTC),
        ),
        (
            {
                "type": "fixed",
                "name": "D",
                "size": 4,
                "logicalType": "decimal",
                "precision": 6,
                "scale": 2,
            },
            "DECIMAL(6, 2)",
            b"\xff\xff\xff\x83",
            Decimal("-1.25"),
        ),
    ],
)
def test_a_logical_type_is_a_type_of_columns_or_what_it_is_stored_as(
    held: HeldSchemas, terms: SchemaRegistryTerms, schema: Any, kind: str, stored: Any, value: Any
) -> None:
    text = json.dumps({"type": "record", "name": "R", "fields": [{"name": "a", "type": schema}]})
    schema_id = held.register("t-value", text)
    expected = parse_type(kind)
    assert columns_of(SchemaRegistry(terms).by_id(schema_id), None) == [("A", expected)]
    form = made("AVRO", f"STRUCT<A {kind}>", schema_id=schema_id, registry=terms)
    row = {"A": stored if value is None else value}
    data = form.encode(row)
    assert data is not None
    plain = fastavro.parse_schema(json.loads(text.replace("logicalType", "other")))
    assert fastavro.schemaless_reader(io.BytesIO(data[5:]), plain, None) == {"a": stored}
    assert form.decode(data) == row


def test_a_decimal_with_more_digits_than_its_schema_has_is_refused_and_not_rounded() -> None:
    form = made("AVRO", "STRUCT<A DECIMAL(4, 2)>", schema_id=1)
    data = form.encode({"A": Decimal("12.34")})
    assert data is not None
    assert form.decode(data) == {"A": Decimal("12.34")}
    with pytest.raises(ValueError, match="does not fit"):
        form.decode(data[:6] + b"\x06" + (123456).to_bytes(3, "big"))


def test_a_map_does_not_count_among_the_messages_within_a_message(
    held: HeldSchemas, terms: SchemaRegistryTerms
) -> None:
    proto = (
        'syntax = "proto3"; message Outer { map<string, int32> counts = 1; message Inner { int32 a = 1; } }'
    )
    schema_id = held.register("t-value", proto, "PROTOBUF")
    form = made("PROTOBUF", "STRUCT<A INT>", schema_name="Outer.Inner", schema_id=schema_id, registry=terms)
    data = form.encode({"A": 5})
    assert data == b"\0\0\0\0\x07\x04\0\0\x08\x05"
    assert form.decode(data) == {"A": 5}
