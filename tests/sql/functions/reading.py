"""Expressions of the cases: constants and calls, as (type, Spark SQL).

    LPAD('Foo', 7, 'Bar')    TRANSFORM(ARRAY[1, 2], x => x + 1)    CAST(NULL AS STRING)    BYTES'00ff'    DATE'2024-02-29'

Only what cases need: arithmetic and comparisons in lambdas are written as in Spark. Functions are looked up in FUNCTIONS.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from odradek.sql.functions import FUNCTIONS
from odradek.sql.functions.literals import quoted
from odradek.values.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    INTEGER,
    NULL,
    STRING,
    TIME,
    TIMESTAMP,
    UNIT,
    SqlType,
    array_of,
    common_type,
    decimal_of,
    is_castable_implicitly,
    lambda_of,
    map_of,
    parse_type,
    struct_of_fields,
)

_TOKEN: Final = re.compile(
    r"\s*(?:(?P<typed>(?:BYTES|DATE|TIME|TIMESTAMP)'[^']*')|(?P<text>'(?:[^']|'')*')"
    r"|(?P<number>\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)|(?P<name>[A-Za-z_]\w*)|(?P<sign>:=|=>|<=|>=|<>|\|\||[-+*/%=<>()\[\],]))"
)
_UNITS: Final = {
    "DAYS",
    "HOURS",
    "MINUTES",
    "SECONDS",
    "MILLISECONDS",
    "DAY",
    "HOUR",
    "MICROSECONDS",
    "NANOSECONDS",
}
Typed = tuple[SqlType, str]


@dataclass
class Reading:
    """An expression, token by token. `variables`: of the lambdas around, with their types."""

    text: str
    variables: dict[str, SqlType] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.tokens: list[tuple[str, str]] = []
        place, text = 0, self.text.rstrip()
        while place < len(text):
            match = _TOKEN.match(text, place)
            if match is None:
                raise ValueError(f"{self.text}: what is {text[place:]}?")
            kind = match.lastgroup or ""
            self.tokens.append((kind, match[kind]))
            place = match.end()
        self.place = 0

    def peek(self, ahead: int = 0) -> tuple[str, str]:
        place = self.place + ahead
        return self.tokens[place] if place < len(self.tokens) else ("", "")

    def take(self, wanted: str | None = None) -> str:
        text = self.peek()[1]
        if wanted is not None and text.upper() != wanted:
            raise ValueError(f"{self.text}: {wanted} is wanted where {text!r} stands")
        self.place += 1
        return text

    def whole(self) -> Typed:
        value = self.expression()
        if self.place != len(self.tokens):
            raise ValueError(f"{self.text}: {self.peek()[1]} is too much")
        return value

    def expression(self) -> Typed:
        left = self.primary()
        while self.peek()[0] == "sign" and self.peek()[1] in (
            "+",
            "-",
            "*",
            "/",
            "%",
            "=",
            "<>",
            "<",
            ">",
            "<=",
            ">=",
            "||",
        ):
            sign = self.take()
            right = self.primary()
            if sign == "||":
                left = (STRING, f"concat({left[1]}, {right[1]})")
            else:
                kind = (
                    BOOLEAN if sign in ("=", "<>", "<", ">", "<=", ">=") else common_type(left[0], right[0])
                )
                assert kind is not None
                left = (kind, f"({left[1]} {sign} {right[1]})")
        return left

    def primary(self) -> Typed:
        kind, text = self.peek()
        match kind:
            case "typed":
                return _typed(self.take())
            case "text":
                return STRING, quoted(self.take()[1:-1].replace("''", "'"))
            case "number":
                return _number(self.take(), "")
            case "sign" if text == "-":
                self.take()
                return _number(self.take(), "-")
            case "sign" if text == "(":
                self.take()
                inside = self.expression()
                self.take(")")
                return inside
        return self.named(self.take())

    def named(self, name: str) -> Typed:
        upper, following = name.upper(), self.peek()[1]
        if name in self.variables:
            return self.variables[name], name
        if upper in ("TRUE", "FALSE"):
            return BOOLEAN, upper
        if upper == "NULL":
            return NULL, "NULL"
        if upper in _UNITS and following != "(":
            return UNIT, f"'{upper}'"
        if upper == "ARRAY" and following == "[":
            return self.array()
        if (
            upper in ("MAP", "STRUCT")
            and following == "("
            and (self.peek(1)[1] == ")" or self.peek(2)[1] == ":=")
        ):
            return self.map() if upper == "MAP" else self.struct()
        if upper == "CAST":
            return self.cast()
        return self.call(upper)

    def array(self) -> Typed:
        self.take("[")
        items = []
        while self.peek()[1] != "]":
            items.append(self.expression())
            if self.peek()[1] == ",":
                self.take()
        self.take("]")
        kind = _common([element[0] for element in items])
        return array_of(kind), f"array({', '.join(_as(element, kind) for element in items)})"

    def pairs(self) -> list[tuple[Typed, Typed]]:
        self.take("(")
        pairs = []
        while self.peek()[1] != ")":
            is_name = self.peek()[0] == "name"
            key = (STRING, self.take().upper()) if is_name else self.expression()
            self.take(":=")
            pairs.append((key, self.expression()))
            if self.peek()[1] == ",":
                self.take()
        self.take(")")
        return pairs

    def map(self) -> Typed:
        pairs = self.pairs()
        keys, values = _common([key[0] for key, _ in pairs]), _common([value[0] for _, value in pairs])
        inside = ", ".join(f"{_as(key, keys)}, {_as(value, values)}" for key, value in pairs)
        return map_of(keys, values), f"map({inside})"

    def struct(self) -> Typed:
        pairs = self.pairs()
        fields = [(key[1], value[0]) for key, value in pairs]
        return struct_of_fields(
            fields
        ), f"named_struct({', '.join(f'{quoted(key[1])}, {value[1]}' for key, value in pairs)})"

    def cast(self) -> Typed:
        self.take("(")
        value = self.expression()
        self.take("AS")
        start, depth = self.place, 1
        while depth:
            depth += {"(": 1, ")": -1}.get(self.take(), 0)
        kind = parse_type(" ".join(text for _, text in self.tokens[start : self.place - 1]))
        return kind, f"cast({value[1]} as {kind.ddl})"

    def is_lambda(self) -> bool:
        if self.peek()[0] == "name" and self.peek(1)[1] == "=>":
            return True
        ahead = 1
        while self.peek()[1] == "(" and (self.peek(ahead)[0] == "name" or self.peek(ahead)[1] == ","):
            ahead += 1
        return self.peek()[1] == "(" and self.peek(ahead)[1] == ")" and self.peek(ahead + 1)[1] == "=>"

    def lambda_names(self) -> list[str]:
        if self.peek()[1] != "(":
            names = [self.take()]
        else:
            self.take("(")
            names = [self.take()]
            while self.peek()[1] == ",":
                self.take()
                names.append(self.take())
            self.take(")")
        self.take("=>")
        return names

    def skip_argument(self) -> None:
        depth = 0
        while depth or self.peek()[1] not in (",", ")"):
            depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(self.take(), 0)

    def call(self, name: str) -> Typed:
        self.take("(")
        arguments: list[Typed | int] = []
        while self.peek()[1] != ")":
            if self.is_lambda():
                arguments.append(self.place)
                self.skip_argument()
            else:
                arguments.append(self.expression())
            if self.peek()[1] == ",":
                self.take()
        self.take(")")
        end = self.place
        typed = [
            self.lambda_at(argument, name, arguments, place) if isinstance(argument, int) else argument
            for place, argument in enumerate(arguments)
        ]
        self.place = end
        function = (
            FUNCTIONS.table(name, [kind for kind, _ in typed])
            if FUNCTIONS.is_table(name)
            else FUNCTIONS.scalar(name, [kind for kind, _ in typed])
        )
        text = function.spark([text for _, text in typed])
        return (array_of(function.returns) if FUNCTIONS.is_table(name) else function.returns), text

    def lambda_at(self, start: int, name: str, arguments: list[Typed | int], place: int) -> Typed:
        kinds = [
            SqlType(kind="LAMBDA") if isinstance(argument, int) else argument[0] for argument in arguments
        ]
        inputs = FUNCTIONS.lambda_inputs(name, kinds)[place]
        assert inputs is not None
        self.place = start
        names = self.lambda_names()
        outer = dict(self.variables)
        self.variables.update(zip(names, inputs, strict=True))
        kind, body = self.expression()
        self.variables = outer
        return lambda_of(kind), f"({', '.join(names)}) -> {body}"


def _typed(text: str) -> Typed:
    kind, _, value = text.partition("'")
    value = value[:-1]
    match kind:
        case "BYTES":
            return BYTES, f"X'{value}'"
        case "DATE":
            return DATE, f"DATE'{value}'"
        case "TIMESTAMP":
            return TIMESTAMP, f"TIMESTAMP'{value}Z'"
    hours, minutes, seconds = value.split(":")
    return TIME, str(int(hours) * 3_600_000 + int(minutes) * 60_000 + round(float(seconds) * 1000))


def _number(text: str, sign: str) -> Typed:
    if "e" in text.lower():
        return DOUBLE, f"cast('{sign}{text}' as double)"
    if "." in text:
        digits = text.replace(".", "").lstrip("0") or "0"
        scale = len(text.partition(".")[2])
        kind = decimal_of(max(len(digits), scale), scale)
        return kind, f"cast('{sign}{text}' as {kind.ddl})"
    number = int(sign + text)
    return (INTEGER, str(number)) if abs(number) < 2**31 else (BIGINT, f"{number}L")


def _common(kinds: list[SqlType]) -> SqlType:
    common = NULL
    for kind in kinds:
        both = common_type(common, kind)
        assert both is not None, f"{common} and {kind} have no common type"
        common = both
    return common


def _as(value: Typed, kind: SqlType) -> str:
    assert is_castable_implicitly(value[0], kind) or value[0] == kind
    return value[1] if value[0] == kind or kind.kind == "NULL" else f"cast({value[1]} as {kind.ddl})"


def read(text: str) -> Typed:
    """SqlError for what the functions refuse, ValueError for what is no expression."""
    return Reading(text).whole()
