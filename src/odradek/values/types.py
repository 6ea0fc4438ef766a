"""The types of columns and expressions: ksqlDB's names, what Spark calls them, and which becomes which without a CAST.

Source: ksqlDB's reference of data types and of type coercion.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from odradek.model.aliases import Json
from odradek.values.errors import SqlError, nearest

DECIMAL_PRECISION_MAX: Final = 38
"""Spark's; ksqlDB has no bound."""
_SPARK: Final = {
    "BOOLEAN": "BOOLEAN",
    "INTEGER": "INT",
    "BIGINT": "BIGINT",
    "DOUBLE": "DOUBLE",
    "STRING": "STRING",
    "BYTES": "BINARY",
    "DATE": "DATE",
    "TIME": "INT",
    "TIMESTAMP": "TIMESTAMP",
    "NULL": "VOID",
    "TINYINT": "TINYINT",
    "SMALLINT": "SMALLINT",
    "FLOAT": "FLOAT",
    "TIMESTAMP_LTZ": "TIMESTAMP",
    "TIMESTAMP_NTZ": "TIMESTAMP_NTZ",
}
_SPARK_ONLY: Final = ("NULL", "TINYINT", "SMALLINT", "FLOAT", "TIMESTAMP_LTZ", "TIMESTAMP_NTZ")
_STORED: Final = {"TIME": "INTEGER", "TIMESTAMP": "TIMESTAMP_LTZ"}
"""Types that Spark does not have, and the ones that hold their values there."""
_NAMES: Final = {
    "INT": "INTEGER",
    "VARCHAR": "STRING",
    **{name: name for name in _SPARK if name not in _SPARK_ONLY},
}
_NUMBERS: Final = ("INTEGER", "BIGINT", "DECIMAL", "DOUBLE")
"""The types of numbers, from the narrowest to the widest."""
_TIMES: Final = ("DATE", "TIME", "TIMESTAMP")


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlType:
    """A type of SQL.

    `kind`: BOOLEAN, INTEGER, BIGINT, DOUBLE, STRING, BYTES, DECIMAL, DATE, TIME, TIMESTAMP, ARRAY, MAP, STRUCT; NULL of an
    expression that is only `NULL`; LAMBDA of an argument such as `x => x + 1`; UNIT of a unit of time such as DAYS.

    `parts`: the element of an ARRAY, key and value of a MAP, the result of a LAMBDA. `fields`: of a STRUCT, in order.
    A TIME is the milliseconds since midnight in Spark, as records have it. TINYINT, SMALLINT, FLOAT, TIMESTAMP_LTZ and
    TIMESTAMP_NTZ come from DDL and schema files of Spark's programs: no statement names them. The last two keep microseconds,
    a TIMESTAMP keeps milliseconds.
    """

    kind: str
    precision: int = 0
    scale: int = 0
    parts: tuple[SqlType, ...] = ()
    fields: tuple[tuple[str, SqlType], ...] = ()

    def __str__(self) -> str:
        match self.kind:
            case "DECIMAL":
                return f"DECIMAL({self.precision}, {self.scale})"
            case "ARRAY" | "MAP" | "LAMBDA":
                return f"{self.kind}<{', '.join(map(str, self.parts))}>"
            case "STRUCT":
                return f"STRUCT<{', '.join(f'{_quoted(name)} {kind}' for name, kind in self.fields) or ' '}>"
        return self.kind

    @property
    def ddl(self) -> str:
        """The type of Spark that holds its values."""
        match self.kind:
            case "DECIMAL":
                return f"DECIMAL({self.precision},{self.scale})"
            case "ARRAY" | "MAP":
                return f"{self.kind}<{','.join(part.ddl for part in self.parts)}>"
            case "STRUCT":
                return f"STRUCT<{','.join(f'{_quoted(name)}: {kind.ddl}' for name, kind in self.fields)}>"
            case "LAMBDA" | "UNIT":
                raise SqlError(f"{self} is an argument of a function and no value")
        return _SPARK[self.kind]

    @property
    def stored(self) -> SqlType:
        """The type that Spark's schema shows for a column of this type: what `values.ddl` reads of `ddl`."""
        return SqlType(
            kind=_STORED.get(self.kind, self.kind),
            precision=self.precision,
            scale=self.scale,
            parts=tuple(part.stored for part in self.parts),
            fields=tuple((name, kind.stored) for name, kind in self.fields),
        )

    @property
    def fields_ddl(self) -> str:
        """The fields of a STRUCT as columns of Spark."""
        return ", ".join(f"{_quoted(name)} {kind.ddl}" for name, kind in self.fields)

    def schema_json(self) -> dict[str, Json]:
        """Returns the schema of a field as ksqlDB's REST shows it."""
        json: dict[str, Json] = {
            "type": self.kind,
            "fields": [{"name": name, "schema": kind.schema_json()} for name, kind in self.fields]
            if self.kind == "STRUCT"
            else None,
            "memberSchema": self.parts[-1].schema_json() if self.kind in ("ARRAY", "MAP") else None,
        }
        if self.kind == "DECIMAL":
            json["parameters"] = {"precision": self.precision, "scale": self.scale}
        return json

    @property
    def is_number(self) -> bool:
        return self.kind in _NUMBERS

    @property
    def is_simple(self) -> bool:
        """Neither ARRAY, nor MAP, nor STRUCT: the primitive types of ksqlDB's pages."""
        return self.kind not in ("ARRAY", "MAP", "STRUCT", "LAMBDA")

    @property
    def holds_map(self) -> bool:
        """Whether the type is a MAP, or has one in it."""
        inner = [*self.parts, *(kind for _, kind in self.fields)]
        return self.kind == "MAP" or any(kind.holds_map for kind in inner)

    @property
    def element(self) -> SqlType:
        """The type of an ARRAY's elements, or of a MAP's values."""
        return self.parts[-1]

    @property
    def map_key(self) -> SqlType:
        return self.parts[0]

    def field(self, name: str) -> SqlType:
        """Returns the type of a STRUCT's field. Raises SqlError with the nearest name when it has no such field."""
        for field_name, kind in self.fields:
            if field_name == name:
                return kind
        names = [field_name for field_name, _ in self.fields]
        hint = nearest(name, names) or f"It has {', '.join(names)}"
        raise SqlError(f"{self} has no field {name}", hint=hint)


