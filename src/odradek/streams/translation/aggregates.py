"""Aggregates in SQL: `max(x) - min(x) AS span` becomes two calls, whose results an expression of Spark puts together.

Spark evaluates the arguments before a task and the expression around the calls after it; in between,
`processors/functions.py` adds up.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import StructType

from odradek.model.errors import ConfigError
from odradek.model.java_numbers import is_digits
from odradek.streams.plan.operators import Expression
from odradek.streams.processors.aggregate import CalledFunction
from odradek.streams.processors.functions import FUNCTIONS, REMOVABLE

_CALL: Final = re.compile(r"\b(" + "|".join(FUNCTIONS) + r")\s*\(", re.IGNORECASE)
_QUOTED: Final = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|`[^`]*`")


class SqlAggregates:
    """Aggregate expressions, taken apart.

    `arguments`: the struct that a task adds up. `results`: the struct that it emits. `expressions`: what the user asked
    for, over it.
    """

    def __init__(
        self, aggregates: tuple[Expression, ...], seen: DataFrame, spark: SparkSession, *, removable: bool
    ) -> None:
        self._seen = seen
        self._removable = removable
        self._arguments: list[Column] = []
        self.argument_texts: dict[str, str] = {}
        """The text of each argument, by its name."""
        self._calls: list[CalledFunction] = []
        self._typed: list[Column] = []
        self.expressions = tuple(self._rewritten(aggregate) for aggregate in aggregates)
        if not self._calls:
            raise ConfigError(
                f"{', '.join(map(str, aggregates))}: no aggregate function is called; there are {', '.join(FUNCTIONS)}"
            )
        self.calls = tuple(self._calls)
        self.arguments = sf.struct(*self._arguments)
        empty = spark.createDataFrame([], seen.schema)
        typed = empty.agg(
            *(column.alias(call.out) for column, call in zip(self._typed, self._calls, strict=True))
        )
        self.results: StructType = typed.schema

    def _rewritten(self, aggregate: Expression) -> str:
        if not isinstance(aggregate, str):
            raise ConfigError(
                f"aggregates are written as SQL text, such as 'sum(amount) AS total', not as {aggregate}"
            )
        text, rest = "", aggregate
        while call := _first_call(rest):
            inside = _balanced(rest, call.end())
            text += rest[: call.start()] + self._call(call[1].lower(), rest[call.end() : inside])
            rest = rest[inside + 1 :]
        return text + rest

    def _call(self, name: str, inside: str) -> str:
        inside = inside.strip()
        if name == "count" and inside.lower().startswith("distinct "):
            name, inside = "count_distinct", inside[len("distinct ") :]
        arguments = ["true"] if name == "count" and inside in ("*", "") else list(_split(inside))
        function = FUNCTIONS[name]
        wanted = function.arguments + function.constants
        if len(arguments) != wanted:
            called = f"count(DISTINCT {inside})" if name == "count_distinct" else f"{name}({inside})"
            raise ConfigError(f"{called} needs {wanted} argument{'s'[: wanted > 1]}, not {len(arguments)}")
        if self._removable and REMOVABLE[name].remove is None:
            raise ConfigError(
                f"{name} cannot be used on a table: a value that was added may be taken back, and {name} keeps only one"
            )
        constants: list[object] = []
        if function.constants:
            arguments, last = arguments[: -function.constants], arguments[-function.constants :]
            constants = [_whole(constant, name) for constant in last]
        names = []
        for argument in arguments:
            names.append(f"__argument{len(self._arguments)}")
            self._arguments.append(sf.expr(argument).alias(names[-1]))
            self.argument_texts[names[-1]] = argument
        out = f"__result{len(self._calls)}"
        self._calls.append(
            CalledFunction(
                function=name,
                arguments=tuple(names),
                constants=tuple(constants),
                out=out,
                removable=self._removable,
            )
        )
        self._typed.append(
            sf.expr(f"{(REMOVABLE if self._removable else FUNCTIONS)[name].typed}({arguments[0]})")
        )
        return out


def _first_call(text: str) -> re.Match[str] | None:
    blank = _QUOTED.sub(lambda quoted: "'" * len(quoted[0]), text)
    call = _CALL.search(blank)
    return None if call is None else _CALL.match(text, call.start())


def _balanced(text: str, start: int) -> int:
    """Returns the index where the bracket closes that is open at `start`."""
    blank = _QUOTED.sub(lambda quoted: "'" * len(quoted[0]), text)
    depth = 1
    for index in range(start, len(blank)):
        depth += {"(": 1, ")": -1}.get(blank[index], 0)
        if depth == 0:
            return index
    raise ConfigError(f"{text}: a bracket is not closed")


def _split(text: str) -> Iterator[str]:
    blank = _QUOTED.sub(lambda quoted: "'" * len(quoted[0]), text)
    depth, start = 0, 0
    for index, letter in enumerate(blank):
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            yield text[start:index].strip()
            start = index + 1
    if text[start:].strip():
        yield text[start:].strip()


def _whole(text: str, name: str) -> int:
    if not is_digits(text.strip()):
        raise ConfigError(f"{name}: {text!r} must be a whole number")
    return int(text)
