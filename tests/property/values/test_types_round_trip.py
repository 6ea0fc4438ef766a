"""A type is the same after a way through each of its forms: SQL, DDL, Arrow, and the schema languages."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from hypothesis import example, given
from tests.property.values.sql_types import (
    ANY_NAMES,
    IDENTIFIERS,
    SPARK_KINDS,
    SQL_KINDS,
    decimals,
    sql_types,
    structs,
)

from odradek.values.arrow_types import CODECS, FRAMES, SPARK, arrow_type, declared_name, sql_type
from odradek.values.ddl import parsed_ddl
from odradek.values.errors import SqlError
from odradek.values.formats import record_format
from odradek.values.formats.avro_schemas import FRAME_TYPES, avro_schema, avro_type, parsed_schema
from odradek.values.formats.format_info import FormatColumn, FormatInfo
from odradek.values.formats.json_sr_format import json_schema, json_type
from odradek.values.formats.protobuf_schemas import FRAME_TYPES as PROTO_TYPES
from odradek.values.formats.protobuf_schemas import proto_file, proto_text, proto_type
from odradek.values.formats.record_format import check_map_keys
from odradek.values.schema_registry import RegisteredSchema
from odradek.values.types import STRING, SqlType, array_of, decimal_of, map_of, parse_type, struct_of_fields

EVERY_KIND = (*SQL_KINDS, *SPARK_KINDS)


def columns_of(struct: SqlType) -> tuple[FormatColumn, ...]:
    return tuple(FormatColumn(name=name, column=name, type=kind) for name, kind in struct.fields)


@given(sql_types())
def test_a_type_is_the_one_that_its_sql_text_stands_for(kind: SqlType) -> None:
    assert parse_type(str(kind)) == kind


@given(sql_types(EVERY_KIND))
def test_a_type_is_the_one_that_its_ddl_stands_for(kind: SqlType) -> None:
    assert parsed_ddl(kind.ddl).type == kind.stored
    assert kind.stored.ddl == kind.ddl
    fields = struct_of_fields([("a", kind), ("b`c", kind)])
    assert parsed_ddl(fields.fields_ddl).type == fields.stored
    assert [field.type for field in parsed_ddl(fields.fields_ddl).fields or ()] == [kind.stored] * 2


@given(sql_types(EVERY_KIND))
def test_a_type_is_the_one_that_its_arrow_type_stands_for(kind: SqlType) -> None:
    assert sql_type(arrow_type(kind, SPARK)) == kind.stored
    assert sql_type(arrow_type(kind, FRAMES)) == kind
    assert parsed_ddl(declared_name(arrow_type(kind, SPARK))).type == kind.stored
    frame, codec = (pa.array([None], arrow_type(kind, types)) for types in (FRAMES, CODECS))
    assert codec.cast(frame.type) == frame


@given(structs(sql_types(names=IDENTIFIERS), IDENTIFIERS))
@example(
    parse_type(
        "STRUCT<`a` STRUCT<`b_c` STRUCT<`x` INT>>, `a_b` STRUCT<`c` STRUCT<`y` INT>>,"
        " `b` MAP<STRING, STRUCT<`z` INT>>, `b_MapValue` STRUCT<`b` ARRAY<STRUCT<`x` INT>>, `b_2` STRUCT<`x` INT>>>"
    )
)
def test_a_type_is_the_one_that_its_avro_schema_stands_for(struct: SqlType) -> None:
    if _holds(struct, lambda kind: kind.kind == "MAP" and kind.map_key != STRING):
        with pytest.raises(SqlError, match="AVRO has no MAP"):
            avro_schema(columns_of(struct))
        return
    text = json.dumps(avro_schema(columns_of(struct)))
    assert avro_type(parsed_schema(text, "it"), FRAME_TYPES) == struct


@given(structs(sql_types(names=IDENTIFIERS), IDENTIFIERS))
def test_a_type_is_the_one_that_its_proto_text_stands_for(struct: SqlType) -> None:
    if _holds(struct, lambda kind: kind.kind == "ARRAY" and kind.element.kind in ("ARRAY", "MAP")):
        with pytest.raises(SqlError, match="PROTOBUF has no ARRAY"):
            proto_text(columns_of(struct), None, None)
        return
    for nullable in (None, "OPTIONAL", "WRAPPER"):
        text = proto_text(columns_of(struct), None, nullable)
        file = proto_file(RegisteredSchema(id=1, type="PROTOBUF", text=text))
        assert proto_type(file.message_at((0,)), PROTO_TYPES, file.decimals) == _as_read(struct)


def _as_read(kind: SqlType) -> SqlType:
    """Protobuf's timestamps keep nanoseconds: in frames they have microseconds."""
    if kind.kind == "TIMESTAMP":
        return SqlType(kind="TIMESTAMP_LTZ")
    if kind.kind == "STRUCT":
        return struct_of_fields([(name, _as_read(part)) for name, part in kind.fields])
    if kind.kind == "DECIMAL":
        return kind
    return SqlType(kind=kind.kind, parts=tuple(map(_as_read, kind.parts)))