BIGINT_MAX: Final = 2**63 - 1
BOOLEAN: Final = SqlType(kind="BOOLEAN")
INTEGER: Final = SqlType(kind="INTEGER")
BIGINT: Final = SqlType(kind="BIGINT")
DOUBLE: Final = SqlType(kind="DOUBLE")
STRING: Final = SqlType(kind="STRING")
BYTES: Final = SqlType(kind="BYTES")
DATE: Final = SqlType(kind="DATE")
TIME: Final = SqlType(kind="TIME")
TIMESTAMP: Final = SqlType(kind="TIMESTAMP")
NULL: Final = SqlType(kind="NULL")
UNIT: Final = SqlType(kind="UNIT")


def decimal_of(precision: int, scale: int) -> SqlType:
    """Returns a DECIMAL type. Raises SqlError unless 0 <= scale <= precision <= 38."""
    if not 0 < precision <= DECIMAL_PRECISION_MAX or not 0 <= scale <= precision:
        raise SqlError(
            f"DECIMAL({precision}, {scale}) does not exist",
            hint=f"Precision is 1 to {DECIMAL_PRECISION_MAX}, scale 0 to the precision",
        )
    return SqlType(kind="DECIMAL", precision=precision, scale=scale)


def array_of(element: SqlType) -> SqlType:
    return SqlType(kind="ARRAY", parts=(element,))


def map_of(key: SqlType, value: SqlType) -> SqlType:
    return SqlType(kind="MAP", parts=(key, value))


def struct_of_fields(fields: Sequence[tuple[str, SqlType]]) -> SqlType:
    return SqlType(kind="STRUCT", fields=tuple(fields))


def lambda_of(body_type: SqlType) -> SqlType:
    """Returns the type of an argument such as `x => x + 1`, whose body has this type."""
    return SqlType(kind="LAMBDA", parts=(body_type,))


# ---- which becomes which


