"""JSON_SR: JSON in Confluent's framing, with a JSON Schema in the registry, as Kafka Connect writes one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from odradek.model.java_numbers import is_digits
from odradek.values.errors import SqlError
from odradek.values.formats.format_info import FormatColumn, FormatInfo
from odradek.values.formats.framing import SchemaIds
from odradek.values.formats.json_format import JsonFormat
from odradek.values.rows import SqlValue
from odradek.values.schema_registry import RegisteredSchema
from odradek.values.types import SqlType, array_of, decimal_of, map_of, struct_of_fields

_CONNECT: Final = "org.apache.kafka.connect.data."
_TYPES: Final[dict[str, dict[str, object]]] = {
    "BOOLEAN": {"type": "boolean"},
    "INTEGER": {"type": "integer", "connect.type": "int32"},
    "BIGINT": {"type": "integer", "connect.type": "int64"},
    "DOUBLE": {"type": "number", "connect.type": "float64"},
    "STRING": {"type": "string"},
    "BYTES": {"type": "string", "connect.type": "bytes"},
    "DATE": {"type": "integer", "title": f"{_CONNECT}Date", "connect.version": 1, "connect.type": "int32"},
    "TIME": {"type": "integer", "title": f"{_CONNECT}Time", "connect.version": 1, "connect.type": "int32"},
    "TIMESTAMP": {
        "type": "integer",
        "title": f"{_CONNECT}Timestamp",
        "connect.version": 1,
        "connect.type": "int64",
    },
}
_TITLED: Final = {f"{_CONNECT}{name}": name.upper() for name in ("Date", "Time", "Timestamp")}
_PLAIN: Final = {"boolean": "BOOLEAN", "integer": "BIGINT", "number": "DOUBLE", "string": "STRING"}
_CONNECT_KINDS: Final = {"int8": "INTEGER", "int16": "INTEGER", "int32": "INTEGER", "bytes": "BYTES"}
_DEPTH_MAX: Final = 32


class JsonSchemaFormat:
    """The head, then what JSON writes."""

    def __init__(self, columns: tuple[FormatColumn, ...], info: FormatInfo, *, wrapped: bool) -> None:
        self._ids = SchemaIds(info, "JSON", json.dumps(json_schema(columns, wrapped=wrapped)))
        self._json = JsonFormat(columns, wrapped=wrapped)

    def encode(self, values: Mapping[str, SqlValue]) -> bytes | None:
        data = self._json.encode(values)
        return None if data is None else self._ids.head()[0] + data

    def decode(self, data: bytes) -> dict[str, object] | None:
        """Decodes a record. Raises ValueError for data without a schema id, and for text that is not JSON."""
        return self._json.decode(self._ids.body(data)[1])


def json_schema(columns: tuple[FormatColumn, ...], *, wrapped: bool) -> dict[str, Any]:
    """The schema that is registered for these columns."""
    if not wrapped:
        return _json_type(columns[0].type)
    return _object([(column.name, column.type) for column in columns])


def _object(fields: list[tuple[str, SqlType]]) -> dict[str, object]:
    properties = {
        name: {"connect.index": index, **_nullable(kind)} for index, (name, kind) in enumerate(fields)
    }
    return {"type": "object", "properties": properties}


def _nullable(kind: SqlType) -> dict[str, Any]:
    return {"oneOf": [{"type": "null"}, _json_type(kind)]}


def _json_type(kind: SqlType) -> dict[str, Any]:
    match kind.kind:
        case "DECIMAL":
            return {
                "type": "number",
                "title": f"{_CONNECT}Decimal",
                "connect.version": 1,
                "connect.type": "bytes",
                "connect.parameters": {
                    "scale": str(kind.scale),
                    "connect.decimal.precision": str(kind.precision),
                },
            }
        case "ARRAY":
            return {"type": "array", "items": _nullable(kind.element)}
        case "MAP":
            return {
                "type": "object",
                "connect.type": "map",
                "additionalProperties": _nullable(kind.element),
            }
        case "STRUCT":
            return _object(list(kind.fields))
    return _TYPES[kind.kind]


def json_columns(schema: RegisteredSchema) -> list[tuple[str, SqlType]] | SqlType:
    """Returns the properties of an object, in upper case, or else the bare value's type. SqlError where SQL has no type."""
    kind = json_type(schema, upper_names=True)
    return list(kind.fields) if kind.kind == "STRUCT" else kind


