"""PROTOBUF: columns as a .proto text, as ksqlDB makes it, and a .proto text as columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from odradek.model.lazy import lazy
from odradek.values.errors import SqlError
from odradek.values.formats.format_info import FormatColumn, check_names
from odradek.values.formats.proto_text import ProtoReader
from odradek.values.schema_registry import RegisteredSchema
from odradek.values.types import SqlType, array_of, decimal_of, map_of, struct_of_fields

if TYPE_CHECKING:
    from google.protobuf import descriptor_pool, message_factory, timestamp_pb2, wrappers_pb2
    from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor
    from google.protobuf.message import Message
else:
    descriptor_pool = lazy("google.protobuf.descriptor_pool")
    message_factory = lazy("google.protobuf.message_factory")
    timestamp_pb2 = lazy("google.protobuf.timestamp_pb2")
    wrappers_pb2 = lazy("google.protobuf.wrappers_pb2")

TIMESTAMP: Final = "google.protobuf.Timestamp"
DATE: Final = "google.type.Date"
TIME: Final = "google.type.TimeOfDay"
DECIMAL: Final = "confluent.type.Decimal"
_SCALARS: Final = {
    "BOOLEAN": "bool",
    "INTEGER": "int32",
    "BIGINT": "int64",
    "DOUBLE": "double",
    "STRING": "string",
    "BYTES": "bytes",
}
_MESSAGES: Final = {"TIMESTAMP": TIMESTAMP, "DATE": DATE, "TIME": TIME, "DECIMAL": DECIMAL}
_WRAPPERS: Final = {
    "BOOLEAN": "BoolValue",
    "INTEGER": "Int32Value",
    "BIGINT": "Int64Value",
    "DOUBLE": "DoubleValue",
    "STRING": "StringValue",
    "BYTES": "BytesValue",
}
WRAPPED: Final = {
    f"google.protobuf.{name}": kind
    for name, kind in {
        **{name: kind for kind, name in _WRAPPERS.items()},
        "UInt32Value": "BIGINT",
        "UInt64Value": "BIGINT",
        "FloatValue": "DOUBLE",
    }.items()
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtoTypes:
    """The types that fields become. `scalars`: by FieldDescriptor.cpp_type, from 1 on. `messages`: by full name.

    `is_sql`: names are in upper case, repeated messages of a key and a value are MAPs, and Confluent's decimals are DECIMALs.
    `keeps_names`: names are not in upper case.
    """

    scalars: tuple[SqlType, ...]
    messages: Mapping[str, str]
    is_sql: bool
    keeps_names: bool = False


def _scalar_types(*kinds: str) -> tuple[SqlType, ...]:
    return tuple(SqlType(kind=kind, precision=20 if kind == "DECIMAL" else 0) for kind in kinds)


SQL_TYPES: Final = ProtoTypes(
    scalars=_scalar_types(
        "INTEGER", "BIGINT", "BIGINT", "BIGINT", "DOUBLE", "DOUBLE", "BOOLEAN", "STRING", "STRING"
    ),
    messages={TIMESTAMP: "TIMESTAMP", DATE: "DATE", TIME: "TIME", **WRAPPED},
    is_sql=True,
)
"""The types of ksqlDB."""
FRAME_TYPES: Final = ProtoTypes(
    scalars=_scalar_types(
        "INTEGER", "BIGINT", "BIGINT", "DECIMAL", "DOUBLE", "FLOAT", "BOOLEAN", "STRING", "STRING"
    ),
    messages={TIMESTAMP: "TIMESTAMP_LTZ", DATE: "DATE", TIME: "TIME", **WRAPPED},
    is_sql=True,
    keeps_names=True,
)
"""The types of frames, which have narrow floats and microseconds."""
SPARK_TYPES: Final = ProtoTypes(
    scalars=_scalar_types(
        "INTEGER", "BIGINT", "BIGINT", "DECIMAL", "DOUBLE", "FLOAT", "BOOLEAN", "STRING", "STRING"
    ),
    messages={TIMESTAMP: "TIMESTAMP_LTZ"},
    is_sql=False,
)
"""The types of Spark's own Protobuf functions."""
_IMPORTS: Final = {
    TIMESTAMP: "google/protobuf/timestamp.proto",
    DATE: "google/type/date.proto",
    TIME: "google/type/timeofday.proto",
    DECIMAL: "confluent/type/decimal.proto",
}
_WRAPPERS_FILE: Final = "google/protobuf/wrappers.proto"
_META_FILE: Final = "confluent/meta.proto"
_KNOWN_FILES: Final = {
    "google/type/date.proto": 'syntax = "proto3"; package google.type;'
    " message Date { int32 year = 1; int32 month = 2; int32 day = 3; }",
    "google/type/timeofday.proto": 'syntax = "proto3"; package google.type;'
    " message TimeOfDay { int32 hours = 1; int32 minutes = 2; int32 seconds = 3; int32 nanos = 4; }",
    "confluent/type/decimal.proto": 'syntax = "proto3"; package confluent.type;'
    " message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }",
    _META_FILE: 'syntax = "proto3"; package confluent;',
}
_DEPTH_MAX: Final = 16


