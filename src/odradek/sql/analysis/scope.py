"""The names that an expression may use, and the columns of Spark that they refer to."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from odradek.values.errors import SqlError, nearest
from odradek.values.types import SqlType

_PLAIN: Final = re.compile(r"(?!Q_|KEY_[0-9]|VALUE_[0-9]|WINDOW_START$|WINDOW_END$|NOTHING_$)[A-Z][A-Z0-9_]*")


def physical_name(name: str) -> str:
    """Returns a name that Spark takes, which does not look at case: different names stay different, and none is one of a
    key."""
    return name if _PLAIN.fullmatch(name) else f"Q_{name.encode().hex().upper()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopedColumn:
    """A column that an expression may name.

    `source`: the alias of what it is a column of; `text`: the column of Spark, as SQL. `is_pseudo`: `*` leaves it out.
    """

    source: str
    name: str
    type: SqlType
    text: str
    is_pseudo: bool = False
    is_key: bool = False

    @property
    def full_name(self) -> str:
        return f"{self.source}.{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class NameScope:
    """The columns and aliases that expressions of a query may name.

    `sources`: the aliases.
    """

    columns: tuple[ScopedColumn, ...]
    sources: tuple[str, ...]

    def resolve(
        self, name: str, source: str | None = None, position: tuple[int, int] | None = None
    ) -> ScopedColumn:
        """Returns the column of a name. SqlError for one that is unknown, or that several sources have."""
        if source is not None and source not in self.sources:
            raise SqlError(
                f"'{source}' is not a valid stream/table name or alias",
                position,
                nearest(source, self.sources),
            )
        candidates = [
            column for column in self.columns if column.name == name and source in (None, column.source)
        ]
        if not candidates:
            shown = name if source is None else f"{source}.{name}"
            known = [column.name for column in self.columns if source in (None, column.source)]
            hint = nearest(name, known) or (f"There are {', '.join(dict.fromkeys(known))}" if known else None)
            raise SqlError(f"Column '{shown}' cannot be resolved", position, hint)
        if len(candidates) > 1:
            among = ", ".join(column.full_name for column in candidates)
            raise SqlError(f"Column '{name}' is ambiguous. Could be any of: {among}", position)
        return candidates[0]

    def is_clashing(self, name: str) -> bool:
        return len({column.source for column in self.columns if column.name == name}) > 1

    def of(self, source: str) -> tuple[ScopedColumn, ...]:
        """Returns the columns of `source.*`."""
        return tuple(column for column in self.columns if column.source == source and not column.is_pseudo)

    def and_those_of(self, other: NameScope) -> NameScope:
        return NameScope(columns=self.columns + other.columns, sources=self.sources + other.sources)

    def with_columns(self, added: Iterable[ScopedColumn]) -> NameScope:
        return NameScope(columns=(*self.columns, *added), sources=self.sources)