def json_type(schema: RegisteredSchema, *, upper_names: bool) -> SqlType:
    """Returns a STRUCT for an object, else the type of the bare value. Raises SqlError where SQL has no type."""
    tree = json_tree(schema)
    return _column_type(tree, tree, 0, upper_names)


def json_tree(schema: RegisteredSchema) -> object:
    """Parses the schema's text. Raises SqlError for a text that is no JSON."""
    try:
        return json.loads(schema.text)
    except (ValueError, RecursionError) as error:
        raise SqlError(f"schema {schema.id} is no JSON Schema: {error}") from None


def without_optional_nulls(value: Any, node: Any, root: Any) -> Any:
    """Returns a value of this schema without its null properties: they may be absent, unless the schema requires them."""
    node = _resolved(node, root)
    if isinstance(value, list) and node.get("type") == "array":
        return [without_optional_nulls(member, node.get("items", {}), root) for member in value]
    if not isinstance(value, dict):
        return value
    properties, required = node.get("properties", {}), node.get("required", ())
    return {
        name: without_optional_nulls(member, properties.get(name, {}), root)
        for name, member in value.items()
        if member is not None or name in required
    }


def _resolved(node: Any, root: Any) -> object:
    """Follows references, and leads into the one type of a nullable part. The schema has passed `json_type`."""
    for _ in range(_DEPTH_MAX):
        if "$ref" in node:
            node = _referenced(str(node["$ref"]), root)
            continue
        word = next((word for word in ("oneOf", "anyOf") if word in node), None)
        if word is None:
            break
        node = next(kind for kind in node[word] if kind.get("type") != "null")
    return node


def _parameter(parameters: Mapping[str, object], name: str, default: int) -> int:
    written = str(parameters.get(name, default))
    if not is_digits(written):
        raise SqlError(f"{name} of a decimal in a JSON Schema is a whole number, not {written!r:.80}")
    return int(written)


def _column_type(node: object, root: object, depth: int, upper: bool) -> SqlType:  # noqa: C901 - a case for each keyword
    if depth > _DEPTH_MAX:
        raise SqlError("the JSON Schema holds itself: columns cannot")
    if not isinstance(node, dict):
        raise SqlError(f"the JSON Schema {node!r:.40} is no type of a column")
    if "$ref" in node:
        return _column_type(_referenced(str(node["$ref"]), root), root, depth + 1, upper)
    for word in ("oneOf", "anyOf"):
        if word in node:
            kinds = [kind for kind in node[word] if kind.get("type") != "null"]
            if len(kinds) != 1:
                raise SqlError(f"a JSON Schema of {len(kinds)} types is no type of a column")
            return _column_type(kinds[0], root, depth + 1, upper)
    kind, title = node.get("type"), node.get("title")
    if isinstance(kind, list):
        (kind,) = [part for part in kind if part != "null"] or ["string"]
    if title == f"{_CONNECT}Decimal":
        parameters = node.get("connect.parameters", {})
        return decimal_of(
            _parameter(parameters, "connect.decimal.precision", 38), _parameter(parameters, "scale", 0)
        )
    if title in _TITLED:
        return SqlType(kind=_TITLED[title])
    if kind == "array":
        return array_of(_column_type(node.get("items", {}), root, depth + 1, upper))
    if kind == "object":
        if node.get("connect.type") == "map" or ("properties" not in node and "additionalProperties" in node):
            return map_of(
                SqlType(kind="STRING"), _column_type(node["additionalProperties"], root, depth + 1, upper)
            )
        ordered = sorted(
            enumerate(node.get("properties", {}).items()),
            key=lambda entry: entry[1][1].get("connect.index", entry[0]),
        )
        return struct_of_fields(
            [
                (name.upper() if upper else name, _column_type(part, root, depth + 1, upper))
                for _, (name, part) in ordered
            ]
        )
    connect = node.get("connect.type")
    if connect in _CONNECT_KINDS and kind in ("integer", "string"):
        return SqlType(kind=_CONNECT_KINDS[connect])
    if kind not in _PLAIN:
        raise SqlError(f"the JSON Schema type {kind} is no type of a column")
    return SqlType(kind=_PLAIN[kind])


def _referenced(reference: str, root: object) -> object:
    node = root
    for step in reference.removeprefix("#/").split("/"):
        if not isinstance(node, dict) or step not in node:
            raise SqlError(f"the JSON Schema refers to {reference}, which it does not have")
        node = node[step]
    return node
