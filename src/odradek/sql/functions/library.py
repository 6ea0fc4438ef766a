"""Which functions there are, and which one a call means."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from odradek.sql.functions.aggregates import AGGREGATES, AggregateDefinition, SqlAggregate
from odradek.sql.functions.collections import COLLECTIONS, NULLS
from odradek.sql.functions.definitions import ScalarDefinition, ScalarFunction
from odradek.sql.functions.json_functions import JSON
from odradek.sql.functions.numeric import NUMERIC
from odradek.sql.functions.signatures import Signature, best, lambda_inputs, wrong_types
from odradek.sql.functions.strings import STRINGS
from odradek.sql.functions.tables import TABLES, TableDefinition, TableFunction
from odradek.sql.functions.times import TIMES
from odradek.sql.functions.urls import URLS
from odradek.values.errors import SqlError, nearest
from odradek.values.rows import SqlValue
from odradek.values.types import SqlType

Definition = ScalarDefinition | AggregateDefinition | TableDefinition


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionLine:
    """A line of SHOW FUNCTIONS. `kind`: SCALAR, AGGREGATE or TABLE."""

    name: str
    category: str
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionVariation:
    """One signature in DESCRIBE FUNCTION. `arguments`: (name, type), and whether the last may be repeated."""

    signature: str
    arguments: tuple[tuple[str, str], ...]
    returns: str
    is_variadic: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionDescription:
    """DESCRIBE FUNCTION."""

    name: str
    kind: str
    category: str
    description: str
    note: str
    instead: str
    variations: tuple[FunctionVariation, ...]


class FunctionLibrary:
    """The functions that a statement may call. It is immutable; `with_functions` returns a copy with users' functions, too."""

    def __init__(self, definitions: Iterable[Definition]) -> None:
        self._definitions: dict[str, Definition] = {}
        for definition in definitions:
            self._definitions[definition.name] = definition

    def with_functions(self, definitions: Iterable[Definition]) -> FunctionLibrary:
        return FunctionLibrary([*self._definitions.values(), *definitions])

    def without(self, name: str) -> FunctionLibrary:
        return FunctionLibrary(
            definition for definition in self._definitions.values() if definition.name != name.upper()
        )

    def __contains__(self, name: str) -> bool:
        return name.upper() in self._definitions

    def definition(self, name: str) -> Definition:
        """Returns the definition of a name. SqlError with the nearest name when there is none."""
        definition = self._definitions.get(name.upper())
        if definition is None:
            raise SqlError(
                f"Can't find any functions with the name '{name.upper()}'",
                hint=nearest(name, self._definitions),
            )
        return definition

    def definitions(self) -> list[Definition]:
        return [self._definitions[name] for name in sorted(self._definitions)]

    def is_aggregate(self, name: str) -> bool:
        return isinstance(self._definitions.get(name.upper()), AggregateDefinition)

    def is_table(self, name: str) -> bool:
        return isinstance(self._definitions.get(name.upper()), TableDefinition)

    def scalar(self, name: str, kinds: Sequence[SqlType]) -> ScalarFunction:
        """Returns the function that this call means. SqlError: no such name, or none that takes these types."""
        definition = self._of_kind(name, ScalarDefinition, "SCALAR")
        assert isinstance(definition, ScalarDefinition)
        overload, fitting = best(definition.name, definition.overloads, kinds)
        returns = fitting.returns if overload.result is None else overload.result(fitting.kinds)
        return ScalarFunction(
            name=definition.name,
            kinds=fitting.kinds,
            argument_kinds=tuple(kinds),
            returns=returns,
            _overload=overload,
        )

    def lambda_inputs(self, name: str, kinds: Sequence[SqlType]) -> list[tuple[SqlType, ...] | None]:
        """Returns the types of each argument's lambda parameters; None for an argument that is no lambda.

        `kinds`: SqlType(kind="LAMBDA") for a lambda whose result is not known yet.
        """
        definition = self._of_kind(name, ScalarDefinition, "SCALAR")
        assert isinstance(definition, ScalarDefinition)
        for overload in definition.overloads:
            inputs = lambda_inputs(overload.signature, kinds)
            if inputs is not None:
                return inputs
        raise wrong_types(definition.name, [overload.signature for overload in definition.overloads], kinds)

    def aggregate(
        self,
        name: str,
        kinds: Sequence[SqlType],
        constants: Sequence[SqlValue] = (),
        *,
        of_table: bool = False,
    ) -> SqlAggregate:
        """Returns the aggregate function that a call means. `kinds`: the types of all arguments. `constants`: for each
        argument its value if it is written down, else None.

        `of_table`: over a table, whose rows may be taken back. SqlError: no such name or types; an argument that must be a
        constant; a function that cannot take back."""
        definition = self._of_kind(name, AggregateDefinition, "AGGREGATE")
        assert isinstance(definition, AggregateDefinition)
        return definition.resolved(kinds, constants, of_table=of_table)

    def table(self, name: str, kinds: Sequence[SqlType]) -> TableFunction:
        """Returns a function that makes rows."""
        definition = self._of_kind(name, TableDefinition, "TABLE")
        assert isinstance(definition, TableDefinition)
        return definition.resolved(kinds)

    def _of_kind(self, name: str, wanted: type, kind: str) -> Definition:
        definition = self.definition(name)
        if not isinstance(definition, wanted):
            raise SqlError(
                f"{definition.name} is {_article(definition.kind)} function, and {_article(kind)} one is needed here"
            )
        return definition

    def listed(self) -> list[FunctionLine]:
        """Returns the rows of SHOW FUNCTIONS, by name."""
        return [
            FunctionLine(name=definition.name, category=definition.category, kind=definition.kind)
            for definition in self.definitions()
        ]

    def describe(self, name: str) -> FunctionDescription:
        """Returns the result of DESCRIBE FUNCTION. SqlError with the nearest name when there is none."""
        definition = self.definition(name)
        return FunctionDescription(
            name=definition.name,
            kind=definition.kind,
            category=definition.category,
            description=definition.description,
            note=definition.note,
            instead=getattr(definition, "instead", ""),
            variations=tuple(
                _variation(definition.name, wanted, returns) for wanted, returns in definition.variations
            ),
        )


def _article(kind: str) -> str:
    return f"an {kind.lower()}" if kind[0] in "AEIOU" else f"a {kind.lower()}"


def _variation(name: str, wanted: Signature, returns: str) -> FunctionVariation:
    return FunctionVariation(
        signature=f"{name}({wanted})",
        arguments=tuple((parameter.name, parameter.shown) for parameter in wanted.parameters),
        returns=returns,
        is_variadic=wanted.is_variadic,
    )


FUNCTIONS: Final = FunctionLibrary(
    (*NUMERIC, *STRINGS, *COLLECTIONS, *NULLS, *JSON, *TIMES, *URLS, *AGGREGATES, *TABLES)
)
"""All that ksqlDB's reference has."""
