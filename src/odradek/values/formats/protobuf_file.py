"""Protobuf: messages of a .proto file, or of a descriptor set that protoc made of one.

A field without presence (proto3 without `optional`) has its default where a message leaves it out; others are null then.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from odradek.model.errors import ConfigError
from odradek.model.lazy import lazy
from odradek.values.formats.framing import framing, read_varint, varint
from odradek.values.formats.schema_files import read_schema_file

if TYPE_CHECKING:
    from google.protobuf import descriptor_pb2, descriptor_pool, message, message_factory
    from google.protobuf.descriptor import Descriptor, FieldDescriptor
else:
    descriptor_pb2 = lazy("google.protobuf.descriptor_pb2")
    descriptor_pool = lazy("google.protobuf.descriptor_pool")
    message = lazy("google.protobuf.message")
    message_factory = lazy("google.protobuf.message_factory")

_COMPILE_TIMEOUT_S: Final = 60
_TIMESTAMP: Final = "google.protobuf.Timestamp"
_TYPES: Final = {
    "int32": "INT",
    "int64": "BIGINT",
    "uint32": "BIGINT",
    "uint64": "DECIMAL(20,0)",
    "double": "DOUBLE",
    "float": "FLOAT",
    "bool": "BOOLEAN",
    "enum": "STRING",
    "string": "STRING",
}
_CPP_NAMES: Final = (
    "",
    "int32",
    "int64",
    "uint32",
    "uint64",
    "double",
    "float",
    "bool",
    "enum",
    "string",
    "message",
)
"""Of FieldDescriptor.cpp_type, by number."""


class Protobuf:
    """`schema_file`: a .proto file, or a descriptor set (`protoc --include_imports --descriptor_set_out`). `message`: the
    full name of the type, where the file has several. `confluent`: a magic byte, a schema id and the message's place in
    the file stand before the data; `schema_id`: the id to write, and the only one to read.
    """

    is_record: Final = True

    def __init__(
        self,
        schema_file: str | Path,
        *,
        message: str | None = None,
        confluent: bool = False,
        schema_id: int | None = None,
    ) -> None:
        self._framing = framing(confluent, schema_id)
        try:
            self._files, main = _descriptors(Path(schema_file))
            self._message = message or _only_message(main, schema_file)
            self._type: Any = None
            kind = self._ready().DESCRIPTOR
        except ModuleNotFoundError:
            raise ConfigError("Protobuf needs more packages: pip install 'odradek[formats]'") from None
        except KeyError:
            raise ConfigError(f"{schema_file} has no message {message}") from None
        self.name = f"Protobuf {self._message} of {Path(schema_file).name}"
        self._place = _place(kind)
        self.ddl = _fields(kind, str(schema_file), ())

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_type": None}  # tasks make it again

    def decode(self, data: bytes) -> dict[str, Any]:
        """The message's fields. ValueError for other data."""
        payload: bytes | memoryview = data
        if self._framing is not None:
            payload = self._after_place(self._framing.payload(data))
        made = self._ready()()
        try:
            made.ParseFromString(bytes(payload))
        except message.DecodeError as error:
            raise ValueError(str(error) or "not a message") from None
        return _read(made)

    def encode(self, value: Any) -> bytes:
        """ValueError for fields that the message does not have, or that do not fit."""
        made = self._ready()()
        try:
            _write(made, value)
        except (TypeError, AttributeError, KeyError) as error:
            raise ValueError(f"{type(error).__name__}: {error}") from None
        data: bytes = made.SerializeToString(deterministic=True)
        if self._framing is None:
            return data
        place = b"\0" if self._place == (0,) else b"".join(map(varint, (len(self._place), *self._place)))
        return self._framing.head() + place + data

    def _after_place(self, data: memoryview) -> memoryview:
        count, end = read_varint(data, 0)
        place = []
        for _ in range(count):
            number, end = read_varint(data, end)
            place.append(number)
        if (tuple(place) or (0,)) != self._place:
            raise ValueError(f"the message is number {place or [0]} of its file, not {list(self._place)}")
        return data[end:]

    def _ready(self) -> Any:
        if self._type is None:
            pool = descriptor_pool.DescriptorPool()
            for file in self._files:
                pool.AddSerializedFile(file)
            self._type = message_factory.GetMessageClass(pool.FindMessageTypeByName(self._message))
        return self._type


def _descriptors(path: Path) -> tuple[tuple[bytes, ...], Any]:
    """The files of a descriptor set, what they import first; and the one that was asked for, which is the last."""
    data = _compiled(path) if path.suffix == ".proto" else read_schema_file(path)
    files = descriptor_pb2.FileDescriptorSet()
    try:
        files.ParseFromString(data)
    except message.DecodeError:
        raise ConfigError(f"{path} is neither a .proto file nor a descriptor set") from None
    if not files.file:
        raise ConfigError(f"{path} is an empty descriptor set")
    return tuple(file.SerializeToString() for file in files.file), files.file[-1]


