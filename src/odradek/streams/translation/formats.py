"""Bytes of records to structs, and back. What `format("odradek")` decodes is left to it: JSON by Arrow, text, raw bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from pyarrow import compute as pc
from pyspark.sql import Column
from pyspark.sql import functions as sf
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DoubleType,
    FloatType,
    MapType,
    StringType,
    StructType,
)

from odradek.spark.rows.json_text import json_value
from odradek.spark.rows.record_bytes import record_decoder, record_encoder
from odradek.streams.plan.schemas import DeclaredSchema, Format, TypedField
from odradek.streams.translation.frames import struct_type
from odradek.values.ddl import parsed_ddl
from odradek.values.formats import RecordFormat
from odradek.values.formats.kafka_format import KAFKA_NUMBERS, KafkaNumber
from odradek.values.formats.schema_format import SchemaFormat

_NESTED: Final = (StructType, ArrayType, MapType)
_CORRUPT: Final = "__corrupt"
_JSON: Final = {"allowSingleQuotes": "false"}
_CSV: Final = {"escape": '"', "ignoreLeadingWhiteSpace": "false", "ignoreTrailingWhiteSpace": "false"}
"""Options of CSV as RFC 4180 and the SQL server's DELIMITED have it: a quote within quotes is doubled, and blanks stay."""


class Decoded(NamedTuple):
    """A decoded column, and what is wrong with it.

    `struct`: null where the record has none, and where it is wrong. `problem`: what is wrong, as text; null in good rows.
    None: the source reports it.
    """

    struct: Column
    problem: Column | None = None


def arrow_column(function: Callable[..., pa.Array], kind: DataType, *arguments: Column) -> Column:
    """Returns the column that a function computes from columns, batch by batch. Its type hints tell Spark its kind."""
    define: Any = arrow_udf
    called: Column = define(function, kind)(*arguments)
    return called


def format_text(form: Format) -> str | None:
    """Returns the text by which sources and sinks know a format; None: functions of the plan decode and encode it."""
    return form.text if isinstance(form, RecordFormat) else None


def source_options(schema: DeclaredSchema, role: str) -> dict[str, str]:
    """Options of the source for what it can decode; the rest comes as text or bytes."""
    text = format_text(schema.format)
    if text is not None:
        return {f"{role}Format": text}
    raw = not isinstance(schema.format, str) or schema.format == "kafka"
    if raw or (schema.bare and _bare(schema) == BinaryType()):
        return {}
    if schema.format == "json" and not schema.bare:
        return {f"{role}Decode": "json", f"{role}Schema": schema.ddl}
    return {f"{role}Decode": "utf8"}


def _bare(schema: DeclaredSchema) -> DataType:
    return struct_type(schema.ddl).fields[0].dataType


def is_decoded_by_source(schema: DeclaredSchema) -> bool:
    """Tells whether `decoded` only passes on what the source has decoded."""
    if schema.format != "json":
        return False
    return not schema.bare or _bare(schema) in (StringType(), BinaryType())


def decoded(schema: DeclaredSchema, role: str, *, by_source: bool = False) -> Decoded:
    """Returns a key or a value, of what the source made of it. `by_source`: it had the options of `source_options`; otherwise
    it has read bytes, where the format has a schema."""
    column = sf.col(role)
    if not isinstance(schema.format, str):
        if by_source and format_text(schema.format) is not None:
            return _of_outcome(column, schema, schema.format)
        return _by_schema(column, schema, schema.format)
    if schema.format == "csv":
        return _from_csv(column, schema)
    if not schema.bare:
        return Decoded(column)
    kind = _bare(schema)
    problem = None
    if schema.format == "kafka":
        value, problem = _from_kafka(column, kind)
    elif isinstance(kind, _NESTED):
        value, is_wrong = json_value(column, kind, _JSON)
        problem = sf.when(is_wrong, _not(f"JSON of {schema.ddl}"))
    else:
        value = column if isinstance(kind, (StringType, BinaryType)) else column.try_cast(kind)
        problem = sf.when(value.isNull() & column.isNotNull(), _not(f"a {kind.simpleString()}"))
    struct = sf.when(value.isNotNull(), sf.struct(value.alias(schema.names[0])))
    return Decoded(struct, problem)


def _not(what: str) -> Column:
    return sf.lit(f"it is not {what}")


def _from_csv(column: Column, schema: DeclaredSchema) -> Decoded:
    parsed = sf.from_csv(
        column,
        f"{schema.ddl}, {_CORRUPT} STRING",
        {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT, **_CSV},
    )
    wrong = parsed.getField(_CORRUPT).isNotNull()
    struct = sf.struct(*(parsed.getField(name).alias(name) for name in schema.names))
    return Decoded(sf.when(column.isNotNull() & ~wrong, struct), sf.when(wrong, _not(f"CSV of {schema.ddl}")))


