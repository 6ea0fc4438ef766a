"""The definitions of functions: `scalar("LEN", "STRING", "The length.", ("STRING text -> INTEGER", "length({0})"))`."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from odradek.sql.functions.signatures import Call, Overload, Signature, Template, shown, signature
from odradek.values.types import SqlType

CATEGORIES: Final = (
    "AGGREGATE",
    "ARRAY",
    "BYTES",
    "CONDITIONAL",
    "CONVERSION",
    "DATE / TIME",
    "JSON",
    "LAMBDA",
    "MAP",
    "MATHEMATICAL",
    "REGEXP",
    "STRING",
    "TABLE",
    "URL",
    "USER",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalarDefinition:
    """A function of values of one row. `note`: how ours differs. `instead`: of a deprecated function, what to use."""

    name: str
    category: str
    description: str
    overloads: tuple[Overload, ...]
    note: str = ""
    instead: str = ""

    @property
    def kind(self) -> str:
        return "SCALAR"

    @property
    def variations(self) -> tuple[tuple[Signature, str], ...]:
        return tuple((overload.signature, shown(overload.signature.returns)) for overload in self.overloads)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalarFunction:
    """A function with the types of one call. `spark(arguments)`: Spark SQL text, from the text of each argument."""

    name: str
    kinds: tuple[SqlType, ...]
    argument_kinds: tuple[SqlType, ...]
    returns: SqlType
    _overload: Overload = field(repr=False)

    def spark(self, arguments: list[str]) -> str:
        texts = tuple(
            _widened(text, argument_kind, wanted)
            for text, argument_kind, wanted in zip(arguments, self.argument_kinds, self.kinds, strict=True)
        )
        return self._overload.text(Call(texts=texts, kinds=self.kinds, returns=self.returns))


_ONE_ARGUMENT: Final = re.compile(r"\s*\(\s*(\w+)\s*\)\s*->")
"""Spark wants no brackets around the only argument of a lambda."""


def _widened(text: str, kind: SqlType, wanted: SqlType) -> str:
    if wanted.kind == "LAMBDA":
        return _ONE_ARGUMENT.sub(r"\1 ->", text, count=1) if _ONE_ARGUMENT.match(text) else text
    if kind == wanted or wanted.kind in ("LAMBDA", "UNIT", "NULL"):
        return text
    return f"cast({text} as {wanted.ddl})"


Written = tuple[str, Template] | tuple[str, Template, Callable[[tuple[SqlType, ...]], SqlType]]


def scalar(
    name: str, category: str, description: str, *overloads: Written, note: str = "", instead: str = ""
) -> ScalarDefinition:
    """Defines a scalar function. `overloads`: (signature, Spark SQL), and a function for a type that depends on more."""
    if category not in CATEGORIES:
        raise AssertionError(f"{name}: {category} is no category")
    return ScalarDefinition(
        name=name,
        category=category,
        description=description,
        overloads=tuple(
            Overload(signature=signature(text), spark=spark, result=returns[0] if returns else None)
            for text, spark, *returns in overloads
        ),
        note=note,
        instead=instead,
    )