def _compiled(path: Path) -> bytes:
    read_schema_file(path)
    if importlib.util.find_spec("grpc_tools") is None:
        raise ConfigError(
            f"compiling {path} needs grpcio-tools: pip install 'odradek[formats]', or give a descriptor set"
        )
    with tempfile.TemporaryDirectory() as directory:
        out = Path(directory) / "descriptors"
        command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{path.parent}", "--include_imports"]
        done = subprocess.run(
            [*command, f"--descriptor_set_out={out}", path.name],
            capture_output=True,
            text=True,
            timeout=_COMPILE_TIMEOUT_S,
            check=False,
        )
        if done.returncode:
            raise ConfigError(f"{path} does not compile: {' '.join(done.stderr.split())[:300]}")
        return out.read_bytes()


def _only_message(file: Any, path: str | Path) -> str:
    names = [kind.name for kind in file.message_type]
    if len(names) != 1:
        raise ConfigError(f"{path} has the messages {', '.join(names) or '(none)'}: say which with message=")
    return f"{file.package}.{names[0]}" if file.package else str(names[0])


def _place(kind: Descriptor) -> tuple[int, ...]:
    """The indexes that lead from the file to the message. The types that maps make are not written there: they do not count."""
    outer = kind.containing_type
    siblings = kind.file.message_types_by_name if outer is None else outer.nested_types_by_name
    number = [name for name, one_type in siblings.items() if not one_type.GetOptions().map_entry].index(
        kind.name
    )
    return (number,) if outer is None else (*_place(outer), number)


def _fields(kind: Descriptor, file: str, above: tuple[str, ...]) -> str:
    if kind.full_name in above:
        raise ConfigError(f"{file}: {kind.full_name} holds itself: columns cannot")
    separator = ": " if above else " "
    above = (*above, kind.full_name)
    return ", ".join(f"`{field.name}`{separator}{_type(field, file, above)}" for field in kind.fields)


def _type(field: FieldDescriptor, file: str, above: tuple[str, ...]) -> str:
    if _is_map(field):
        key, value = field.message_type.fields
        return f"MAP<{_single(key, file, above)}, {_single(value, file, above)}>"
    single = _single(field, file, above)
    return f"ARRAY<{single}>" if field.is_repeated else single


def _single(field: FieldDescriptor, file: str, above: tuple[str, ...]) -> str:
    name = _CPP_NAMES[field.cpp_type]
    if name != "message":
        return "BINARY" if field.type == field.TYPE_BYTES else _TYPES[name]
    if field.message_type.full_name == _TIMESTAMP:
        return "TIMESTAMP"
    return f"STRUCT<{_fields(field.message_type, file, above)}>"


def _is_map(field: FieldDescriptor) -> bool:
    kind = field.message_type
    return kind is not None and kind.GetOptions().map_entry


def _read(made: Any) -> dict[str, Any]:
    return {field.name: _read_field(made, field) for field in made.DESCRIPTOR.fields}


def _read_field(made: Any, field: FieldDescriptor) -> Any:
    if _is_map(field):
        value = field.message_type.fields_by_name["value"]
        return [(key, _plain(content, value)) for key, content in getattr(made, field.name).items()]
    if field.is_repeated:
        return [_plain(element, field) for element in getattr(made, field.name)]
    if field.has_presence and not made.HasField(field.name):
        return None
    return _plain(getattr(made, field.name), field)


def _plain(value: Any, field: FieldDescriptor) -> Any:
    if field.enum_type is not None:
        named = field.enum_type.values_by_number.get(value)
        return str(value) if named is None else named.name
    if field.message_type is None:
        return value
    if field.message_type.full_name == _TIMESTAMP:
        return value.ToNanoseconds() // 1_000
    return _read(value)


def _write(made: Any, fields: dict[str, Any]) -> None:
    known = made.DESCRIPTOR.fields_by_name
    for name, value in fields.items():
        if name not in known:
            raise KeyError(f"{made.DESCRIPTOR.full_name} has no field {name}")
        if value is not None:
            _write_field(made, known[name], value)


def _write_field(made: Any, field: FieldDescriptor, value: Any) -> None:
    place: Any = getattr(made, field.name) if field.is_repeated or field.message_type is not None else None
    if _is_map(field):
        for key, content in dict(value).items():
            if field.message_type.fields_by_name["value"].message_type is None:
                place[key] = _number(field.message_type.fields_by_name["value"], content)
            else:
                _write_message(place[key], content)
    elif field.is_repeated:
        _write_elements(place, field, value)
    elif field.message_type is not None:
        place.SetInParent()
        _write_message(place, value)
    else:
        setattr(made, field.name, _number(field, value))


def _write_elements(place: Any, field: FieldDescriptor, values: Iterable[Any]) -> None:
    if field.message_type is None:
        place.extend(_number(field, value) for value in values)
        return
    for value in values:
        _write_message(place.add(), value)


def _write_message(place: Any, value: Any) -> None:
    if place.DESCRIPTOR.full_name == _TIMESTAMP:
        place.FromDatetime(value)
    else:
        _write(place, value)


def _number(field: FieldDescriptor, value: Any) -> Any:
    """An enum's number by its name; a whole number of a DECIMAL."""
    if field.enum_type is not None and isinstance(value, str):
        if value not in field.enum_type.values_by_name:
            raise ValueError(f"{field.enum_type.full_name} has no value {value}")
        return field.enum_type.values_by_name[value].number
    return int(value) if _CPP_NAMES[field.cpp_type] == "uint64" else value