def _from_kafka(column: Column, kind: DataType) -> tuple[Column, Column | None]:
    if isinstance(kind, BinaryType):
        return column, None
    if isinstance(kind, StringType):
        text = sf.try_validate_utf8(column.cast("string"))
        return text, sf.when(text.isNull() & column.isNotNull(), _not("text in UTF-8"))
    size = _kafka_number(kind).size_bytes
    fits = sf.octet_length(column) == size
    data = sf.when(fits, column)
    length = sf.concat(
        sf.lit("it has "), sf.octet_length(column), sf.lit(f" bytes, a {kind.simpleString()} has {size}")
    )
    problem = sf.when(~fits, length)
    if isinstance(kind, (FloatType, DoubleType)):
        return arrow_column(_floats_of(size), kind, data), problem
    number = sf.conv(sf.hex(data), 16, -10).cast("bigint")
    full = 1 << (8 * size)
    value = number if size == 8 else sf.when(number >= full // 2, number - full).otherwise(number)
    return value.cast(kind), problem


def kafka_number(kind: DataType) -> KafkaNumber | None:
    """Returns the serializer of Kafka for numbers of a type; None for all others."""
    return KAFKA_NUMBERS.get(_kind_of(kind) or "")


def _kafka_number(kind: DataType) -> KafkaNumber:
    number = kafka_number(kind)
    assert number is not None, f"the plan allows no {kind.simpleString()}"
    return number


def typed_fields(struct: StructType) -> list[TypedField]:
    """Returns the fields of a struct, as the plan's checks take them."""
    return [
        TypedField(field.name, field.dataType.simpleString().upper(), _kind_of(field.dataType))
        for field in struct.fields
    ]


def _kind_of(kind: DataType) -> str | None:
    """Returns the kind of the `SqlType` for a type of Spark; None where there is none."""
    for nested in _NESTED:
        if isinstance(kind, nested):
            return nested.typeName().upper()
    simple = parsed_ddl(kind.simpleString()).type
    return None if simple is None else simple.kind


def _floats_of(size: int) -> Callable[[pa.Array], pa.Array]:
    """Returns a function that makes numbers of IEEE 754 of bytes with this size, and of nulls."""

    def read(datas: pa.Array) -> pa.Array:
        joined = b"".join(pc.fill_null(datas, bytes(size)).to_pylist())
        numbers = np.frombuffer(joined, f">f{size}").astype(f"=f{size}")
        return pa.array(numbers, mask=np.asarray(datas.is_null()))

    return read


def _bytes_of_floats(size: int) -> Callable[[pa.Array], pa.Array]:
    """Returns a function that writes numbers of IEEE 754 with this size. Every NaN is the same one, as Kafka's serializer of
    doubles writes it."""

    def write(numbers: pa.Array) -> pa.Array:
        filled = np.asarray(pc.fill_null(numbers, 0.0))
        data = pa.py_buffer(np.where(np.isnan(filled), np.nan, filled).astype(f">f{size}").tobytes())
        fixed = pa.FixedSizeBinaryArray.from_buffers(pa.binary(size), len(numbers), [None, data])
        return pc.if_else(numbers.is_valid(), fixed.cast(pa.binary()), None)

    return write


def _by_schema(column: Column, schema: DeclaredSchema, form: SchemaFormat) -> Decoded:
    kind = struct_type(schema.ddl)
    value: DataType = kind if form.is_record else kind.fields[0].dataType
    decoded_type = StructType().add("value", value).add("problem", StringType())
    return _of_outcome(arrow_column(decoder(form, value), decoded_type, column), schema, form)


def _of_outcome(outcome: Column, schema: DeclaredSchema, form: SchemaFormat) -> Decoded:
    """Returns a column of {value, problem} in two."""
    content = outcome.getField("value")
    struct = (
        content if form.is_record else sf.when(content.isNotNull(), sf.struct(content.alias(schema.names[0])))
    )
    return Decoded(struct, outcome.getField("problem"))


def decoder(form: SchemaFormat, kind: DataType) -> Callable[[pa.Array], pa.Array]:
    """Returns a function from bytes to {value, problem}, as `record_decoder` does. `kind`: of the value."""
    return record_decoder(form, to_arrow_type(kind, timezone="UTC"))


def encoded(struct: str, kind: StructType, form: Format, *, bare: bool) -> Column:
    """Returns the bytes of a struct that the format holds (`check_holds`). Null stays null."""
    column = sf.col(struct)
    if not isinstance(form, str):
        return _with_schema(column, kind, form)
    if not bare:
        text = sf.to_csv(column, _CSV) if form == "csv" else sf.to_json(column, {"ignoreNullFields": "false"})
        return sf.when(column.isNotNull(), text.cast("binary"))
    (field,) = kind.fields
    value = column.getField(field.name)
    if form == "csv":
        return sf.when(value.isNotNull(), sf.to_csv(column, _CSV).cast("binary"))
    if isinstance(field.dataType, (StringType, BinaryType)):
        return value.cast("binary")
    if form == "kafka":
        size = _kafka_number(field.dataType).size_bytes
        if isinstance(field.dataType, (FloatType, DoubleType)):
            return arrow_column(_bytes_of_floats(size), BinaryType(), value)
        return sf.unhex(sf.right(sf.lpad(sf.hex(value.cast("bigint")), 16, "0"), sf.lit(2 * size)))
    if isinstance(field.dataType, _NESTED):
        return sf.to_json(value, {"ignoreNullFields": "false"}).cast("binary")
    return value.cast("string").cast("binary")


def _with_schema(column: Column, kind: StructType, form: SchemaFormat) -> Column:
    if form.is_record:
        return arrow_column(record_encoder(form), BinaryType(), column)
    return arrow_column(record_encoder(form), BinaryType(), column.getField(kind.fields[0].name))
