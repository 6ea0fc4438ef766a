"""Avro: values after a schema in a file. Types are Spark's for Avro; what Spark has no type for is refused."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from odradek.model.errors import ConfigError
from odradek.model.lazy import lazy
from odradek.values.formats.framing import framing
from odradek.values.formats.schema_files import read_schema_file

if TYPE_CHECKING:
    import fastavro
else:
    fastavro = lazy("fastavro")

_TYPES: Final = {
    "boolean": "BOOLEAN",
    "int": "INT",
    "long": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "string": "STRING",
    "bytes": "BINARY",
}
_LOGICAL: Final = {
    ("int", "date"): "DATE",
    ("long", "timestamp-millis"): "TIMESTAMP",
    ("long", "timestamp-micros"): "TIMESTAMP",
    ("long", "local-timestamp-millis"): "TIMESTAMP_NTZ",
    ("long", "local-timestamp-micros"): "TIMESTAMP_NTZ",
}
"""Other logical types are read as what they are stored as, except decimals."""


class Avro:
    """`schema_file`: the schema as JSON (.avsc). `confluent`: a magic byte and a schema id stand before the data;
    `schema_id`: the id to write, and the only one to read.
    """

    def __init__(
        self, schema_file: str | Path, *, confluent: bool = False, schema_id: int | None = None
    ) -> None:
        self.name = f"Avro of {Path(schema_file).name}"
        self._framing = framing(confluent, schema_id)
        try:
            schema = json.loads(read_schema_file(schema_file))
            self._schema: Any = _readable(schema)
            self._parsed: Any = None
            parsed = self._ready()
            types = _Types(str(schema_file))
            self.is_record = isinstance(schema, dict) and schema.get("type") == "record"
            self.ddl = types.fields(parsed) if self.is_record else types.of(parsed)
        except ModuleNotFoundError:
            raise ConfigError("Avro needs fastavro: pip install 'odradek[formats]'") from None
        except (ValueError, KeyError, TypeError, fastavro.schema.SchemaParseException) as error:
            raise ConfigError(f"{schema_file} is no Avro schema: {error!s:.200}") from None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_parsed": None}  # tasks parse it again

    def decode(self, data: bytes) -> Any:
        """The value: dicts for records. ValueError for other data."""
        stream = io.BytesIO(data if self._framing is None else self._framing.payload(data))
        try:
            value = fastavro.schemaless_reader(stream, self._ready(), None)
        except ValueError:
            raise
        except Exception as error:  # noqa: BLE001 - the parser of foreign data: whatever it stumbles over is wrong data
            raise ValueError(
                f"{type(error).__name__}: {error}" if str(error) else "the data ends too soon"
            ) from None
        rest = len(stream.read())
        if rest:
            raise ValueError(f"{rest} bytes are left over")
        return value

    def encode(self, value: Any) -> bytes:
        """ValueError for a value that does not fit the schema."""
        out = io.BytesIO()
        if self._framing is not None:
            out.write(self._framing.head())
        try:
            fastavro.schemaless_writer(out, self._ready(), value)
        except (TypeError, AttributeError, KeyError, OverflowError, EOFError) as error:
            raise ValueError(f"{type(error).__name__}: {error}") from None
        return out.getvalue()

    def _ready(self) -> Any:
        if self._parsed is None:
            self._parsed = fastavro.parse_schema(self._schema)
        return self._parsed


class _Types:
    """Spark's types for those of a schema whose named types are known by full name, as fastavro leaves them."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._named: dict[str, Any] = {}
        self._open: list[str] = []

    def fields(self, record: dict[str, Any]) -> str:
        name = record["name"]
        self._named[name] = record
        self._open.append(name)
        made = ", ".join(f"`{field['name']}` {self.of(field['type'])}" for field in record["fields"])
        self._open.pop()
        return made

    def of(self, schema: Any) -> str:
        if isinstance(schema, list):
            kinds = [kind for kind in schema if kind != "null"]
            if len(kinds) != 1:
                raise ConfigError(
                    f"{self._file}: a union of {len(kinds)} types has no column type; null and one more type has"
                )
            return self.of(kinds[0])
        if isinstance(schema, str):
            return _TYPES[schema] if schema in _TYPES else self._reference(schema)
        return self._complex(schema)

    def _reference(self, name: str) -> str:
        if name in self._open:
            raise ConfigError(f"{self._file}: {name} holds itself: columns cannot")
        if name not in self._named:
            raise ConfigError(f"{self._file}: there is no type {name}")
        return self.of(self._named[name])

    def _complex(self, schema: dict[str, Any]) -> str:
        kind = schema["type"]
        if schema.get("logicalType") == "decimal":
            return f"DECIMAL({schema['precision']},{schema.get('scale', 0)})"
        if kind == "record":
            fields = self.fields(schema)
            return f"STRUCT<{fields.replace('` ', '`: ')}>"
        if kind == "enum":
            self._named[schema["name"]] = schema
            return "STRING"
        if kind == "fixed":
            self._named[schema["name"]] = schema
            return "BINARY"
        if kind == "array":
            return f"ARRAY<{self.of(schema['items'])}>"
        if kind == "map":
            return f"MAP<STRING, {self.of(schema['values'])}>"
        logical = _LOGICAL.get((kind, schema.get("logicalType", "")))
        return logical or self.of(kind)


def _readable(schema: Any) -> Any:
    """Without the logical types that would be read as Python values for which Spark has no type."""
    if isinstance(schema, list):
        return [_readable(kind) for kind in schema]
    if not isinstance(schema, dict):
        return schema
    logical = schema.get("logicalType")
    known = logical == "decimal" or (schema.get("type"), logical) in _LOGICAL
    kept = {name: _readable(part) for name, part in schema.items() if name in ("type", "items", "values")}
    if "fields" in schema:
        kept["fields"] = [{**field, "type": _readable(field["type"])} for field in schema["fields"]]
    return {name: kept.get(name, part) for name, part in schema.items() if known or name != "logicalType"}