def common_type(left: SqlType, right: SqlType) -> SqlType | None:
    """The type that both become without a CAST; None when there is none.

    INTEGER -> BIGINT -> DECIMAL -> DOUBLE; ARRAY, MAP and STRUCT by what they hold, a STRUCT with the fields of both; a NULL is
    of any type.
    """
    if left == right or right.kind == "NULL":
        return left
    if left.kind == "NULL":
        return right
    if left.is_number and right.is_number:
        return _common_number(left, right)
    if left.kind != right.kind:
        return None
    match left.kind:
        case "ARRAY" | "MAP":
            parts = [common_type(*pair) for pair in zip(left.parts, right.parts, strict=True)]
            return (
                SqlType(kind=left.kind, parts=tuple(part for part in parts if part)) if all(parts) else None
            )
        case "STRUCT":
            return _common_struct(left, right)
    return None


def _common_number(left: SqlType, right: SqlType) -> SqlType:
    kind = max(left.kind, right.kind, key=_NUMBERS.index)
    if kind != "DECIMAL":
        return SqlType(kind=kind)
    first, second = as_decimal(left), as_decimal(right)
    scale = max(first.scale, second.scale)
    whole = max(first.precision - first.scale, second.precision - second.scale)
    precision = min(whole + scale, DECIMAL_PRECISION_MAX)
    return SqlType(kind="DECIMAL", precision=precision, scale=min(scale, precision))


def as_decimal(number: SqlType) -> SqlType:
    """The DECIMAL that holds any INTEGER, BIGINT or the DECIMAL itself."""
    if number.kind == "DECIMAL":
        return number
    return decimal_of(10 if number.kind == "INTEGER" else 19, 0)


def _common_struct(left: SqlType, right: SqlType) -> SqlType | None:
    others = dict(right.fields)
    fields = []
    for name, kind in left.fields:
        common = common_type(kind, others.pop(name)) if name in others else kind
        if common is None:
            return None
        fields.append((name, common))
    return struct_of_fields([*fields, *others.items()])


def is_castable_implicitly(source: SqlType, target: SqlType) -> bool:
    """Returns whether a value of `source` can be used where `target` is wanted."""
    if source == target or source.kind == "NULL":
        return True
    if source.is_number and target.is_number:
        if source.kind == target.kind == "DECIMAL":
            return (
                source.scale <= target.scale
                and source.precision - source.scale <= target.precision - target.scale
            )
        return _NUMBERS.index(source.kind) < _NUMBERS.index(target.kind)
    if source.kind != target.kind:
        return False
    match source.kind:
        case "ARRAY" | "MAP":
            return all(is_castable_implicitly(*pair) for pair in zip(source.parts, target.parts, strict=True))
        case "STRUCT":
            targets = dict(target.fields)
            return all(
                is_castable_implicitly(kind, targets[name]) for name, kind in source.fields if name in targets
            )
    return True


def can_cast(source: SqlType, target: SqlType) -> bool:
    """CAST(source AS target) exists: ksqlDB's table of casts."""
    if source.kind == "NULL" or source == target:
        return True
    match target.kind:
        case "STRING":
            return source.kind != "BYTES"
        case "BOOLEAN":
            return source.kind == "STRING"
        case "INTEGER" | "BIGINT" | "DECIMAL" | "DOUBLE":
            return source.is_number or source.kind == "STRING"
        case "DATE" | "TIME":
            return source.kind in ("STRING", "TIMESTAMP")
        case "TIMESTAMP":
            return source.kind in ("STRING", "DATE")
        case "ARRAY" | "MAP":
            return source.kind == target.kind and all(
                can_cast(*pair) for pair in zip(source.parts, target.parts, strict=True)
            )
        case "STRUCT":
            kinds = dict(source.fields)
            return source.kind == "STRUCT" and all(
                can_cast(kinds[name], kind) for name, kind in target.fields if name in kinds
            )
    return False


def are_comparable(left: SqlType, right: SqlType) -> bool:
    """Returns whether `=` and `<` exist between two types. Next to a DATE, TIME or TIMESTAMP, a STRING is read as one."""
    if common_type(left, right) is not None:
        return True
    kinds = {left.kind, right.kind}
    return ("STRING" in kinds and not kinds.isdisjoint(_TIMES)) or kinds == {"DATE", "TIMESTAMP"}


