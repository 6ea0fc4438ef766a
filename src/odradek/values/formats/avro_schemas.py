"""Avro schemas as types of columns, and columns as the schema that ksqlDB registers for them.

fastavro reads and writes what is stored: whole numbers and bytes. `avro_values.py` makes dates, moments and decimals of them,
so the property `logicalType` has another name in a parsed schema.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from odradek.model.lazy import lazy
from odradek.values.errors import SqlError
from odradek.values.formats.format_info import FormatColumn, check_names
from odradek.values.types import SqlType, array_of, decimal_of, map_of, struct_of_fields

if TYPE_CHECKING:
    import fastavro
else:
    fastavro = lazy("fastavro")

EMPTY_PARTS_MAX: Final = 100
"""The parts of a record that take no byte, such as nulls: a few bytes would be as many values for each element of an array."""
_LOGICAL: Final = "odradek.logicalType"
_RECORD: Final = "io.confluent.ksql.avro_schemas.KsqlDataSourceSchema"
_SIMPLE: Final[dict[str, object]] = {
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
_KINDS: Final = {
    "boolean": "BOOLEAN",
    "int": "INTEGER",
    "long": "BIGINT",
    "double": "DOUBLE",
    "string": "STRING",
    "enum": "STRING",
    "bytes": "BYTES",
    "fixed": "BYTES",
}


# ---- columns as a schema


def avro_schema(
    columns: tuple[FormatColumn, ...], name: str | None = None, *, wrapped: bool = True
) -> object:
    """Returns the schema that is registered for these columns. Raises SqlError for a type that Avro does not have."""
    check_names("AVRO", [(column.name, column.type) for column in columns])
    if not wrapped:
        return _avro_type(columns[0].type, _RECORD, columns[0].name, set())
    record = name or _RECORD
    known = {record}
    return {
        "type": "record",
        **_name(record),
        "fields": [_avro_field(column.name, column.type, record, known) for column in columns],
    }


def _name(full_name: str) -> dict[str, str]:
    namespace, _, name = full_name.rpartition(".")
    return {"name": name, "namespace": namespace}


def _avro_field(name: str, kind: SqlType, parent: str, known: set[str]) -> dict[str, object]:
    return {"name": name, "type": ["null", _avro_type(kind, parent, name, known)], "default": None}


def _avro_type(kind: SqlType, parent: str, name: str, known: set[str]) -> object:
    """Returns the type of a field. `known`: names of records that the schema has; Avro has each of them once."""
    simple = _SIMPLE.get(kind.kind)
    if simple is not None:
        return simple
    match kind.kind:
        case "DECIMAL":
            return {
                "type": "bytes",
                "logicalType": "decimal",
                "precision": kind.precision,
                "scale": kind.scale,
            }
        case "ARRAY":
            return {"type": "array", "items": ["null", _avro_type(kind.element, parent, name, known)]}
        case "MAP" if kind.map_key.kind == "STRING":
            path = _record_name(parent, name, known)
            value = {
                "name": "value",
                "type": ["null", _avro_type(kind.element, path, "MapValue", known)],
                "default": None,
            }
            fields = [{"name": "key", "type": ["null", "string"], "default": None}, value]
            entry = {"type": "record", **_name(path), "fields": fields, "connect.internal.type": "MapEntry"}
            return {"type": "array", "items": entry, "connect.internal.type": "MapEntry"}
        case "STRUCT":
            path = _record_name(parent, name, known)
            return {
                "type": "record",
                **_name(path),
                "fields": [_avro_field(field, part, path, known) for field, part in kind.fields],
            }
    raise SqlError(f"AVRO has no {kind}")


def _record_name(parent: str, name: str, known: set[str]) -> str:
    """Returns Kafka Connect's name of a record, with a number where another one has it: `c` of `a_b` and `b_c` of `a` do."""
    path = f"{parent}_{name}"
    numbered, number = path, 1
    while numbered in known:
        number += 1
        numbered = f"{path}_{number}"
    known.add(numbered)
    return numbered


# ---- a schema as columns


@dataclass(frozen=True, slots=True, kw_only=True)
class AvroTypes:
    """The types that parts of a schema become. `logical`: by Avro's type and its logical type.

    `is_sql`: names are in upper case, and arrays of Kafka Connect's entries are MAPs. `keeps_names`: not in upper case.
    """

    kinds: Mapping[str, str]
    logical: Mapping[tuple[str, str], str]
    is_sql: bool
    keeps_names: bool = False


