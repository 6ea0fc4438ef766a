"""Signatures of functions: `ARRAY<T> array, T value -> BOOLEAN`, and how the types of a call fit them.

In a signature a type is one of SQL, or a letter, a variable for a type of the call:

- `T`, `U`, `K`, `V`: any type, the same wherever the letter occurs (numbers may widen to a common one);
- `P`: any but ARRAY, MAP and STRUCT; `DEC`: a DECIMAL with whatever precision and scale;
- `LAMBDA<T, U>`: a function of T that gives U; `UNIT`: a unit of time, such as DAYS; `...` after the last: any number of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from odradek.values.errors import SqlError
from odradek.values.types import (
    NULL,
    UNIT,
    SqlType,
    common_type,
    is_castable_implicitly,
    parse_type,
)

Bindings: TypeAlias = dict[str, SqlType]
_LETTERS: Final = ("T", "U", "K", "V", "P", "DEC")
_PATTERNS: Final = {**{letter: SqlType(kind=f"?{letter}") for letter in _LETTERS}, "UNIT": UNIT}
_WIDTH: Final = ("INTEGER", "BIGINT", "DECIMAL", "DOUBLE")


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A parameter of a signature.

    `inputs`: of a lambda, the types of its arguments; `kind` is then LAMBDA with the type of its result.
    """

    name: str
    kind: SqlType
    inputs: tuple[SqlType, ...] = ()

    @property
    def shown(self) -> str:
        if self.kind.kind == "LAMBDA":
            return f"LAMBDA ({', '.join(map(_shown, self.inputs))}) => {_shown(self.kind.parts[0])}"
        return _shown(self.kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """The types of a function's parameters and result. `returns` is a pattern, whose letters are replaced by the types
    that the call has bound."""

    parameters: tuple[Parameter, ...]
    returns: SqlType
    is_variadic: bool = False

    def parameter(self, index: int) -> Parameter:
        return self.parameters[min(index, len(self.parameters) - 1)]

    def accepts(self, count: int) -> bool:
        """Returns whether a call may have this number of arguments. The last of a variadic function may be left out."""
        return count >= len(self.parameters) - 1 if self.is_variadic else count == len(self.parameters)

    def __str__(self) -> str:
        shown = [f"{parameter.shown} {parameter.name}" for parameter in self.parameters]
        if self.is_variadic:
            last = self.parameters[-1]
            shown[-1] = f"{last.shown}... {last.name}"
        return ", ".join(shown)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """The fit of a call. `kinds`: the type that each argument becomes; `cost`: the smaller, the better."""

    kinds: tuple[SqlType, ...]
    returns: SqlType
    bindings: Bindings
    cost: tuple[int, int, int]


def signature(text: str) -> Signature:
    """Parses `TYPE name, TYPE name -> TYPE`."""
    inside, _, returns = text.rpartition("->")
    parts = [part.strip() for part in _split(inside) if part.strip()]
    variadic = bool(parts) and "..." in parts[-1]
    parameters = tuple(_parameter(part.replace("...", "")) for part in parts)
    return Signature(
        parameters=parameters, returns=parse_type(returns.strip(), _PATTERNS), is_variadic=variadic
    )


def _parameter(text: str) -> Parameter:
    kind, _, name = text.strip().rpartition(" ")
    if not kind.startswith("LAMBDA<"):
        return Parameter(name=name, kind=parse_type(kind, _PATTERNS))
    *inputs, body_type = (parse_type(part, _PATTERNS) for part in _split(kind[len("LAMBDA<") : -1]))
    return Parameter(name=name, kind=SqlType(kind="LAMBDA", parts=(body_type,)), inputs=tuple(inputs))


def _split(text: str) -> Iterator[str]:
    depth, start = 0, 0
    for index, letter in enumerate(text):
        depth += (letter in "<(") - (letter in ">)")
        if letter == "," and depth == 0:
            yield text[start:index]
            start = index + 1
    yield text[start:]


def fit(wanted: Signature, kinds: Sequence[SqlType]) -> Fit | None:
    """Fits the types of a call to a signature; returns None when they do not fit."""
    if not wanted.accepts(len(kinds)):
        return None
    bindings: Bindings = {}
    widened = 0
    for index, kind in enumerate(kinds):
        step = _bind(wanted.parameter(index).kind, kind, bindings)
        if step is None:
            return None
        widened += step
    targets = tuple(_target(wanted.parameter(index).kind, kind, bindings) for index, kind in enumerate(kinds))
    return Fit(
        kinds=targets,
        returns=substituted(wanted.returns, bindings),
        bindings=bindings,
        cost=(widened, len(bindings), int(wanted.is_variadic)),
    )


def _bind(pattern: SqlType, kind: SqlType, bindings: Bindings) -> int | None:
    """Binds letters to types. Returns how far numbers must widen; None when they cannot."""
    if pattern.kind.startswith("?"):
        return _bind_letter(pattern.kind[1:], kind, bindings)
    if pattern.kind == "LAMBDA":
        if kind.kind != "LAMBDA":
            return None
        return _bind(pattern.parts[0], kind.parts[0], bindings) if kind.parts else 0
    if kind.kind == "NULL" or kind == pattern:
        return 0
    if pattern.kind in ("ARRAY", "MAP") and kind.kind == pattern.kind:
        steps = [_bind(part, other, bindings) for part, other in zip(pattern.parts, kind.parts, strict=True)]
        return None if None in steps else sum(step for step in steps if step)
    if "UNIT" in (pattern.kind, kind.kind) or not is_castable_implicitly(kind, pattern):
        return None
    return _WIDTH.index(pattern.kind) - _WIDTH.index(kind.kind) if pattern.is_number and kind.is_number else 1


def _bind_letter(letter: str, kind: SqlType, bindings: Bindings) -> int | None:
    if kind.kind in ("LAMBDA", "UNIT"):
        return None
    if kind.kind == "NULL":
        return 0
    if (letter == "DEC" and kind.kind != "DECIMAL") or (letter == "P" and not kind.is_simple):
        return None
    before = bindings.get(letter, kind)
    common = common_type(before, kind)
    if common is None:
        return None
    bindings[letter] = common
    return 0 if common == before == kind else 1


def _target(pattern: SqlType, kind: SqlType, bindings: Bindings) -> SqlType:
    if kind.kind in ("LAMBDA", "UNIT"):
        return kind
    return substituted(pattern, bindings)


def substituted(pattern: SqlType, bindings: Bindings) -> SqlType:
    """Returns the type with its letters replaced by the bound types; NULL for an unbound letter."""
    if pattern.kind.startswith("?"):
        return bindings.get(pattern.kind[1:], NULL)
    if pattern.parts or pattern.fields:
        return SqlType(
            kind=pattern.kind,
            parts=tuple(substituted(part, bindings) for part in pattern.parts),
            fields=tuple((name, substituted(kind, bindings)) for name, kind in pattern.fields),
        )
    return pattern


def lambda_inputs(wanted: Signature, kinds: Sequence[SqlType]) -> list[tuple[SqlType, ...] | None] | None:
    """Returns the types of each argument's lambda parameters, None for other arguments; None when the rest does not fit."""
    fitting = fit(wanted, kinds)
    if fitting is None:
        return None
    return [
        tuple(substituted(part, fitting.bindings) for part in wanted.parameter(index).inputs)
        if kind.kind == "LAMBDA"
        else None
        for index, kind in enumerate(kinds)
    ]


Template: TypeAlias = str | Callable[["Call"], str]
"""Spark SQL text with {0}, {1} … for the arguments and {all} for all of them; or a function that makes the text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """The call that a function that makes text gets. `texts`: the arguments, already of the types in `kinds`."""

    texts: tuple[str, ...]
    kinds: tuple[SqlType, ...]
    returns: SqlType


@dataclass(frozen=True, slots=True, kw_only=True)
class Overload:
    """One signature of a scalar function, with its Spark SQL. `result` computes the result's type from the call's types
    where the signature cannot express it."""

    signature: Signature
    spark: Template
    result: Callable[[tuple[SqlType, ...]], SqlType] | None = None

    def text(self, call: Call) -> str:
        if callable(self.spark):
            return self.spark(call)
        text = self.spark.replace("{all}", ", ".join(call.texts))
        for index, argument in enumerate(call.texts):
            text = text.replace(f"{{{index}}}", argument) if f"{{{index}}}" in text else text
        return text


def _shown(kind: SqlType) -> str:
    if kind.kind.startswith("?"):
        return "DECIMAL" if kind.kind == "?DEC" else kind.kind[1:]
    if kind.kind in ("ARRAY", "MAP"):
        return f"{kind.kind}<{', '.join(map(_shown, kind.parts))}>"
    if kind.kind == "STRUCT":
        return f"STRUCT<{', '.join(f'{name} {_shown(part)}' for name, part in kind.fields)}>"
    return str(kind)


def shown(kind: SqlType) -> str:
    """Returns a type of a signature, for people."""
    return _shown(kind)


def best(name: str, overloads: Sequence[Overload], kinds: Sequence[SqlType]) -> tuple[Overload, Fit]:
    """Returns the overload that fits with the least widening; of equals the first. SqlError with the alternatives."""
    fits = [
        (overload, fitting)
        for overload in overloads
        if (fitting := fit(overload.signature, kinds)) is not None
    ]
    if not fits:
        raise wrong_types(name, [overload.signature for overload in overloads], kinds)
    return min(fits, key=lambda pair: pair[1].cost)


def wrong_types(name: str, wanted: Sequence[Signature], kinds: Sequence[SqlType]) -> SqlError:
    """Returns the error for types that no signature takes."""
    listed = ", ".join(map(str, kinds))
    alternatives = "; ".join(f"{name}({alternative})" for alternative in wanted)
    return SqlError(
        f"Function '{name}' does not accept parameters ({listed})",
        hint=f"Valid alternatives are: {alternatives}",
    )
