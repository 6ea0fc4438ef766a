"""What is wrong with a statement: one message, and where in the text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from odradek.model.errors import ConfigError
from odradek.model.near_names import near_name


class Position(NamedTuple):
    """A position in a statement's text; line and column count from 1."""

    line: int
    column: int


class SqlError(ConfigError):
    """A statement that is refused. `position`: (line, column) in the text that was given, or None. `hint`: what to write."""

    def __init__(
        self, message: str, position: tuple[int, int] | None = None, hint: str | None = None
    ) -> None:
        self.message: Final = message
        self.position: Final = None if position is None else Position(*position)
        self.hint: Final = hint
        super().__init__(message if hint is None else f"{message.removesuffix('.')}. {hint}")

    def at(self, position: tuple[int, int] | None) -> SqlError:
        """The same error with a position, unless it has one."""
        return self if self.position is not None else SqlError(self.message, position, self.hint)

    def text(self, statement: str) -> str:
        """Message, the line of the statement, a caret below the place, and the hint."""
        if self.position is None:
            return str(self)
        line, column = self.position
        lines = statement.splitlines()
        shown = [f"line {line}:{column}: {self.message}"]
        if 0 < line <= len(lines):
            source = lines[line - 1].replace("\t", " ")
            shown += [f"  {source}", f"  {' ' * (column - 1)}^"]
        return "\n".join([*shown, *([self.hint] if self.hint else [])])


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Returns a hint that names what there is: "Did you mean ORDERS?". None when nothing is near."""
    near = near_name(name, known)
    return f"Did you mean {near}?" if near else None