SQL_TYPES: Final = AvroTypes(
    kinds={**_KINDS, "float": "DOUBLE"},
    logical={
        ("int", "date"): "DATE",
        ("int", "time-millis"): "TIME",
        ("long", "time-micros"): "TIME",
        ("long", "timestamp-millis"): "TIMESTAMP",
        ("long", "timestamp-micros"): "TIMESTAMP",
    },
    is_sql=True,
)
"""The types of ksqlDB."""
FRAME_TYPES: Final = AvroTypes(
    kinds={**_KINDS, "float": "FLOAT"},
    logical={
        ("int", "date"): "DATE",
        ("int", "time-millis"): "TIME",
        ("long", "timestamp-millis"): "TIMESTAMP",
        ("long", "timestamp-micros"): "TIMESTAMP_LTZ",
        ("long", "local-timestamp-millis"): "TIMESTAMP_NTZ",
        ("long", "local-timestamp-micros"): "TIMESTAMP_NTZ",
    },
    is_sql=True,
    keeps_names=True,
)
"""The types of frames, which have narrow floats and microseconds."""
SPARK_TYPES: Final = AvroTypes(
    kinds={**_KINDS, "float": "FLOAT"},
    logical={
        ("int", "date"): "DATE",
        ("long", "timestamp-millis"): "TIMESTAMP_LTZ",
        ("long", "timestamp-micros"): "TIMESTAMP_LTZ",
        ("long", "local-timestamp-millis"): "TIMESTAMP_NTZ",
        ("long", "local-timestamp-micros"): "TIMESTAMP_NTZ",
    },
    is_sql=False,
)
"""The types of Spark's own Avro source."""


@dataclass(frozen=True, slots=True)
class AvroSchema:
    """A schema that fastavro has parsed. `named`: its named types, by full name."""

    root: Any
    named: Mapping[str, Any]

    def branch(self, schema: Any) -> dict[str, Any]:
        """Returns the type that a union has next to null, and the type that a name means. Raises SqlError for other unions."""
        if isinstance(schema, list):
            kinds = [kind for kind in schema if kind != "null"]
            if len(kinds) != 1:
                raise SqlError(
                    f"an Avro union of {len(kinds)} types is no type of a column",
                    hint="null and one more type is one",
                )
            return self.branch(kinds[0])
        node = self.named.get(schema, schema) if isinstance(schema, str) else schema
        return {"type": node} if isinstance(node, str) else node


def parsed_schema(text: str | bytes, name: str, references: Iterable[tuple[str, str]] = ()) -> AvroSchema:
    """Parses an Avro schema. `references`: name and text of the schemas that this one needs, in order. Raises SqlError for
    what is no schema."""
    named: dict[str, Any] = {}
    root: Any = None
    for part_name, part in (*references, (name, text)):
        try:
            root = fastavro.parse_schema(_stored(json.loads(part)), named_schemas=named)
        except (
            ValueError,
            KeyError,
            TypeError,
            RecursionError,
            fastavro.schema.SchemaParseException,
        ) as error:
            raise SqlError(f"{part_name} is no Avro schema: {error!s:.200}") from None
    return AvroSchema(root, named)


def check_bounded(schema: AvroSchema) -> None:
    """Raises SqlError for a schema whose values may be arbitrarily deep, or arbitrarily many in no bytes.

    The first overflows the stack of fastavro, which ends the process; the second fills the memory.
    """
    _has_bytes(schema.root, schema, (), {})
    _empty_parts(schema.root, schema, {})


def _empty_parts(part: Any, schema: AvroSchema, known: dict[str, int]) -> int:
    """Returns the values without a byte in one value of a type, at most; elements of arrays and maps have bytes themselves.

    The type does not hold itself. A type with a name is counted once, and its number used wherever the name is.
    """
    if isinstance(part, list):
        return max((_empty_parts(kind, schema, known) for kind in part), default=0)
    if isinstance(part, str):
        return (
            _empty_parts(schema.named[part], schema, known) if part in schema.named else int(part == "null")
        )
    kind, name = part["type"], part.get("name", "")
    if kind in ("record", "error"):
        if name not in known:
            inside = sum(_empty_parts(field["type"], schema, known) for field in part["fields"])
            known[name] = max(inside, int(not part["fields"]))
            if known[name] > EMPTY_PARTS_MAX:
                raise SqlError(f"the Avro type {name} has more than {EMPTY_PARTS_MAX} parts without bytes")
        return known[name]
    if kind in ("array", "map"):
        _empty_parts(part["items" if kind == "array" else "values"], schema, known)
        return 0
    if kind == "fixed":
        return int(part["size"] == 0)
    return _empty_parts(kind, schema, known)


