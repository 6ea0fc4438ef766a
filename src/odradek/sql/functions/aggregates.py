"""Aggregate functions: their signatures, and what each does with the values.

aggregate = FUNCTIONS.aggregate("TOPK", [BIGINT, INTEGER], [None, 3])
grouped.agg(f"{aggregate.spark(['amount', '3'])} AS top", functions=dict([aggregate.function]))
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from odradek.sql.functions import folds
from odradek.sql.functions.folds import ValueFold
from odradek.sql.functions.signatures import Overload, Signature, best, shown, signature
from odradek.values.errors import SqlError
from odradek.values.rows import SqlValue
from odradek.values.types import INTEGER, SqlType, array_of, struct_of_fields

_LIMIT: Final = 2**31 - 1
Maker = Callable[[SqlType, list[Any]], ValueFold[Any]]
"""Makes the fold, from the type of the result and the constants."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlAggregate:
    """An aggregate function with the types of one call. It gets all arguments; those that are constants are known already."""

    name: str
    returns: SqlType
    _fold: ValueFold[Any] = field(repr=False)
    _values: int = field(repr=False)
    _takes_back: bool = field(repr=False)

    def start(self) -> object:
        return self._fold.start()

    def add(self, state: object, *arguments: object) -> object:
        return self._fold.add(state, *arguments[: self._values])

    def add_all(self, state: object, rows: int, columns: list[list[Any]]) -> object:
        """Adds rows in turn, as `add` does for one: `columns` are their arguments."""
        if self._fold.add_column is not None and self._values == 1:
            return self._fold.add_column(state, columns[0])
        add = self._fold.add
        used = columns[: self._values]
        for arguments in zip(*used, strict=True) if used else [()] * rows:
            state = add(state, *arguments)
        return state

    @property
    def undo(self) -> Callable[..., object] | None:
        """The function `undo(state, *arguments)`, which removes a row from the state. None: not for tables."""
        return self._undone if self._takes_back and self._fold.undo is not None else None

    def _undone(self, state: object, *arguments: object) -> object:
        assert self._fold.undo is not None
        return self._fold.undo(state, *arguments[: self._values])

    def merge(self, left: object, right: object) -> object:
        """Merges the states of two sessions; the earlier one comes first."""
        return self._fold.merge(left, right)

    def result(self, state: object) -> SqlValue:
        return self._fold.result(state)


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregateOverload:
    """One signature of an aggregate function.

    `constants`: how many arguments at the end must be constants.
    """

    overload: Overload
    maker: Maker
    constants: int = 0

    @property
    def signature(self) -> Signature:
        return self.overload.signature


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregateDefinition:
    """An aggregate function, with its overloads.

    `takes_back`: it can be used over a table.
    """

    name: str
    description: str
    overloads: tuple[AggregateOverload, ...]
    takes_back: bool
    note: str = ""
    category: str = "AGGREGATE"
    more_columns: bool = field(default=False, repr=False)

    @property
    def kind(self) -> str:
        return "AGGREGATE"

    @property
    def variations(self) -> tuple[tuple[Signature, str], ...]:
        return tuple((overload.signature, shown(overload.signature.returns)) for overload in self.overloads)

    def resolved(self, kinds: Sequence[SqlType], constants: Sequence[Any], *, of_table: bool) -> SqlAggregate:
        if of_table and not self.takes_back:
            raise SqlError(
                f"The aggregation function {self.name} cannot be applied to a table source, only to a stream source",
                hint="A row of a table may change, and the function cannot take back a value that it has seen",
            )
        if self.more_columns and len(kinds) > 2:
            return self._top_rows(kinds, constants)
        chosen, fitting = best(self.name, [overload.overload for overload in self.overloads], kinds)
        overload = next(overload for overload in self.overloads if overload.overload is chosen)
        column_count = len(kinds) - overload.constants
        written = [_constant(self.name, index, constants) for index in range(column_count, len(kinds))]
        return SqlAggregate(
            name=self.name,
            returns=fitting.returns,
            _fold=overload.maker(fitting.returns, written),
            _values=column_count,
            _takes_back=self.takes_back,
        )

    def _top_rows(self, kinds: Sequence[SqlType], constants: Sequence[Any]) -> SqlAggregate:
        """Returns TOPK(column, other columns…, k)."""
        columns = tuple(kinds[:-1])
        if kinds[-1] != INTEGER or not columns[0].is_simple:
            raise SqlError(
                f"{self.name} takes a column of a simple type, other columns, and a number at the end"
            )
        size = _constant(self.name, len(kinds) - 1, constants)
        names = ("sort_col", *(f"col{index}" for index in range(len(columns) - 1)))
        returns = array_of(struct_of_fields(list(zip(names, columns, strict=True))))
        return SqlAggregate(
            name=self.name,
            returns=returns,
            _fold=folds.top_rows(size, names),
            _values=len(columns),
            _takes_back=False,
        )


def _constant(name: str, index: int, constants: Sequence[Any]) -> Any:
    value = constants[index] if index < len(constants) else None
    if value is None:
        raise SqlError(f"Argument {index + 1} of {name} must be a constant")
    if isinstance(value, int) and not isinstance(value, bool) and value < 1:
        raise SqlError(f"{name}: {value} must be 1 or more")
    return value


Wanted = tuple[str, Maker] | tuple[str, Maker, int]


def aggregate(
    name: str,
    description: str,
    *overloads: Wanted,
    takes_back: bool,
    note: str = "",
    more_columns: bool = False,
) -> AggregateDefinition:
    """Defines an aggregate. `overloads`: (signature, maker), and how many arguments at the end are constants."""
    return AggregateDefinition(
        name=name,
        description=description,
        takes_back=takes_back,
        note=note,
        more_columns=more_columns,
        overloads=tuple(
            AggregateOverload(
                overload=Overload(signature=signature(text), spark=""),
                maker=maker,
                constants=constants[0] if constants else 0,
            )
            for text, maker, *constants in overloads
        ),
    )


