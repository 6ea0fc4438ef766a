"""Values of columns as Avro stores them, and back. How a column is read is decided once for a schema, not for each record."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeAlias

from odradek.model.lazy import lazy
from odradek.values.exact_numbers import (
    BIGINT_BITS,
    INT_BITS,
    decimal_of_bytes,
    exact_decimal,
    unscaled_bytes,
    whole,
)
from odradek.values.formats.avro_schemas import AvroSchema, check_bounded, logical_type
from odradek.values.times import day, day_number, local_moment, moment, moment_ms, moment_us, precise_moment
from odradek.values.types import SqlType

if TYPE_CHECKING:
    import fastavro
else:
    fastavro = lazy("fastavro")

_Convert: TypeAlias = Callable[[Any], Any]


class AvroCodec:
    """Reads and writes values of one type after one schema. Raises SqlError where they do not belong together."""

    def __init__(self, schema: AvroSchema, kind: SqlType) -> None:
        check_bounded(schema)
        self._root = schema.root
        self._of_stored = _reader(kind, schema.root, schema)
        self._to_stored = _writer(kind, schema.root, schema)

    def decode(self, data: bytes, *, is_all: bool = False) -> Any:
        """Returns the value, and None of a null. Raises ValueError for other data.

        `is_all`: bytes that are left over are an error.
        """
        stream = io.BytesIO(data)
        stored = _stored_value(stream, self._root)
        if is_all and stream.tell() < len(data):
            raise ValueError(f"{len(data) - stream.tell()} bytes are left over")
        return None if stored is None else self._of_stored(stored)

    def encode(self, value: object, head: bytes = b"") -> bytes:
        """Raises ValueError for a value that the schema does not have."""
        out = io.BytesIO(head)
        out.seek(len(head))
        try:
            stored = None if value is None else self._to_stored(value)
            fastavro.schemaless_writer(out, self._root, stored)
        except (TypeError, AttributeError, KeyError, OverflowError, ArithmeticError, EOFError) as error:
            raise ValueError(f"{type(error).__name__}: {error}") from None
        return out.getvalue()


def avro_documents(schema: AvroSchema) -> Callable[[bytes], Any]:
    """Returns a function that reads values as Avro stores them, to look at; it raises ValueError for other data.

    The schema has passed `check_bounded`. The parser is looked up once: a search reads many values.
    """
    root, parse, stream_of = schema.root, fastavro.schemaless_reader, io.BytesIO

    def document(data: bytes) -> Any:
        try:
            return parse(stream_of(data), root, None)
        except Exception as error:  # noqa: BLE001 - the parser of foreign data: whatever it stumbles over is wrong data
            raise _wrong_data(error) from None

    return document


def _stored_value(stream: io.BytesIO, root: Any) -> object:
    try:
        return fastavro.schemaless_reader(stream, root, None)
    except Exception as error:  # noqa: BLE001 - the parser of foreign data: whatever it stumbles over is wrong data
        raise _wrong_data(error) from None


def _wrong_data(error: Exception) -> ValueError:
    return ValueError(f"{type(error).__name__}: {error!s:.200}" if str(error) else "the data ends too soon")


def _same(value: object) -> Any:
    return value


def _refused(kind: SqlType) -> _Convert:
    def refuse(value: object) -> object:
        raise ValueError(f"{value!r:.80} is no {kind}")

    return refuse


# ---- reading


def _reader(kind: SqlType, part: object, schema: AvroSchema) -> _Convert:
    """Returns what reads a stored value that is not null."""
    node = schema.branch(part)
    match (kind.kind, node["type"]):
        case ("ARRAY", "array"):
            element = _reader(kind.element, node["items"], schema)
            return lambda stored: [None if member is None else element(member) for member in stored]
        case ("MAP", "map") if kind.map_key.kind == "STRING":
            content = _reader(kind.element, node["values"], schema)
            return lambda stored: {
                name: None if member is None else content(member) for name, member in stored.items()
            }
        case ("MAP", "array") if len((entry := schema.branch(node["items"])).get("fields", ())) == 2:
            return _entries_reader(kind, entry, schema)
        case ("STRUCT", "record" | "error"):
            return _record_reader(kind, node, schema)
    return _simple_reader(kind, node) or _refused(kind)


def _entries_reader(kind: SqlType, entry: Mapping[str, Any], schema: AvroSchema) -> _Convert:
    """Reads a MAP that Kafka Connect wrote as an array of records of a key and a value."""
    key_field, value_field = entry["fields"]
    key, content = (
        _reader(kind.map_key, key_field["type"], schema),
        _reader(kind.element, value_field["type"], schema),
    )
    key_name, value_name = key_field["name"], value_field["name"]

    def read(stored: Any) -> Any:
        pairs = [(member[key_name], member[value_name]) for member in stored]
        if any(name is None for name, _ in pairs):
            raise ValueError(f"a key of a {kind} is null")
        return {key(name): None if value is None else content(value) for name, value in pairs}

    return read


def _record_reader(kind: SqlType, node: Mapping[str, Any], schema: AvroSchema) -> _Convert:
    parts: list[tuple[str, str | None, _Convert]] = []
    for name, part in kind.fields:
        field = _field(node, name)
        if field is None:
            parts.append((name, None, _same))
        else:
            parts.append((name, field["name"], _reader(part, field["type"], schema)))

    def read(stored: Any) -> Any:
        return {
            name: None if source is None or (value := stored[source]) is None else convert(value)
            for name, source, convert in parts
        }

    return read


def _field(node: Mapping[str, Any], name: str) -> Any:
    """Returns the field of this name, or of the name in another case, or None."""
    by_name = {field["name"].upper(): field for field in node["fields"]}
    return {field["name"]: field for field in node["fields"]}.get(name, by_name.get(name.upper()))


def _simple_reader(kind: SqlType, node: Mapping[str, Any]) -> _Convert | None:
    is_micros = logical_type(node).endswith("-micros")
    match (kind.kind, node["type"]):
        case (
            ("BOOLEAN", "boolean")
            | ("STRING", "string" | "enum")
            | ("BYTES", "bytes" | "fixed")
            | ("FLOAT", "float")
            | ("DOUBLE", "float" | "double")
        ):
            return _same
        case ("DOUBLE", "int" | "long"):
            return float
        case ("INTEGER" | "BIGINT", "int" | "long"):  # fastavro reads numbers of any length
            return _whole_reader(kind, INT_BITS if kind.kind == "INTEGER" else BIGINT_BITS)
        case ("TIME", "int" | "long"):
            return lambda stored: whole(stored // 1000 if is_micros else stored, INT_BITS)
        case ("DATE", "int" | "long"):
            return day
        case ("TIMESTAMP", "int" | "long"):
            return lambda stored: moment(stored // 1000 if is_micros else stored)
        case ("TIMESTAMP_LTZ", "int" | "long"):
            return lambda stored: precise_moment(stored if is_micros else stored * 1000)
        case ("TIMESTAMP_NTZ", "int" | "long"):
            return lambda stored: local_moment(stored if is_micros else stored * 1000)
        case ("DECIMAL", "bytes" | "fixed") if logical_type(node) == "decimal":
            scale = node.get("scale", 0)
            return lambda stored: decimal_of_bytes(stored, scale, kind)
    return None


def _whole_reader(kind: SqlType, bits: int) -> _Convert:
    end = 1 << bits

    def read(stored: int) -> int:
        if not -end <= stored < end:
            raise ValueError(f"{stored} does not fit into {kind}")
        return stored

    return read


# ---- writing


def _writer(kind: SqlType, part: object, schema: AvroSchema) -> _Convert:
    """Returns what stores a value that is not null. fastavro refuses what the schema does not have."""
    node = schema.branch(part)
    match (kind.kind, node["type"]):
        case ("ARRAY", "array"):
            element = _writer(kind.element, node["items"], schema)
            return lambda value: [None if member is None else element(member) for member in value]
        case ("MAP", "map"):
            content = _writer(kind.element, node["values"], schema)
            return lambda value: {
                str(name): None if member is None else content(member) for name, member in _pairs(value)
            }
        case ("MAP", "array") if len((entry := schema.branch(node["items"])).get("fields", ())) == 2:
            return _entries_writer(kind, entry, schema)
        case ("STRUCT", "record" | "error"):
            return _record_writer(kind, node, schema)
    return _simple_writer(kind, node)


def _pairs(value: object) -> Any:
    return value.items() if isinstance(value, Mapping) else value


def _entries_writer(kind: SqlType, entry: Mapping[str, Any], schema: AvroSchema) -> _Convert:
    key_field, value_field = entry["fields"]
    content = _writer(kind.element, value_field["type"], schema)
    key_name, value_name = key_field["name"], value_field["name"]
    return lambda value: [
        {key_name: name, value_name: None if member is None else content(member)}
        for name, member in _pairs(value)
    ]


def _record_writer(kind: SqlType, node: Mapping[str, Any], schema: AvroSchema) -> _Convert:
    fields = [(name, part, _field(node, name)) for name, part in kind.fields]
    parts = {
        name: (field["name"], _writer(part, field["type"], schema))
        for name, part, field in fields
        if field is not None
    }
    known = {name for name, _ in kind.fields}

    def write(value: Any) -> Any:
        strange = [name for name in value if name not in known]
        if strange:
            raise ValueError(f"the schema has no field {', '.join(map(str, strange))}")
        return {
            target: None if (member := value[name]) is None else convert(member)
            for name, (target, convert) in parts.items()
            if name in value
        }

    return write


def _simple_writer(kind: SqlType, node: Mapping[str, Any]) -> _Convert:
    is_micros = logical_type(node).endswith("-micros")
    match kind.kind:
        case "TIME":
            return lambda value: value * 1000 if is_micros else value
        case "DATE":
            return day_number
        case "TIMESTAMP":
            return lambda value: moment_ms(value) * (1000 if is_micros else 1)
        case "TIMESTAMP_LTZ" | "TIMESTAMP_NTZ":
            return moment_us if is_micros else moment_ms
        case "DECIMAL" if logical_type(node) == "decimal":
            stored = SqlType(kind="DECIMAL", precision=node["precision"], scale=node.get("scale", 0))
            size = node["size"] if node["type"] == "fixed" else None
            return lambda value: unscaled_bytes(exact_decimal(Decimal(value), stored), stored, size)
        case "BYTES":
            return bytes
    return _same
