"""The shape that FROM makes: steps, names and a key."""

from __future__ import annotations

from dataclasses import dataclass

from odradek.sql.analysis.scope import NameScope
from odradek.sql.metastore.catalog import SqlSource
from odradek.sql.planning.steps import Step
from odradek.values.formats.format_info import WindowInfo
from odradek.values.types import SqlType


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyColumn:
    """A column of a relation's key. `texts` are the columns of the frame that hold it: one of them must be selected, and
    the first that is becomes the key."""

    name: str
    type: SqlType
    texts: tuple[str, ...]
    shown: str
    """The key's name in messages."""
    canonical: str | None = None
    """The canonical form of an expression that became the key."""
    nullable: tuple[str, ...] = ()
    """Columns that name the key when they are selected, though they are null where the key is not: the other side of a join."""
    chosen_first: tuple[str, ...] = ()
    """`texts` and `nullable` in the order in which one is chosen, where that is another."""

    @property
    def chosen(self) -> tuple[str, ...]:
        return self.chosen_first or self.texts


@dataclass(frozen=True, slots=True, kw_only=True)
class RelationShape:
    """Steps so far, and what they make."""

    step: Step
    scope: NameScope
    key: tuple[KeyColumn, ...]
    window: WindowInfo | None
    sources: tuple[SqlSource, ...]
    is_join: bool = False

    @property
    def is_table(self) -> bool:
        return self.step.is_table