@given(structs(sql_types(), ANY_NAMES))
def test_a_type_is_the_one_that_its_json_schema_stands_for(struct: SqlType) -> None:
    if _holds(struct, lambda kind: kind.kind == "MAP" and kind.map_key != STRING):
        with pytest.raises(SqlError, match="only supports MAP types with STRING keys"):
            check_map_keys(record_format(FormatInfo(name="JSON_SR"), columns_of(struct), is_key=False))
        return
    schema = RegisteredSchema(
        id=1, type="JSON", text=json.dumps(json_schema(columns_of(struct), wrapped=True))
    )
    assert json_type(schema, upper_names=False) == struct


def _holds(kind: SqlType, is_such) -> bool:  # type: ignore[no-untyped-def]
    inner = (*kind.parts, *(part for _, part in kind.fields))
    return is_such(kind) or any(_holds(part, is_such) for part in inner)


@given(decimals())
def test_decimals_of_every_precision_are_the_same_everywhere(kind: SqlType) -> None:
    for whole in (kind, array_of(kind), map_of(kind, kind)):
        assert (
            parse_type(str(whole))
            == parsed_ddl(whole.ddl).type
            == sql_type(arrow_type(whole, SPARK))
            == whole
        )


@pytest.mark.parametrize(
    ("ddl", "kind"),
    [
        ("interval day to second", None),
        ("VARIANT", None),
        ("varchar(7)", None),
        ("STRING COLLATE UTF8_LCASE", None),
        ("time(3)", None),
        ("DECIMAL(0)", None),
        ("ARRAY<MAP<STRING, STRUCT<a: INTERVAL>>>", None),
        ("dec", decimal_of(10, 0)),
        ("NUMERIC(7)", decimal_of(7, 0)),
        ("TIMESTAMP WITHOUT TIME ZONE", SqlType(kind="TIMESTAMP_NTZ")),
        ("TIMESTAMP WITH LOCAL TIME ZONE", SqlType(kind="TIMESTAMP_LTZ")),
        ("a INT NOT NULL COMMENT 'x'", struct_of_fields([("a", SqlType(kind="INTEGER"))])),
        ("a: BYTE", struct_of_fields([("a", SqlType(kind="TINYINT"))])),
        ("struct<>", struct_of_fields([])),
    ],
)  # fmt: skip
def test_ddl_that_only_spark_has_is_of_no_type_here(ddl: str, kind: SqlType | None) -> None:
    assert parsed_ddl(ddl).type == kind


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        (pa.large_string(), "STRING"),
        (pa.dictionary(pa.int8(), pa.large_binary()), "BYTES"),
        (pa.uint8(), "SMALLINT"),
        (pa.uint32(), "BIGINT"),
        (pa.float16(), "FLOAT"),
        (pa.large_list(pa.date64()), "ARRAY<DATE>"),
        (pa.list_(pa.bool_(), 3), "ARRAY<BOOLEAN>"),
        (pa.decimal256(38, 2), "DECIMAL(38, 2)"),
        (pa.timestamp("s", "Europe/Berlin"), "TIMESTAMP"),
        (pa.timestamp("ms"), "TIMESTAMP_NTZ"),
    ],
)
def test_the_layout_of_an_arrow_column_is_no_matter_of_its_type(column: pa.DataType, kind: str) -> None:
    assert str(sql_type(column)) == kind


@pytest.mark.parametrize(
    "column",
    [
        pa.uint64(),
        pa.decimal256(39, 0),
        pa.decimal128(5, -1),
        pa.duration("us"),
        pa.month_day_nano_interval(),
        pa.list_(pa.uint64()),
        pa.struct([("a", pa.time64("us"))]),
        pa.dense_union([pa.field("a", pa.int8())]),
    ],
)
def test_arrow_types_without_a_type_of_sql_are_refused_and_shown_by_arrows_name(column: pa.DataType) -> None:
    with pytest.raises(SqlError, match="no column has the Arrow type"):
        sql_type(column)
    assert declared_name(column) == str(column)


def test_the_type_of_an_argument_has_no_column() -> None:
    for kind in (
        SqlType(kind="LAMBDA", parts=(STRING,)),
        SqlType(kind="UNIT"),
        array_of(SqlType(kind="UNIT")),
    ):
        with pytest.raises(SqlError, match="is an argument of a function"):
            arrow_type(kind, FRAMES)
