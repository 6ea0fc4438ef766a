"""The answer of a query: columns, then rows until it ends."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from odradek.values.rows import SqlValue

COMPLETED: Final = "Query Completed"
LIMIT_REACHED: Final = "Limit Reached"


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerColumn:
    """A column of a query's answer.

    `type`: as ksqlDB writes it. `is_key`: it is a key column of the table that a pull query reads.
    """

    name: str
    type: str
    is_key: bool = False


def _completed() -> str:
    return COMPLETED


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryAnswer:
    """The answer of a query: its columns, and its rows as they come.

    `query_id`: None of a pull query. `rows`: lists of rows, whose values are as JSON shows them; an empty list now and then
    while there is nothing. `close` ends the query; it is called in any case. `ending`: the text after the last row.
    `is_short`: the rows are few, and come at once.
    """

    query_id: str | None
    columns: tuple[AnswerColumn, ...]
    rows: AsyncIterator[list[list[SqlValue]]]
    close: Callable[[], Awaitable[None]]
    ending: Callable[[], str] = _completed
    is_short: bool = False

    @property
    def final_message(self) -> str:
        """The reason why there are no more rows; it is known after the last one."""
        return self.ending()

    @property
    def schema(self) -> str:
        """The columns as /query writes them: `` `ID` INTEGER KEY, `NAME` STRING``."""
        return ", ".join(
            f"`{column.name}` {column.type}{' KEY' if column.is_key else ''}" for column in self.columns
        )


class AnswerWriter(Protocol):
    """Writes an answer in one of the content types."""

    def begin(self, query_answer: QueryAnswer) -> str: ...

    def rows(self, rows: Sequence[Sequence[SqlValue]]) -> str:
        """Returns one or more rows."""

    def idle(self) -> str:
        """Returns the text to send when nothing came for a while."""

    def problem(self, code: int, message: str) -> str: ...

    def end(self, query_answer: QueryAnswer) -> str: ...