def _by_offset(name: str, description: str, *, latest: bool) -> AggregateDefinition:
    def maker(has_count: bool) -> Maker:
        def make(_returns: SqlType, constants: list[Any]) -> ValueFold[Any]:
            count = constants[0] if has_count else None
            rest = constants[1:] if has_count else constants
            return folds.by_offset(latest=latest, count=count, ignores_nulls=rest[0] if rest else True)

        return make

    return aggregate(
        name,
        description,
        ("T value -> T", maker(False)),
        ("T value, BOOLEAN ignoreNulls -> T", maker(False), 1),
        ("T value, INT n -> ARRAY<T>", maker(True), 1),
        ("T value, INT n, BOOLEAN ignoreNulls -> ARRAY<T>", maker(True), 2),
        takes_back=False,
    )


_EXACT: Final = "Exact, and keeps every value once; ksqlDB's is approximate."

AGGREGATES: Final[tuple[AggregateDefinition, ...]] = (
    aggregate(
        "ATTR",
        "The value if all are equal; otherwise null.",
        ("T value -> T", lambda _returns, _: folds.only_value()),
        takes_back=True,
    ),
    aggregate(
        "AVG",
        "The average; 0 of nothing.",
        ("INT value -> DOUBLE", lambda _returns, _: folds.average()),
        ("BIGINT value -> DOUBLE", lambda _returns, _: folds.average()),
        ("DOUBLE value -> DOUBLE", lambda _returns, _: folds.average()),
        takes_back=True,
    ),
    aggregate(
        "COLLECT_LIST",
        "All values as an array; nulls, too.",
        ("T value -> ARRAY<T>", lambda _returns, _: folds.collected(_LIMIT)),
        takes_back=True,
    ),
    aggregate(
        "COLLECT_SET",
        "Each value once, as an array; a null, too.",
        ("T value -> ARRAY<T>", lambda _returns, _: folds.collected_once(_LIMIT)),
        takes_back=False,
    ),
    aggregate(
        "CORRELATION",
        "Pearson's correlation of two columns.",
        ("DOUBLE x, DOUBLE y -> DOUBLE", lambda _returns, _: folds.correlation()),
        takes_back=True,
    ),
    aggregate(
        "COUNT",
        "How many rows, or values that are not null.",
        ("-> BIGINT", lambda _returns, _: folds.count()),
        ("T value -> BIGINT", lambda _returns, _: folds.count()),
        takes_back=True,
    ),
    aggregate(
        "COUNT_DISTINCT",
        "How many different values that are not null.",
        ("T value -> BIGINT", lambda _returns, _: folds.distinct_count()),
        takes_back=False,
        note=_EXACT,
    ),
    _by_offset("EARLIEST_BY_OFFSET", "The first value by offset, or the first n as an array.", latest=False),
    aggregate(
        "HISTOGRAM",
        "How often each text came, of a thousand texts at most.",
        ("STRING value -> MAP<STRING, BIGINT>", lambda _returns, _: folds.histogram()),
        takes_back=True,
    ),
    _by_offset("LATEST_BY_OFFSET", "The last value by offset, or the last n as an array.", latest=True),
    aggregate(
        "MAX",
        "The largest value that is not null.",
        ("P value -> P", lambda _returns, _: folds.extreme(largest=True)),
        takes_back=False,
    ),
    aggregate(
        "MIN",
        "The smallest value that is not null.",
        ("P value -> P", lambda _returns, _: folds.extreme(largest=False)),
        takes_back=False,
    ),
    *(
        aggregate(
            name,
            "The sample standard deviation; 0 of fewer than two values.",
            ("INT value -> DOUBLE", lambda _returns, _: folds.deviation()),
            ("BIGINT value -> DOUBLE", lambda _returns, _: folds.deviation()),
            ("DOUBLE value -> DOUBLE", lambda _returns, _: folds.deviation()),
            takes_back=True,
        )
        for name in ("STDDEV_SAMP", "STDDEV_SAMPLE")
    ),
    aggregate(
        "SUM",
        "The sum of the values that are not null; 0 of nothing.",
        ("INT value -> INT", lambda returns, _: folds.total(returns)),
        ("BIGINT value -> BIGINT", lambda returns, _: folds.total(returns)),
        ("DEC value -> DEC", lambda returns, _: folds.total(returns)),
        ("DOUBLE value -> DOUBLE", lambda returns, _: folds.total(returns)),
        takes_back=True,
        note="A DECIMAL that does not fit its type is null.",
    ),
    aggregate(
        "SUM_LIST",
        "The sum of the elements of all arrays.",
        ("ARRAY<INT> values -> INT", lambda returns, _: folds.total(returns, of_lists=True)),
        ("ARRAY<BIGINT> values -> BIGINT", lambda returns, _: folds.total(returns, of_lists=True)),
        ("ARRAY<DOUBLE> values -> DOUBLE", lambda returns, _: folds.total(returns, of_lists=True)),
        takes_back=True,
    ),
    aggregate(
        "TOPK",
        "The k largest values, the largest first. With more columns in between: structs of them.",
        ("P value, INT k -> ARRAY<P>", lambda _returns, k: folds.top(k[0], distinct=False), 1),
        takes_back=False,
        more_columns=True,
    ),
    aggregate(
        "TOPKDISTINCT",
        "The k largest different values, the largest first.",
        ("P value, INT k -> ARRAY<P>", lambda _returns, k: folds.top(k[0], distinct=True), 1),
        takes_back=False,
    ),
)