# ---- text

_TOKEN: Final = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([0-9]*[A-Za-z_][\w$@]*)|([0-9]+)|([<>(),]))")


def parse_type(text: str, types: Mapping[str, SqlType] | None = None) -> SqlType:
    """Understand `INT`, `DECIMAL(10, 2)`, `MAP<STRING, ARRAY<INT>>`, ``STRUCT<name STRING, `last` INT>``.

    `types`: what CREATE TYPE has named. SqlError for what is no type, with the nearest one.
    """
    reading = _TypeReading(text, types or {})
    kind = reading.type()
    reading.end()
    return kind


class _TypeReading:
    """Text of a type, token by token. A token is ("name" | "quoted" | "number" | the sign itself, text)."""

    def __init__(self, text: str, types: Mapping[str, SqlType]) -> None:
        self._text = text
        self._types = types
        self._tokens = list(self._split())
        self._index = 0

    def _split(self) -> Iterator[tuple[str, str]]:
        index, text = 0, self._text.rstrip()
        while index < len(text):
            match = _TOKEN.match(text, index)
            if match is None:
                raise SqlError(f"{self._text!r} is no type: unexpected {text[index:].strip()!r}")
            quoted, name, number, sign = match.groups()
            if quoted is not None:
                yield "quoted", quoted.replace("``", "`")
            elif name is not None:
                yield "name", name.upper()
            else:
                yield ("number", number) if number is not None else (sign, sign)
            index = match.end()

    def _next(self, *kinds: str) -> str:
        kind, text = self._tokens[self._index] if self._index < len(self._tokens) else ("", "its end")
        if kind not in kinds:
            if self._tokens[-1:] == [("name", "DECIMAL")]:
                raise SqlError("DECIMAL needs precision and scale", hint="Write DECIMAL(10, 2).")
            raise SqlError(f"{self._text!r} is no type: {' or '.join(kinds)} is wanted where it has {text}")
        self._index += 1
        return text

    def _comes(self, sign: str) -> bool:
        if self._index < len(self._tokens) and self._tokens[self._index][0] == sign:
            self._index += 1
            return True
        return False

    def end(self) -> None:
        if self._index < len(self._tokens):
            raise SqlError(f"{self._text!r} is no type: {self._tokens[self._index][1]} is too much")

    def type(self) -> SqlType:
        name = self._next("name", "quoted")
        match name:
            case "ARRAY":
                return array_of(self._inside(1)[0])
            case "MAP":
                return map_of(*self._inside(2))
            case "STRUCT":
                return self._struct()
            case "DECIMAL":
                return self._decimal()
            case "VARCHAR" | "STRING" if self._comes("("):
                self._next("name", "number")
                self._next(")")
                return STRING
        if name in self._types:
            return self._types[name]
        if name in _NAMES:
            return SqlType(kind=_NAMES[name])
        known = [*_NAMES, "ARRAY", "MAP", "STRUCT", "DECIMAL", *self._types]
        raise SqlError(f"Cannot resolve unknown type: {name}", hint=nearest(name, known))

    def _inside(self, count: int) -> list[SqlType]:
        self._next("<")
        parts = [self.type()]
        for _ in range(count - 1):
            self._next(",")
            parts.append(self.type())
        self._next(">")
        return parts

    def _struct(self) -> SqlType:
        self._next("<")
        fields: list[tuple[str, SqlType]] = []
        while not self._comes(">"):
            if fields:
                self._next(",")
            fields.append((self._next("name", "quoted"), self.type()))
        names = [name for name, _ in fields]
        for name in names:
            if names.count(name) > 1:
                raise SqlError(f"STRUCT has the field {name} twice")
        return struct_of_fields(fields)

    def _decimal(self) -> SqlType:
        self._next("(")
        precision, scale = int(self._next("number")), 0
        if self._comes(","):
            scale = int(self._next("number"))
        self._next(")")
        return decimal_of(precision, scale)


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"
