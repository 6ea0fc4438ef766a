"""Table functions: several rows from one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from odradek.sql.functions.signatures import Call, Overload, Signature, Template, best, shown, signature
from odradek.values.types import SqlType

CUBE_COLUMNS_MAX: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFunction:
    """A table function with the types of one call. `returns`: the type of a row's value."""

    name: str
    kinds: tuple[SqlType, ...]
    argument_kinds: tuple[SqlType, ...]
    returns: SqlType
    _overload: Overload = field(repr=False)

    def spark(self, arguments: list[str]) -> str:
        """Returns Spark SQL for an array that has the value of each row; it may be empty, and is never null."""
        texts = tuple(
            text if argument_kind == wanted else f"cast({text} as {wanted.ddl})"
            for text, argument_kind, wanted in zip(arguments, self.argument_kinds, self.kinds, strict=True)
        )
        rows = self._overload.text(Call(texts=texts, kinds=self.kinds, returns=self.returns))
        return f"coalesce({rows}, cast(array() as ARRAY<{self.returns.ddl}>))"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDefinition:
    """A table function (UDTF), which makes several rows from one. `overloads` return the type of one row's value; their text
    is an array."""

    name: str
    description: str
    overloads: tuple[Overload, ...]
    note: str = ""
    category: str = "TABLE"

    @property
    def kind(self) -> str:
        return "TABLE"

    @property
    def variations(self) -> tuple[tuple[Signature, str], ...]:
        return tuple((overload.signature, shown(overload.signature.returns)) for overload in self.overloads)

    def resolved(self, kinds: Sequence[SqlType]) -> TableFunction:
        overload, fitting = best(self.name, self.overloads, kinds)
        return TableFunction(
            name=self.name,
            kinds=fitting.kinds,
            argument_kinds=tuple(kinds),
            returns=fitting.returns,
            _overload=overload,
        )


def _cube(call: Call) -> str:
    """Returns each combination of values and nulls. The bits of a number select the values that stay."""
    (columns,) = call.texts
    is_grouped = f"bit_get(__mask, array_size({columns}) - 1 - __index) = 1"
    masks = (
        f"filter(sequence(0, shiftleft(1, array_size({columns})) - 1), __mask -> NOT exists("
        f"transform({columns}, (__column, __index) -> __column IS NULL AND {is_grouped}), __twice -> __twice))"
    )
    rows = f"transform({masks}, __mask -> transform({columns}, (__column, __index) -> if({is_grouped}, __column, NULL)))"
    return f"if(array_size({columns}) <= {CUBE_COLUMNS_MAX}, {rows}, NULL)"


def _table(name: str, description: str, text: str, spark: Template, note: str = "") -> TableDefinition:
    return TableDefinition(
        name=name,
        description=description,
        overloads=(Overload(signature=signature(text), spark=spark),),
        note=note,
    )


TABLES: Final[tuple[TableDefinition, ...]] = (
    _table(
        "CUBE_EXPLODE",
        "A row for each combination of the values and nulls; values that are null make no rows of their own.",
        "ARRAY<T> columns -> ARRAY<T>",
        _cube,
        note=f"At most {CUBE_COLUMNS_MAX} values; of more there is no row.",
    ),
    _table("EXPLODE", "A row for each element.", "ARRAY<T> array -> T", "{0}"),
)
