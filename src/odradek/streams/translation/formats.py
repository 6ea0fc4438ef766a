"""Bytes of records to structs, and back. What `format("odradek")` decodes is left to it: JSON by Arrow, text, raw bytes."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as sf
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
)

from odradek.model.errors import ConfigError
from odradek.streams.plan.schemas import DeclaredSchema
from odradek.streams.translation.frames import struct_type

_NESTED: Final = (StructType, ArrayType, MapType)
_BIG_ENDIAN_BYTES: Final[dict[type[DataType], int]] = {LongType: 8, IntegerType: 4, ShortType: 2}


def source_options(schema: DeclaredSchema, role: str) -> dict[str, str]:
    """Options of the source for what it can decode; the rest comes as text or bytes."""
    if schema.format == "kafka" or (schema.bare and _bare(schema) == BinaryType()):
        return {}
    if schema.format == "json" and not schema.bare:
        return {f"{role}Decode": "json", f"{role}Schema": schema.ddl}
    return {f"{role}Decode": "utf8"}


def _bare(schema: DeclaredSchema) -> DataType:
    kind = struct_type(schema.ddl)
    return kind.fields[0].dataType


def decoded(schema: DeclaredSchema, role: str) -> Column:
    """The struct of a key or a value, of what the source made of it. Null where the record has none."""
    column = sf.col(role)
    kind = struct_type(schema.ddl)
    if schema.format == "csv":
        parsed = sf.from_csv(column, schema.ddl, {"mode": "FAILFAST"})
        return sf.when(column.isNotNull(), parsed)
    if not schema.bare:
        if schema.format == "kafka":
            raise ConfigError(
                f"{role}_format='kafka' is for one bare value; {role} has {', '.join(schema.names)}"
            )
        return column
    (field,) = kind.fields
    if schema.format == "kafka":
        value = _from_kafka(column, field.dataType, role)
    elif isinstance(field.dataType, _NESTED):
        value = sf.from_json(column, field.dataType, {"mode": "FAILFAST"})
    else:
        value = column.cast(field.dataType)
    return sf.when(value.isNotNull(), sf.struct(value.alias(field.name)))


def _from_kafka(column: Column, kind: DataType, role: str) -> Column:
    if isinstance(kind, (StringType, BinaryType)):
        return column.cast(kind)
    size = _BIG_ENDIAN_BYTES.get(type(kind))
    if size is None:
        raise ConfigError(
            f"{role}_format='kafka' reads strings, bytes and whole numbers, not {kind.simpleString()}"
        )
    number = sf.conv(sf.hex(column), 16, -10).cast("bigint")
    full = 1 << (8 * size)
    return (number if size == 8 else sf.when(number >= full // 2, number - full).otherwise(number)).cast(kind)


def encoded(struct: str, kind: StructType, form: str, *, bare: bool) -> Column:
    """The bytes of a struct. Null stays null."""
    column = sf.col(struct)
    if not bare:
        if form == "kafka":
            raise ConfigError(
                f"the format 'kafka' is for one bare value, not for {', '.join(kind.fieldNames())}"
            )
        text = sf.to_csv(column) if form == "csv" else sf.to_json(column, {"ignoreNullFields": "false"})
        return sf.when(column.isNotNull(), text.cast("binary"))
    (field,) = kind.fields
    value = column.getField(field.name)
    if isinstance(field.dataType, (StringType, BinaryType)):
        return value.cast("binary")
    if form == "kafka":
        size = _BIG_ENDIAN_BYTES.get(type(field.dataType))
        if size is None:
            raise ConfigError(
                f"the format 'kafka' writes strings, bytes and whole numbers, not {field.dataType.simpleString()}"
            )
        return sf.unhex(sf.right(sf.lpad(sf.hex(value.cast("bigint")), 16, "0"), sf.lit(2 * size)))
    if isinstance(field.dataType, _NESTED):
        return sf.to_json(value, {"ignoreNullFields": "false"}).cast("binary")
    return value.cast("string").cast("binary")
