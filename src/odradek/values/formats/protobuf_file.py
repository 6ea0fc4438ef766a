"""Protobuf: messages of a .proto file, or of a descriptor set that protoc made of one.

A field without presence (proto3 without `optional`) has its default where a message leaves it out; others are null then.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from odradek.model.errors import ConfigError
from odradek.model.lazy import lazy
from odradek.model.public import public
from odradek.values.errors import SqlError
from odradek.values.formats.framing import after_message_head, framing, message_head
from odradek.values.formats.protobuf_schemas import SPARK_TYPES, message_class, message_indexes, proto_type
from odradek.values.formats.protobuf_values import decoded_message, encoded_message
from odradek.values.formats.schema_files import read_schema_file

if TYPE_CHECKING:
    from google.protobuf import descriptor_pb2, descriptor_pool, message
else:
    descriptor_pb2 = lazy("google.protobuf.descriptor_pb2")
    descriptor_pool = lazy("google.protobuf.descriptor_pool")
    message = lazy("google.protobuf.message")

_COMPILE_TIMEOUT_S: Final = 60


@public("odradek.streams")
class Protobuf:
    """The format of records in Protobuf, by a schema file.

    `schema_file`: a .proto file, or a descriptor set (`protoc --include_imports --descriptor_set_out`). `message`: the
    full name of the type, where the file has several. `confluent`: a magic byte, a schema id and the message's indexes in
    the file precede the data; `schema_id`: the id to write, and the only one to read.
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
            self._type: object = None
            kind = self._ready().DESCRIPTOR
        except ModuleNotFoundError:
            raise ConfigError("Protobuf needs more packages: pip install 'odradek[formats]'") from None
        except KeyError:
            raise ConfigError(f"{schema_file} has no message {message}") from None
        self.name = f"Protobuf {self._message} of {Path(schema_file).name}"
        self._indexes = message_indexes(kind)
        try:
            self._kind = proto_type(kind, SPARK_TYPES)
        except SqlError as error:
            raise ConfigError(f"{schema_file}: {error}") from None
        self.ddl = self._kind.fields_ddl

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__ | {"_type": None}  # tasks make it again

    def decode(self, data: bytes) -> dict[str, object]:
        """Returns the message's fields. Raises ValueError for other data."""
        if self._framing is not None:
            indexes, data = after_message_head(self._framing.payload(data))
            if indexes != self._indexes:
                raise ValueError(
                    f"the message is number {list(indexes)} of its file, not {list(self._indexes)}"
                )
        return decoded_message(self._ready(), self._kind, data)

    def encode(self, value: Any) -> bytes:
        """Returns the bytes of a message with these fields. Raises ValueError for fields that the message does not have, or
        that do not fit."""
        data = encoded_message(self._ready(), self._kind, value)
        return data if self._framing is None else self._framing.head() + message_head(self._indexes) + data

    def _ready(self) -> Any:
        if self._type is None:
            pool = descriptor_pool.DescriptorPool()
            for file in self._files:
                pool.AddSerializedFile(file)
            self._type = message_class(pool.FindMessageTypeByName(self._message))
        return self._type


def _descriptors(path: Path) -> tuple[tuple[bytes, ...], object]:
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
        command = [sys.executable, "-P", "-m", "grpc_tools.protoc", f"-I{path.parent}", "--include_imports"]
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
        raise ConfigError(f"{path} has the messages {', '.join(names) or '(none)'}: name one with message=")
    return f"{file.package}.{names[0]}" if file.package else str(names[0])
