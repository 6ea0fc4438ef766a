"""Text of .proto files as descriptors: messages, fields, enums, maps, oneofs. Services and most options are left out.

Source: the Protocol Buffers language specification, proto2 and proto3.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from odradek.model.lazy import lazy
from odradek.values.errors import SqlError

if TYPE_CHECKING:
    from google.protobuf import descriptor_pb2
else:
    descriptor_pb2 = lazy("google.protobuf.descriptor_pb2")

_TOKEN: Final = re.compile(
    r"\s+|//[^\n]*|/\*.*?\*/|(\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|[A-Za-z_][\w.]*|\.[A-Za-z_][\w.]*|-?[0-9.][\w.+-]*|.)",
    re.DOTALL,
)
_SCALARS: Final = (
    "double",
    "float",
    "int64",
    "uint64",
    "int32",
    "fixed64",
    "fixed32",
    "bool",
    "string",
    "group",
    "message",
    "bytes",
    "uint32",
    "enum",
    "sfixed32",
    "sfixed64",
    "sint32",
    "sint64",
)
"""The scalar types, in the order of the numbers of FieldDescriptorProto.Type, from 1 on."""
_NUMBER: Final = re.compile(
    r"(?P<minus>-?)(?:(?P<hexadecimal>0[xX])(?=[0-9a-fA-F])|(?P<octal>0)(?=[0-7]))?"
    r"(?P<digits>(?(hexadecimal)[0-9a-fA-F]|[0-9]){1,20})"
)
_NUMBER_MAX: Final = 2**31 - 1
_OPTIONAL, _REQUIRED, _REPEATED = 1, 2, 3
_DEPTH_MAX: Final = 32
DECIMAL_PARAMETERS: Final = re.compile(
    r"key\s*:?\s*\"(precision|scale)\"\s*,?\s*value\s*:?\s*\"([0-9]{1,9})\"", re.IGNORECASE
)


class ProtoReader:
    """Reads one file. `decimals`: precision and scale from a field's options, by the field's full name."""

    def __init__(self, name: str, text: str) -> None:
        self._tokens = [match[1] for match in _TOKEN.finditer(text) if match[1]]
        self._next = 0
        self._name = name
        self._is_proto3 = False
        self.decimals: Final[dict[str, tuple[int, int]]] = {}

    def file(self) -> descriptor_pb2.FileDescriptorProto:
        """Returns a FileDescriptorProto. SqlError for a text that is none."""
        file = descriptor_pb2.FileDescriptorProto(name=self._name)
        while self._next < len(self._tokens):
            match self._next_token():
                case "syntax" | "edition":
                    self._expect("=")
                    file.syntax = self._text()
                    self._is_proto3 = file.syntax == "proto3"
                    self._expect(";")
                case "package":
                    file.package = self._next_token()
                    self._expect(";")
                case "import":
                    if self._peek() in ("public", "weak"):
                        self._next_token()
                    file.dependency.append(self._text())
                    self._expect(";")
                case "message":
                    self._message(file.message_type.add(), file.package, 0)
                case "enum":
                    self._enum(file.enum_type.add())
                case ";":
                    pass
                case _:
                    self._skip()
        return file

    # ---- parts

    def _message(self, message: descriptor_pb2.DescriptorProto, scope: str, depth: int) -> None:
        if depth > _DEPTH_MAX:
            raise SqlError(f"{self._name}: messages within messages, too deep to follow")
        message.name = self._next_token()
        path = f"{scope}.{message.name}" if scope else message.name
        self._expect("{")
        optional: list[descriptor_pb2.FieldDescriptorProto] = []
        while (token := self._next_token()) != "}":
            match token:
                case "message" if self._peek(1) == "{":
                    self._message(message.nested_type.add(), path, depth + 1)
                case "enum" if self._peek(1) == "{":
                    self._enum(message.enum_type.add())
                case "oneof":
                    self._oneof(message, path)
                case "map" if self._peek() == "<":
                    self._map(message, path)
                case "reserved" | "extensions" | "option" | "extend":
                    self._skip()
                case ";":
                    pass
                case "optional" | "required" | "repeated":
                    field = self._field(message, self._next_token(), path)
                    field.label = {"optional": _OPTIONAL, "required": _REQUIRED, "repeated": _REPEATED}[token]
                    if token == "optional" and self._is_proto3:
                        optional.append(field)
                case _:
                    self._field(message, token, path).label = _OPTIONAL
        # a oneof of its own marks whether the field is present; these oneofs come after the others
        for field in optional:
            field.proto3_optional = True
            field.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{field.name}")

    def _field(
        self, message: descriptor_pb2.DescriptorProto, kind: str, path: str
    ) -> descriptor_pb2.FieldDescriptorProto:
        field = message.field.add(name=self._next_token())
        self._expect("=")
        field.number = self._number()
        self._set_type(field, kind)
        if self._peek() == "[":
            options = self._options()
            parameters = {name.lower(): int(number) for name, number in DECIMAL_PARAMETERS.findall(options)}
            if parameters:
                self.decimals[f"{path}.{field.name}"] = (
                    parameters.get("precision", 38),
                    parameters.get("scale", 0),
                )
        self._expect(";")
        return field

    def _set_type(self, field: descriptor_pb2.FieldDescriptorProto, kind: str) -> None:
        if kind in _SCALARS and kind not in ("group", "message", "enum"):
            field.type = _SCALARS.index(kind) + 1
        else:
            field.type_name = kind

    def _oneof(self, message: descriptor_pb2.DescriptorProto, path: str) -> None:
        index = len(message.oneof_decl)
        message.oneof_decl.add(name=self._next_token())
        self._expect("{")
        while (token := self._next_token()) != "}":
            if token == "option":
                self._skip()
            elif token != ";":
                field = self._field(message, token, path)
                field.label, field.oneof_index = _OPTIONAL, index

    def _map(self, message: descriptor_pb2.DescriptorProto, path: str) -> None:
        self._expect("<")
        key = self._next_token()
        self._expect(",")
        value = self._next_token()
        self._expect(">")
        field = self._field(message, "", path)
        name = "".join(part[:1].upper() + part[1:] for part in field.name.split("_")) + "Entry"
        entry = message.nested_type.add(name=name)
        entry.options.map_entry = True
        for number, (part, kind) in enumerate((("key", key), ("value", value)), 1):
            part_of_entry = entry.field.add(name=part, number=number, label=_OPTIONAL)
            self._set_type(part_of_entry, kind)
        field.type_name, field.label = name, _REPEATED

    def _enum(self, enum: descriptor_pb2.EnumDescriptorProto) -> None:
        enum.name = self._next_token()
        self._expect("{")
        while (token := self._next_token()) != "}":
            if token in ("option", "reserved"):
                self._skip()
            elif token != ";":
                self._expect("=")
                enum.value.add(name=token, number=self._number())
                if self._peek() == "[":
                    self._options()
                self._expect(";")
        if len({value.number for value in enum.value}) < len(enum.value):
            enum.options.allow_alias = True

    # ---- tokens

    def _peek(self, ahead: int = 0) -> str:
        index = self._next + ahead
        return self._tokens[index] if index < len(self._tokens) else ""

    def _next_token(self) -> str:
        if self._next >= len(self._tokens):
            raise SqlError(f"{self._name} is no .proto file: it ends too soon")
        self._next += 1
        return self._tokens[self._next - 1]

    def _expect(self, sign: str) -> None:
        token = self._next_token()
        if token != sign:
            raise SqlError(f"{self._name} is no .proto file: unexpected {token!r}, {sign!r} is needed")

    def _text(self) -> str:
        return self._next_token().strip("\"'")

    def _number(self) -> int:
        token = self._next_token()
        match = _NUMBER.fullmatch(token)
        if match is None:
            raise SqlError(f"{self._name} is no .proto file: {token!r:.80} is no number")
        number = int(match["digits"], 16 if match["hexadecimal"] else 8 if match["octal"] else 10)
        if number > _NUMBER_MAX:
            raise SqlError(f"{self._name} is no .proto file: {token!r:.80} is too large a number")
        return -number if match["minus"] else number

    def _options(self) -> str:
        """The text between square brackets."""
        start, depth = self._next, 0
        while True:
            token = self._next_token()
            depth += {"[": 1, "]": -1}.get(token, 0)
            if depth == 0:
                return " ".join(self._tokens[start : self._next])

    def _skip(self) -> None:
        """Skips to the end of a statement, or of the block that it has."""
        depth = 0
        while True:
            token = self._next_token()
            depth += {"{": 1, "}": -1}.get(token, 0)
            if depth == 0 and token in (";", "}"):
                return