# ---- columns as text


@dataclass(slots=True)
class _TextWriter:
    """Writes the text of a .proto file.

    `nullable`: None, OPTIONAL or WRAPPER: how a simple column marks null.
    """

    nullable: str | None
    imports: set[str] = field(default_factory=set)
    count: int = 1

    def message(self, name: str, columns: Iterable[tuple[str, SqlType]], indent: str) -> str:
        inner = indent + "  "
        lines, nested = [f"{indent}message {name} {{"], []
        for number, (column, kind) in enumerate(columns, 1):
            text, more = self._field(column, kind, inner)
            nested += more
            lines.append(f"{inner}{text} {column} = {number}{self._options(kind)};")
        return "\n".join([*lines, *nested, f"{indent}}}"])

    def _field(self, name: str, kind: SqlType, indent: str) -> tuple[str, list[str]]:
        if kind.kind == "ARRAY":
            if kind.element.kind in ("ARRAY", "MAP"):
                raise SqlError(f"PROTOBUF has no {kind}, column: `{name}`", hint="Put a STRUCT between them.")
            text, nested = self._single(kind.element, indent)
            return f"repeated {text}", nested
        if kind.kind == "MAP":
            return self._map(kind, indent)
        if self.nullable is not None and kind.kind in _SCALARS:
            if self.nullable == "OPTIONAL":
                return f"optional {_SCALARS[kind.kind]}", []
            self.imports.add(_WRAPPERS_FILE)
            return f"google.protobuf.{_WRAPPERS[kind.kind]}", []
        return self._single(kind, indent)

    def _map(self, kind: SqlType, indent: str) -> tuple[str, list[str]]:
        self.count += 1
        name = f"ConnectDefault{self.count}Entry"
        fields = [("key", kind.map_key), ("value", kind.element)]
        return f"repeated {name}", ["", self.message(name, fields, indent)]

    def _single(self, kind: SqlType, indent: str) -> tuple[str, list[str]]:
        if kind.kind in _SCALARS:
            return _SCALARS[kind.kind], []
        if kind.kind in _MESSAGES:
            name = _MESSAGES[kind.kind]
            self.imports.add(_IMPORTS[name])
            return name, []
        self.count += 1
        name = f"ConnectDefault{self.count}"
        return name, ["", self.message(name, kind.fields, indent)]

    def _options(self, kind: SqlType) -> str:
        if kind.kind == "ARRAY":
            kind = kind.element
        if kind.kind != "DECIMAL":
            return ""
        self.imports.add(_META_FILE)
        return (
            f' [(confluent.field_meta) = {{params: [{{key: "precision", value: "{kind.precision}"}},'
            f' {{key: "scale", value: "{kind.scale}"}}]}}]'
        )


def proto_text(columns: tuple[FormatColumn, ...], name: str | None, nullable: str | None) -> str:
    """The schema that is registered for these columns. SqlError for a type that PROTOBUF does not have."""
    check_names("PROTOBUF", [(column.name, column.type) for column in columns])
    writer = _TextWriter(nullable)
    package, _, message = (name or "ConnectDefault1").rpartition(".")
    body = writer.message(message, [(column.name, column.type) for column in columns], "")
    head = ['syntax = "proto3";', *([f"package {package};"] if package else []), ""]
    imports = [f'import "{path}";' for path in sorted(writer.imports)]
    return "\n".join([*head, *imports, *([""] if imports else []), body, ""])


# ---- text as a type


@dataclass(frozen=True, slots=True)
class ProtoFile:
    """A parsed .proto file.

    `file`: a FileDescriptor; `decimals`: precision and scale by the full name of a field.
    """

    file: FileDescriptor
    decimals: dict[str, tuple[int, int]]

    def message_at(self, indexes: Iterable[int]) -> object:
        """Returns the descriptor at these indexes. Raises ValueError when there is none."""
        first, *rest = tuple(indexes) or (0,)
        try:
            message = list(self.file.message_types_by_name.values())[first]
            for number in rest:
                message = _counted(message.nested_types)[number]
        except IndexError:
            raise ValueError(f"the schema has no message at {[first, *rest]}") from None
        return message

    def indexes_of(self, full_name: str | None) -> tuple[int, ...]:
        """Returns the indexes of a message; None means the first one. Raises SqlError when there is none."""
        if full_name is None:
            return (0,)
        first, *inner = full_name.removeprefix(f"{self.file.package}." if self.file.package else "").split(
            "."
        )
        message = self.file.message_types_by_name.get(first)
        for name in inner:
            message = None if message is None else message.nested_types_by_name.get(name)
        if message is None:
            names = ", ".join(self.file.message_types_by_name)
            raise SqlError(f"the schema has no message {full_name}", hint=f"It has {names}.")
        return message_indexes(message)


def message_indexes(message: Descriptor) -> tuple[int, ...]:
    """Returns the indexes that lead from a file to a message."""
    outer = message.containing_type
    siblings = message.file.message_types_by_name.values() if outer is None else outer.nested_types
    number = [sibling.full_name for sibling in _counted(siblings)].index(message.full_name)
    return (number,) if outer is None else (*message_indexes(outer), number)


