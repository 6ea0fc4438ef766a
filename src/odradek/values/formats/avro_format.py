"""AVRO in Confluent's framing. Schemas are made of columns as ksqlDB makes them, or come from a schema registry."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from odradek.model.lazy import lazy
from odradek.values.errors import SqlError
from odradek.values.exact_numbers import BIGINT_BITS, INT_BITS, exact_decimal, whole
from odradek.values.formats.format_info import FormatColumn, FormatInfo
from odradek.values.formats.framed import SchemaIds
from odradek.values.schema_registry import RegisteredSchema
from odradek.values.times import day, day_number, moment, moment_ms
from odradek.values.types import SqlType, array_of, decimal_of, map_of, struct_of_fields

if TYPE_CHECKING:
    import fastavro
else:
    fastavro = lazy("fastavro")

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
_COLUMN_KINDS: Final = {
    "boolean": "BOOLEAN",
    "int": "INTEGER",
    "long": "BIGINT",
    "float": "DOUBLE",
    "double": "DOUBLE",
    "string": "STRING",
    "enum": "STRING",
    "bytes": "BYTES",
    "fixed": "BYTES",
}
_LOGICAL_KINDS: Final = {
    "date": "DATE",
    "time-millis": "TIME",
    "time-micros": "TIME",
    "timestamp-millis": "TIMESTAMP",
    "timestamp-micros": "TIMESTAMP",
}


# ---- columns as a schema


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
    named = {"name": path.rpartition(".")[2], "namespace": path.rpartition(".")[0]}
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
            value = {
                "name": "value",
                "type": ["null", _avro_type(kind.element, path, "MapValue")],
                "default": None,
            }
            fields = [{"name": "key", "type": ["null", "string"], "default": None}, value]
            entry = {"type": "record", **named, "fields": fields, "connect.internal.type": "MapEntry"}
            return {"type": "array", "items": entry, "connect.internal.type": "MapEntry"}
        case "STRUCT":
            return {
                "type": "record",
                **named,
                "fields": [_avro_field(field, part, path) for field, part in kind.fields],
            }
    raise SqlError(f"AVRO has no {kind}")


# ---- a schema as columns


def avro_columns(schema: RegisteredSchema) -> list[tuple[str, SqlType]] | SqlType:
    """Of a record: its fields, in upper case; else the type of the bare value. SqlError for what SQL has no type for."""
    named: dict[str, Any] = {}
    parsed = _parsed(schema, named)
    if isinstance(parsed, dict) and parsed["type"] == "record":
        return [(field["name"].upper(), _column_type(field["type"], named, ())) for field in parsed["fields"]]
    return _column_type(parsed, named, ())


def _column_type(schema: Any, named: Mapping[str, Any], above: tuple[str, ...]) -> SqlType:
    node = _branch(schema, named)
    if isinstance(node, str):
        node = {"type": node}
    kind = node["type"]
    logical = node.get("logicalType")
    if logical == "decimal":
        return decimal_of(node["precision"], node.get("scale", 0))
    if logical in _LOGICAL_KINDS:
        return SqlType(kind=_LOGICAL_KINDS[logical])
    if kind == "record":
        if node["name"] in above:
            raise SqlError(f"the Avro type {node['name']} holds itself: columns cannot")
        inside = (*above, node["name"])
        return struct_of_fields(
            [(field["name"].upper(), _column_type(field["type"], named, inside)) for field in node["fields"]]
        )
    if kind == "map":
        return map_of(SqlType(kind="STRING"), _column_type(node["values"], named, above))
    if kind == "array":
        element = _column_type(node["items"], named, above)
        if node.get("connect.internal.type") == "MapEntry":
            (_, key), (_, value) = element.fields
            return map_of(key, value)
        return array_of(element)
    if kind not in _COLUMN_KINDS:
        raise SqlError(f"the Avro type {kind} is no type of a column")
    return SqlType(kind=_COLUMN_KINDS[kind])


def _branch(schema: Any, named: Mapping[str, Any]) -> Any:
    """What a union has beside null; what a name stands for."""
    if isinstance(schema, list):
        kinds = [kind for kind in schema if kind != "null"]
        if len(kinds) != 1:
            raise SqlError(f"an Avro union of {len(kinds)} types is no type of a column")
        return _branch(kinds[0], named)
    return named.get(schema, schema) if isinstance(schema, str) else schema


def _parsed(schema: RegisteredSchema, named: dict[str, Any]) -> Any:
    """SqlError for a text that is no schema."""
    for _, reference in schema.references:
        _parsed(reference, named)
    try:
        return fastavro.parse_schema(json.loads(schema.text), named_schemas=named)
    except (ValueError, KeyError, TypeError, fastavro.schema.SchemaParseException) as error:
        raise SqlError(f"schema {schema.id} is no Avro schema: {error!s:.200}") from None


# ---- records


class AvroFormat:
    """Data of any schema of the registry is read: fields find their columns by name."""

    def __init__(self, columns: tuple[FormatColumn, ...], info: FormatInfo, *, wrapped: bool) -> None:
        self._columns = columns
        self._ids = SchemaIds(
            info, "AVRO", json.dumps(avro_schema(columns, info.schema_name, wrapped=wrapped))
        )
        self._wrapped = wrapped
        self._ready: dict[int, tuple[Any, dict[str, Any]]] = {}

    def __getstate__(self) -> Any:
        return {**vars(self), "_ready": {}}  # tasks parse them again

    def _schema(self, schema_id: int) -> tuple[Any, dict[str, Any]]:
        known = self._ready.get(schema_id)
        if known is None:
            named: dict[str, Any] = {}
            known = self._ready[schema_id] = (_parsed(self._ids.schema(schema_id), named), named)
        return known

    def encode(self, values: Mapping[str, Any]) -> bytes | None:
        """ValueError for a value that the schema does not have."""
        head, schema_id = self._ids.head()
        schema, named = self._schema(schema_id)
        row = {column.name: values[column.column] for column in self._columns}
        if self._wrapped:
            kinds = tuple((column.name, column.type) for column in self._columns)
            made = _to_avro(row, struct_of_fields(kinds), schema, named)
        else:
            (value,) = row.values()
            if value is None:
                return None
            made = _to_avro(value, self._columns[0].type, schema, named)
        out = io.BytesIO(head)
        out.seek(len(head))
        try:
            fastavro.schemaless_writer(out, schema, made)
        except (TypeError, AttributeError, KeyError, OverflowError) as error:
            raise ValueError(f"{type(error).__name__}: {error}") from None
        return out.getvalue()

    def decode(self, data: bytes) -> dict[str, Any] | None:
        """ValueError for data that is not of its schema."""
        schema_id, body = self._ids.body(data)
        schema, _ = self._schema(schema_id)
        try:
            row: Any = fastavro.schemaless_reader(io.BytesIO(body), schema, None)
        except Exception as error:  # noqa: BLE001 - the parser of foreign data: whatever it stumbles over is wrong data
            raise ValueError(f"no data of schema {schema_id}: {error!s:.200}") from None
        if not self._wrapped:
            row = {self._columns[0].name: row}
        if not isinstance(row, dict):
            raise ValueError(f"schema {schema_id} is no record")
        by_name = {name.upper(): part for name, part in row.items()}
        return {
            column.column: _from_avro(row.get(column.name, by_name.get(column.name.upper())), column.type)
            for column in self._columns
        }


def _to_avro(value: Any, kind: SqlType, schema: Any, named: Mapping[str, Any]) -> Any:
    if value is None:
        return None
    node = _branch(schema, named)
    shape = node if isinstance(node, str) else node["type"]
    match kind.kind:
        case "TIMESTAMP":
            is_micros = isinstance(node, dict) and node.get("logicalType") == "timestamp-micros"
            return moment_ms(value) * (1000 if is_micros else 1)
        case "DATE":
            return day_number(value) if isinstance(node, str) else value
        case "ARRAY":
            return [_to_avro(part, kind.element, node["items"], named) for part in value]
        case "MAP":
            pairs = value.items() if isinstance(value, Mapping) else value
            if shape == "map":
                return {
                    str(name): _to_avro(part, kind.element, node["values"], named) for name, part in pairs
                }
            key_field, value_field = _branch(node["items"], named)["fields"]
            return [
                {
                    key_field["name"]: name,
                    value_field["name"]: _to_avro(part, kind.element, value_field["type"], named),
                }
                for name, part in pairs
            ]
        case "STRUCT":
            fields = {field["name"].upper(): field for field in node["fields"]}
            return {
                fields[name.upper()]["name"]: _to_avro(value[name], part, fields[name.upper()]["type"], named)
                for name, part in kind.fields
                if name.upper() in fields
            }
        case "DECIMAL":
            return Decimal(value)
        case "BYTES":
            return bytes(value)
    return value


def _from_avro(value: Any, kind: SqlType) -> Any:  # noqa: C901 - a case for each type
    """ValueError for a value of another type."""
    match (kind.kind, value):
        case (_, None):
            return None
        case ("TIME", time()):
            return ((value.hour * 60 + value.minute) * 60 + value.second) * 1000 + value.microsecond // 1000
        case ("TIMESTAMP", datetime()):
            return value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        case ("TIMESTAMP", int()):
            return moment(value)
        case ("DATE", date()):
            return value
        case ("DATE", int()):
            return day(value)
        case ("ARRAY", list()):
            return [_from_avro(part, kind.element) for part in value]
        case ("MAP", dict()):
            return {name: _from_avro(part, kind.element) for name, part in value.items()}
        case ("MAP", list()):
            pairs = (tuple(entry.values()) for entry in value)
            return {name: _from_avro(part, kind.element) for name, part in pairs}
        case ("STRUCT", dict()):
            by_name = {name.upper(): part for name, part in value.items()}
            return {name: _from_avro(by_name.get(name.upper()), part) for name, part in kind.fields}
        case ("BOOLEAN", bool()) | ("STRING", str()) | ("BYTES", bytes()):
            return value
        case ("DECIMAL", Decimal()):
            return exact_decimal(value, kind)
        case ("INTEGER" | "BIGINT" | "TIME", int()) if not isinstance(value, bool):
            return whole(value, BIGINT_BITS if kind.kind == "BIGINT" else INT_BITS)
        case ("DOUBLE", int() | float()) if not isinstance(value, bool):
            return float(value)
    raise ValueError(f"{value!r:.80} is no {kind}")