def _has_bytes(part: Any, schema: AvroSchema, above: tuple[str, ...], known: dict[str, bool]) -> bool:
    """Tells whether every value of a type has at least one byte, and checks the types inside."""
    if isinstance(part, list):
        for kind in part:
            _has_bytes(kind, schema, above, known)
        return True  # the number of the branch
    if isinstance(part, str):
        return (
            _has_bytes(schema.named[part], schema, above, known) if part in schema.named else part != "null"
        )
    kind, name = part["type"], part.get("name", "")
    if kind in ("record", "error"):
        if name in above:
            raise SqlError(f"the Avro type {name} holds itself: its values have no limit of depth")
        if name not in known:
            inside = [_has_bytes(field["type"], schema, (*above, name), known) for field in part["fields"]]
            known[name] = any(inside)
        return known[name]
    if kind == "array":
        if not _has_bytes(part["items"], schema, above, known):
            raise SqlError("an Avro array of items without bytes has no limit of length")
        return True
    if kind == "map":
        _has_bytes(part["values"], schema, above, known)
        return True
    if kind == "fixed":
        return bool(part["size"] > 0)
    return _has_bytes(kind, schema, above, known)


def _stored(schema: object) -> Any:
    """The schema whose logical types fastavro does not see."""
    if isinstance(schema, list):
        return [_stored(kind) for kind in schema]
    if not isinstance(schema, dict):
        return schema
    stored = {_LOGICAL if name == "logicalType" else name: part for name, part in schema.items()}
    for name in ("type", "items", "values"):
        if name in stored:
            stored[name] = _stored(stored[name])
    if isinstance(stored.get("fields"), list):
        stored["fields"] = [_stored(field) for field in stored["fields"]]
    return stored


def logical_type(node: Mapping[str, object]) -> str:
    """Returns the logical type of a part, or an empty text. A decimal that Avro's specification rules out is none."""
    logical = str(node.get(_LOGICAL, ""))
    if logical != "decimal":
        return logical
    precision, scale = node.get("precision"), node.get("scale", 0)
    is_decimal = (
        node["type"] in ("bytes", "fixed")
        and isinstance(precision, int)
        and isinstance(scale, int)
        and 0 <= scale <= precision
    )
    return "decimal" if is_decimal else ""


def avro_type(schema: AvroSchema, types: AvroTypes) -> SqlType:
    """Returns a STRUCT for a record, else the type of the bare value. Raises SqlError for a schema that has no type."""
    return _column_type(schema.root, schema, types, ())


def _column_type(part: object, schema: AvroSchema, types: AvroTypes, above: tuple[str, ...]) -> SqlType:
    node = schema.branch(part)
    kind, logical = node["type"], logical_type(node)
    if logical == "decimal":
        return decimal_of(node["precision"], node.get("scale", 0))
    match kind:
        case "record" | "error":
            if node["name"] in above:
                raise SqlError(f"the Avro type {node['name']} holds itself: columns cannot")
            inside = (*above, node["name"])
            return struct_of_fields(
                [
                    (
                        field["name"].upper() if types.is_sql and not types.keeps_names else field["name"],
                        _column_type(field["type"], schema, types, inside),
                    )
                    for field in node["fields"]
                ]
            )
        case "map":
            return map_of(SqlType(kind="STRING"), _column_type(node["values"], schema, types, above))
        case "array":
            element = _column_type(node["items"], schema, types, above)
            if types.is_sql and node.get("connect.internal.type") == "MapEntry" and len(element.fields) == 2:
                (_, key), (_, value) = element.fields
                return map_of(key, value)
            return array_of(element)
        case str() if (kind, logical) in types.logical:
            return SqlType(kind=types.logical[kind, logical])
        case str() if kind in types.kinds:
            return SqlType(kind=types.kinds[kind])
    raise SqlError(f"the Avro type {kind} is no type of a column")