def _counted(messages: Iterable[Descriptor]) -> list[Descriptor]:
    """The messages that indexes count: a map makes one that is not written in the file, and that they leave out."""
    return [message for message in messages if not message.GetOptions().map_entry]


def proto_file(schema: RegisteredSchema) -> ProtoFile:
    """Parses a schema of the registry. Raises SqlError for a text that is not a .proto file."""
    pool = descriptor_pool.DescriptorPool()
    added: set[str] = set()
    reader = ProtoReader(f"schema-{schema.id}.proto", schema.text)
    file = reader.file()
    try:
        _add_imports(pool, file.dependency, dict(schema.references), added, 0)
        descriptor = pool.AddSerializedFile(file.SerializeToString())
    except (TypeError, ValueError, KeyError) as error:
        raise SqlError(f"schema {schema.id} is no .proto file: {error!s:.200}") from None
    if not descriptor.message_types_by_name:
        raise SqlError(f"schema {schema.id} has no message")
    return ProtoFile(descriptor, reader.decimals)


def _add_imports(
    pool: descriptor_pool.DescriptorPool,
    names: Iterable[str],
    references: dict[str, RegisteredSchema],
    added: set[str],
    depth: int,
) -> None:
    well_known = {
        "google/protobuf/timestamp.proto": timestamp_pb2,
        _WRAPPERS_FILE: wrappers_pb2,
    }
    for name in names:
        if name in added:
            continue
        added.add(name)
        if name in references:
            schema = references[name]
            file = ProtoReader(name, schema.text).file()
            if depth > _DEPTH_MAX:
                raise SqlError(f"{name}: imports within imports, too deep to follow")
            _add_imports(pool, file.dependency, dict(schema.references), added, depth + 1)
            pool.AddSerializedFile(file.SerializeToString())
        elif name in well_known:
            pool.AddSerializedFile(well_known[name].DESCRIPTOR.serialized_pb)
        elif name in _KNOWN_FILES:
            pool.AddSerializedFile(ProtoReader(name, _KNOWN_FILES[name]).file().SerializeToString())
        else:
            raise SqlError(f"the schema imports {name}, which its references do not have")


def message_class(descriptor: Descriptor) -> type[Message]:
    kind: type[Message] = message_factory.GetMessageClass(descriptor)
    return kind


# ---- a type as columns


def proto_columns(schema: RegisteredSchema, full_name: str | None) -> list[tuple[str, SqlType]]:
    """Returns the fields of a message, in upper case. Raises SqlError for a message that columns cannot hold."""
    file = proto_file(schema)
    kind = proto_type(file.message_at(file.indexes_of(full_name)), SQL_TYPES, file.decimals)
    return list(kind.fields)


def proto_type(
    message: Descriptor, types: ProtoTypes, decimals: Mapping[str, tuple[int, int]] | None = None
) -> SqlType:
    """Returns the STRUCT of a message. `decimals`: as in `ProtoFile`. Raises SqlError for a message that holds itself."""
    return _Columns(types, decimals or {}).struct(message, ())


@dataclass(frozen=True, slots=True)
class _Columns:
    """Fields of messages as types of columns."""

    types: ProtoTypes
    decimals: Mapping[str, tuple[int, int]]

    def struct(self, message: Descriptor, above: tuple[str, ...]) -> SqlType:
        if message.full_name in above:
            raise SqlError(f"the message {message.full_name} holds itself: columns cannot")
        inside = (*above, message.full_name)
        is_upper = self.types.is_sql and not self.types.keeps_names
        return struct_of_fields(
            [
                (part.name.upper() if is_upper else part.name, self._field(part, inside))
                for part in message.fields
            ]
        )

    def _field(self, part: FieldDescriptor, above: tuple[str, ...]) -> SqlType:
        if is_map(part) and (self.types.is_sql or part.message_type.GetOptions().map_entry):
            key, value = part.message_type.fields
            return map_of(self._single(key, above), self._field(value, above))
        single = self._single(part, above)
        return array_of(single) if part.is_repeated else single

    def _single(self, part: FieldDescriptor, above: tuple[str, ...]) -> SqlType:
        if part.message_type is None:
            return (
                SqlType(kind="BYTES")
                if part.type == part.TYPE_BYTES
                else self.types.scalars[part.cpp_type - 1]
            )
        name = part.message_type.full_name
        if name == DECIMAL and self.types.is_sql:
            return decimal_of(*self.decimals.get(part.full_name, (38, 0)))
        if name in self.types.messages:
            return SqlType(kind=self.types.messages[name])
        return self.struct(part.message_type, above)


def is_map(part: FieldDescriptor) -> bool:
    """Tells whether a field is a map of Protobuf, or a repeated message of key and value, as Kafka Connect writes one."""
    kind = part.message_type
    if kind is None or not part.is_repeated:
        return False
    is_entry = kind.name.endswith("Entry") and [inner.name for inner in kind.fields] == ["key", "value"]
    return bool(kind.GetOptions().map_entry) or is_entry
