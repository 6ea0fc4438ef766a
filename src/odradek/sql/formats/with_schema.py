"""AVRO and PROTOBUF in Confluent's framing: a schema that is made of the columns, as ksqlDB makes it."""

from __future__ import annotations

import io
import struct
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

from odradek.model.lazy import lazy
from odradek.sql.catalog import FormatInfo
from odradek.sql.errors import SqlError
from odradek.sql.formats.columns import FormatColumn
from odradek.sql.formats.times import moment_ms
from odradek.sql.types import SqlType

fastavro: Any = lazy("fastavro")

_HEAD: Final = struct.Struct(">bI")
_RECORD: Final = "io.confluent.ksql.avro_schemas.KsqlDataSourceSchema"
_SIMPLE: Final[dict[str, Any]] = {
    "BOOLEAN": "boolean",
    "INTEGER": "int",
    "BIGINT": "long",
    "DOUBLE": "double",
    "STRING": "string",
    "BYTES": "bytes",
    "DATE": {"type": "int", "logicalType": "date"},
    "TIME": {"type": "int", "logicalType": "time-millis"},
    "TIMESTAMP": {"type": "long", "logicalType": "timestamp-millis"},
}


def avro_schema(columns: tuple[FormatColumn, ...], name: str | None = None, *, wrapped: bool = True) -> Any:
    """The schema that is registered for these columns."""
    if not wrapped:
        return _avro_type(columns[0].type, _RECORD, columns[0].name)
    return {
        "type": "record",
        "name": (name or _RECORD).rpartition(".")[2],
        "namespace": (name or _RECORD).rpartition(".")[0],
        "fields": [_avro_field(column.name, column.type, name or _RECORD) for column in columns],
    }


def _avro_field(name: str, kind: SqlType, parent: str) -> dict[str, Any]:
    return {"name": name, "type": ["null", _avro_type(kind, parent, name)], "default": None}


def _avro_type(kind: SqlType, parent: str, name: str) -> Any:
    simple = _SIMPLE.get(kind.kind)
    if simple is not None:
        return simple
    path = f"{parent}_{name}"
    match kind.kind:
        case "DECIMAL":
            return {
                "type": "bytes",
                "logicalType": "decimal",
                "precision": kind.precision,
                "scale": kind.scale,
            }
        case "ARRAY":
            return {"type": "array", "items": ["null", _avro_type(kind.element, parent, name)]}
        case "MAP" if kind.map_key.kind == "STRING":
            fields = [
                {"name": "key", "type": ["null", "string"], "default": None},
                {
                    "name": "value",
                    "type": ["null", _avro_type(kind.element, path, "MapValue")],
                    "default": None,
                },
            ]
            entry = {
                "type": "record",
                "name": f"{path.rpartition('.')[2]}",
                "namespace": path.rpartition(".")[0],
                "fields": fields,
                "connect.internal.type": "MapEntry",
            }
            return {"type": "array", "items": entry, "connect.internal.type": "MapEntry"}
        case "STRUCT":
            return {
                "type": "record",
                "name": path.rpartition(".")[2],
                "namespace": path.rpartition(".")[0],
                "fields": [_avro_field(field, part, path) for field, part in kind.fields],
            }
    raise SqlError(f"AVRO has no {kind}")


class AvroFormat:
    """`schema_id`: of the registry, which writing needs. Data of another id of the same columns is read, too."""

    def __init__(self, columns: tuple[FormatColumn, ...], info: FormatInfo, *, wrapped: bool) -> None:
        self._columns = columns
        self._schema_id = info.schema_id
        self._wrapped = wrapped
        self._written = avro_schema(columns, info.schema_name, wrapped=wrapped)
        self._parsed: Any = None

    def __getstate__(self) -> Any:
        return {**vars(self), "_parsed": None}

    def _schema(self) -> Any:
        if self._parsed is None:
            self._parsed = fastavro.parse_schema(self._written)
        return self._parsed

    def encode(self, values: Mapping[str, Any]) -> bytes | None:
        if self._schema_id is None:
            raise ValueError("writing AVRO needs the id of a schema in the registry")
        out = io.BytesIO()
        out.write(_HEAD.pack(0, self._schema_id))
        row: Any = {column.name: _to_avro(values[column.column], column.type) for column in self._columns}
        if not self._wrapped:
            (row,) = row.values()
            if row is None:
                return None
        fastavro.schemaless_writer(out, self._schema(), row)
        return out.getvalue()

    def decode(self, data: bytes) -> dict[str, Any] | None:
        if len(data) < _HEAD.size or data[0] != 0:
            raise ValueError("no magic byte and schema id before the data")
        try:
            row: Any = fastavro.schemaless_reader(io.BytesIO(data[_HEAD.size :]), self._schema(), None)
        except (EOFError, IndexError, struct.error, StopIteration) as error:
            raise ValueError(f"no data of the schema: {error}") from error
        if not self._wrapped:
            row = {self._columns[0].name: row}
        return {column.column: _from_avro(row[column.name], column.type) for column in self._columns}


def _to_avro(value: Any, kind: SqlType) -> Any:
    if value is None:
        return None
    match kind.kind:
        case "TIMESTAMP":
            return moment_ms(value)
        case "TIME":
            return value
        case "ARRAY":
            return [_to_avro(part, kind.element) for part in value]
        case "MAP":
            pairs = value.items() if isinstance(value, Mapping) else value
            return [{"key": name, "value": _to_avro(part, kind.element)} for name, part in pairs]
        case "STRUCT":
            return {name: _to_avro(value[name], part) for name, part in kind.fields}
        case "DECIMAL":
            return Decimal(value)
    return value


def _from_avro(value: Any, kind: SqlType) -> Any:
    if value is None:
        return None
    match kind.kind:
        case "TIME":
            return ((value.hour * 60 + value.minute) * 60 + value.second) * 1000 + value.microsecond // 1000
        case "ARRAY":
            return [_from_avro(part, kind.element) for part in value]
        case "MAP":
            return {entry["key"]: _from_avro(entry["value"], kind.element) for entry in value}
        case "STRUCT":
            return {name: _from_avro(value[name], part) for name, part in kind.fields}
    return value


def avro_format(columns: tuple[FormatColumn, ...], info: FormatInfo, *, wrapped: bool) -> AvroFormat:
    return AvroFormat(columns, info, wrapped=wrapped)


def protobuf_format(columns: tuple[FormatColumn, ...], info: FormatInfo) -> AvroFormat:
    """SqlError: not there yet."""
    raise SqlError("The format PROTOBUF is not supported yet", hint="Use AVRO or JSON")
