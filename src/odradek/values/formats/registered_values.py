"""Values in Confluent's framing, read and written by the schemas of a registry; fields keep their names.

`record_format.py` makes columns of SQL of them; here a value has the type of its schema.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol

from odradek.model.errors import OdradekError
from odradek.values.errors import SqlError
from odradek.values.formats import avro_schemas, protobuf_schemas
from odradek.values.formats.avro_format import parsed_registered
from odradek.values.formats.avro_values import AvroCodec
from odradek.values.formats.framing import (
    FIRST_MESSAGE,
    after_message_head,
    framed_head,
    message_head,
    split_frame,
)
from odradek.values.formats.json_format import parsed, read, written
from odradek.values.formats.json_sr_format import json_tree, json_type, without_optional_nulls
from odradek.values.formats.protobuf_schemas import message_class, proto_file, proto_type
from odradek.values.formats.protobuf_values import decoded_message, encoded_message
from odradek.values.schema_registry import RegisteredSchema, SchemaRegistry
from odradek.values.types import SqlType

NEW_SCHEMAS_MAX: Final = 64
"""Schemas that one batch may bring: each costs a request, and anyone who can produce may write any id."""


def registered_type(schema: RegisteredSchema) -> SqlType:
    """Returns the type of a schema's values: a STRUCT for records, objects and the first message of a file.

    Raises SqlError for a schema that holds itself, or has parts that no column can be.
    """
    match schema.type:
        case "AVRO":
            return avro_schemas.avro_type(parsed_registered(schema), avro_schemas.FRAME_TYPES)
        case "JSON":
            return json_type(schema, upper_names=False)
        case "PROTOBUF":
            file = proto_file(schema)
            return proto_type(file.message_at(FIRST_MESSAGE), protobuf_schemas.FRAME_TYPES, file.decimals)
    raise SqlError(f"schema {schema.id} is {schema.type}: AVRO, JSON and PROTOBUF are known")


class _Codec(Protocol):
    def decode(self, body: bytes) -> object: ...
    def encode(self, value: object) -> bytes: ...


class _Avro:
    def __init__(self, schema: RegisteredSchema, kind: SqlType) -> None:
        self._codec = AvroCodec(parsed_registered(schema), kind)

    def decode(self, body: bytes) -> object:
        return self._codec.decode(body)

    def encode(self, value: object) -> bytes:
        return self._codec.encode(value)


class _Json:
    def __init__(self, schema: RegisteredSchema, kind: SqlType) -> None:
        self._kind = kind
        self._tree = json_tree(schema)

    def decode(self, body: bytes) -> object:
        return read(parsed(body), self._kind)

    def encode(self, value: object) -> bytes:
        return written(without_optional_nulls(value, self._tree, self._tree), self._kind).encode()


class _Protobuf:
    def __init__(self, schema: RegisteredSchema, kind: SqlType) -> None:
        self._kind = kind
        self._file = proto_file(schema)

    def decode(self, body: bytes) -> object:
        indexes, data = after_message_head(body)
        return decoded_message(message_class(self._file.message_at(indexes)), self._kind, data)

    def encode(self, value: Any) -> bytes:
        message = message_class(self._file.message_at(FIRST_MESSAGE))
        return message_head(FIRST_MESSAGE) + encoded_message(message, self._kind, value)


_CODECS: Final[dict[str, Callable[[RegisteredSchema, SqlType], _Codec]]] = {
    "AVRO": _Avro,
    "JSON": _Json,
    "PROTOBUF": _Protobuf,
}


class RegisteredValues:
    """Reads values of any schema of a registry as values of one schema, and writes values of that schema.

    Fields find each other by name; a field that a record's schema lacks is null.
    """

    def __init__(self, registry: SchemaRegistry, schema: RegisteredSchema) -> None:
        self.schema: Final = schema
        self.type: Final = registered_type(schema)
        self._registry = registry
        self._codecs = {schema.id: _CODECS[schema.type](schema, self.type)}

    def decoded(self, values: Iterator[bytes | None]) -> Iterator[object]:
        """Yields the value of each record, None for a tombstone, and the ValueError of a record that cannot be read.

        At most `NEW_SCHEMAS_MAX` schemas are asked for. Raises SchemaRegistryError when the registry does not answer.
        """
        asked: dict[int, str] = {}
        for data in values:
            if data is None:
                yield None
                continue
            try:
                yield self._decoded(data, asked)
            except SqlError as error:
                yield ValueError(str(error))
            except ValueError as error:
                yield error

    def encode(self, value: object) -> bytes:
        """Raises ValueError for a value that the schema does not have."""
        try:
            return framed_head(self.schema.id) + self._codecs[self.schema.id].encode(value)
        except (TypeError, KeyError, AttributeError, OverflowError, ArithmeticError) as error:
            raise ValueError(f"{type(error).__name__}: {error!s:.200}") from None

    def _decoded(self, data: bytes, asked: dict[int, str]) -> object:
        schema_id, body = split_frame(data)
        codec = self._codecs.get(schema_id) or self._new_codec(schema_id, asked)
        try:
            return codec.decode(body)
        except (ValueError, OdradekError, OSError, MemoryError):
            raise
        except Exception as error:  # noqa: BLE001 - foreign data: whatever a parser stumbles over is wrong data
            raise ValueError(f"{type(error).__name__}: {error!s:.200}") from None

    def _new_codec(self, schema_id: int, asked: dict[int, str]) -> _Codec:
        """Raises ValueError for a schema that is unknown or of another kind, at once where it was asked for before."""
        if schema_id in asked:
            raise ValueError(asked[schema_id])
        if len(asked) >= NEW_SCHEMAS_MAX:
            raise ValueError(
                f"schema {schema_id} is not looked up: a batch may bring {NEW_SCHEMAS_MAX} new schemas"
            )
        asked[schema_id] = f"schema {schema_id} cannot be read"
        try:
            schema = self._registry.by_id(schema_id)
            if schema.type != self.schema.type:
                raise ValueError(f"schema {schema_id} is {schema.type}, not {self.schema.type}")
            codec = self._codecs[schema_id] = _CODECS[schema.type](schema, self.type)
        except (ValueError, SqlError) as error:
            asked[schema_id] = str(error)
            raise ValueError(asked[schema_id]) from None
        return codec
