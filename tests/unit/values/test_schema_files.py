"""Avro and Protobuf, plain and framed: what schema files become, bytes there and back, and bytes that are wrong."""

from __future__ import annotations

import datetime as dt
import json
import pickle
import struct
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from odradek.model.errors import ConfigError
from odradek.streams import Avro, Protobuf
from odradek.values.errors import SqlError
from odradek.values.formats.avro_schemas import check_bounded, parsed_schema
from odradek.values.formats.avro_values import AvroCodec
from odradek.values.types import SqlType, struct_of_fields

NOON = dt.datetime(2026, 5, 4, 12, tzinfo=dt.UTC)
ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "item", "type": "string"},
        {"name": "amount", "type": ["null", "double"], "default": None},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["NEW", "OLD"]}},
        {"name": "was", "type": "shop.Kind"},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "counts", "type": {"type": "map", "values": "long"}},
        {
            "name": "to",
            "type": {"type": "record", "name": "To", "fields": [{"name": "city", "type": "string"}]},
        },
    ],
}
AN_ORDER = {
    "item": "tea",
    "amount": None,
    "at": NOON,
    "day": NOON.date(),
    "price": Decimal("3.50"),
    "id": "8d777f38-5d3d-4fec-815d-20f7496026dc",
    "kind": "NEW",
    "was": "OLD",
    "tags": ["a", "b"],
    "counts": {"x": 1},
    "to": {"city": "Praha"},
}
PROTO = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
enum Kind { NEW = 0; OLD = 1; }
message Order {
  string item = 1;
  optional double amount = 2;
  google.protobuf.Timestamp at = 3;
  Kind kind = 4;
  repeated string tags = 5;
  map<string, int64> counts = 6;
  message To { string city = 1; }
  To to = 7;
  repeated To past = 8;
  uint64 large = 9;
  bytes raw = 10;
  map<string, Kind> kinds = 11;
}
message Other { string name = 1; }
"""
A_MESSAGE = {
    "item": "tea",
    "amount": 2.5,
    "at": NOON,
    "kind": "OLD",
    "tags": ["a"],
    "counts": {"x": 1},
    "to": {"city": "Praha"},
    "past": [{"city": "Wien"}],
    "large": Decimal(2**63),
    "raw": b"\x00",
    "kinds": {"k": "OLD"},
}


@pytest.fixture
def avro_file(tmp_path: Path) -> Callable[[Any], Path]:
    def write(schema: Any) -> Path:
        path = tmp_path / "schema.avsc"
        path.write_text(json.dumps(schema))
        return path

    return write


@pytest.fixture(scope="module")
def proto_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("grpc_tools")
    path = tmp_path_factory.mktemp("proto") / "orders.proto"
    path.write_text(PROTO)
    return path


@pytest.fixture(scope="module")
def orders(proto_file: Path) -> Protobuf:
    return Protobuf(proto_file, message="shop.Order")


def test_avro_has_columns_and_comes_back_as_it_was(avro_file: Callable[[Any], Path]) -> None:
    avro = Avro(avro_file(ORDER))
    assert avro.ddl == (
        "`item` STRING, `amount` DOUBLE, `at` TIMESTAMP, `day` DATE, `price` DECIMAL(9,2), `id` STRING, `kind` STRING,"
        " `was` STRING, `tags` ARRAY<STRING>, `counts` MAP<STRING,BIGINT>, `to` STRUCT<`city`: STRING>"
    )
    carried = pickle.loads(pickle.dumps(avro))
    assert carried.decode(avro.encode(AN_ORDER)) == AN_ORDER


@pytest.mark.parametrize(
    ("schema", "ddl", "value"),
    [
        ("string", "STRING", "ann"),
        ("long", "BIGINT", -3),
        (["null", "int"], "INT", None),
        ({"type": "bytes"}, "BINARY", b"\0"),
    ],
)
def test_avro_of_one_value_is_bare(
    avro_file: Callable[[Any], Path], schema: Any, ddl: str, value: Any
) -> None:
    avro = Avro(avro_file(schema))
    assert (avro.ddl, avro.is_record) == (ddl, False)
    assert avro.decode(avro.encode(value)) == value


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        (["int", "string"], "union of 2 types is no type of a column"),
        ("no-type", "is no Avro schema"),
        (
            {"type": "record", "name": "L", "fields": [{"name": "next", "type": ["null", "L"]}]},
            "L holds itself",
        ),
    ],
)
def test_avro_without_a_column_type_is_refused(
    avro_file: Callable[[Any], Path], schema: Any, reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason):
        Avro(avro_file(schema))


def test_a_file_that_is_gone_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"gone\.avsc cannot be read: No such file"):
        Avro(tmp_path / "gone.avsc")


@pytest.mark.parametrize("data", [b"", b"\x06te", b"not avro at all", b"\x02a\x00"])
def test_avro_refuses_other_bytes(avro_file: Callable[[Any], Path], data: bytes) -> None:
    avro = Avro(avro_file({"type": "record", "name": "R", "fields": [{"name": "a", "type": "string"}]}))
    with pytest.raises(ValueError, match=r"."):
        avro.decode(data)


def test_avro_refuses_a_value_that_does_not_fit(avro_file: Callable[[Any], Path]) -> None:
    with pytest.raises(ValueError, match=r"."):
        Avro(avro_file(ORDER)).encode({"item": 3})


def test_the_frame_of_confluent_is_a_zero_and_the_schema_id(avro_file: Callable[[Any], Path]) -> None:
    path = avro_file("string")
    framed = Avro(path, confluent=True, schema_id=17)
    data = framed.encode("ann")
    assert data == struct.pack(">bI", 0, 17) + Avro(path).encode("ann")
    assert framed.decode(data) == Avro(path, confluent=True).decode(data) == "ann"
    with pytest.raises(ValueError, match="the schema id is 17, not 18"):
        Avro(path, confluent=True, schema_id=18).decode(data)
    with pytest.raises(ValueError, match="no magic byte"):
        framed.decode(Avro(path).encode("ann"))
    with pytest.raises(ConfigError, match="needs schema_id="):
        Avro(path, confluent=True).encode("ann")
    with pytest.raises(ConfigError, match="plain data holds no id"):
        Avro(path, schema_id=1)


def test_protobuf_has_columns_and_comes_back_as_it_was(orders: Protobuf) -> None:
    assert orders.ddl == (
        "`item` STRING, `amount` DOUBLE, `at` TIMESTAMP, `kind` STRING, `tags` ARRAY<STRING>,"
        " `counts` MAP<STRING,BIGINT>, `to` STRUCT<`city`: STRING>, `past` ARRAY<STRUCT<`city`: STRING>>,"
        " `large` DECIMAL(20,0), `raw` BINARY, `kinds` MAP<STRING,STRING>"
    )
    read = pickle.loads(pickle.dumps(orders)).decode(orders.encode(A_MESSAGE))
    assert read == A_MESSAGE


def test_protobuf_fields_without_presence_have_their_default(orders: Protobuf) -> None:
    read = orders.decode(b"")
    assert (read["item"], read["amount"], read["to"], read["kind"], read["tags"]) == (
        "",
        None,
        None,
        "NEW",
        [],
    )


def test_the_frame_of_protobuf_says_which_message(proto_file: Path) -> None:
    first = Protobuf(proto_file, message="shop.Order", confluent=True, schema_id=3)
    second = Protobuf(proto_file, message="shop.Other", confluent=True, schema_id=3)
    nested = Protobuf(proto_file, message="shop.Order.To", confluent=True, schema_id=3)
    assert first.encode({}) == b"\x00\x00\x00\x00\x03\x00"
    assert second.encode({}) == b"\x00\x00\x00\x00\x03\x02\x02"
    assert nested.encode({"city": "x"})[5:8] == b"\x04\x00\x00"
    assert nested.decode(nested.encode({"city": "Praha"})) == {"city": "Praha"}
    with pytest.raises(ValueError, match=r"number \[1\] of its file, not \[0\]"):
        first.decode(second.encode({}))


@pytest.mark.parametrize("data", [b"\xff", b"\x0a\x05te", b"not a message"])
def test_protobuf_refuses_other_bytes(orders: Protobuf, data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        orders.decode(data)


@pytest.mark.parametrize("value", [{"items": "tea"}, {"item": 3}, {"kind": "STRANGE"}])
def test_protobuf_refuses_what_does_not_fit(orders: Protobuf, value: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"."):
        orders.encode(value)


def test_a_proto_file_that_is_wrong_says_where(tmp_path: Path, proto_file: Path) -> None:
    broken = tmp_path / "broken.proto"
    broken.write_text('syntax = "proto3"; message A { strin x = 1; }')
    with pytest.raises(ConfigError, match=r"broken\.proto does not compile: .*strin"):
        Protobuf(broken)
    with pytest.raises(ConfigError, match="has the messages Order, Other: name one"):
        Protobuf(proto_file)
    with pytest.raises(ConfigError, match=r"has no message shop\.None"):
        Protobuf(proto_file, message="shop.None")


@pytest.mark.parametrize(
    ("field", "line"),
    [
        (
            {"type": "record", "name": "L", "fields": [{"name": "next", "type": ["null", "L"]}]},
            "holds itself",
        ),
        ({"type": "array", "items": "null"}, "items without bytes"),
        (
            {"type": "map", "values": {"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}}},
            "bytes",
        ),
    ],
)
def test_a_part_that_no_column_reads_has_a_limit_too(field: Any, line: str) -> None:
    """Fastavro reads the whole record: a deep one overflows the stack, and a list of nothing fills the memory."""
    fields = [{"name": "a", "type": "int"}, {"name": "b", "type": field}]
    schema = parsed_schema(json.dumps({"type": "record", "name": "R", "fields": fields}), "R")
    with pytest.raises(SqlError, match=line):
        AvroCodec(schema, struct_of_fields([("a", SqlType(kind="INTEGER"))]))
    bounded = parsed_schema(json.dumps({"type": "array", "items": ["null", "int"]}), "A")
    check_bounded(bounded)
