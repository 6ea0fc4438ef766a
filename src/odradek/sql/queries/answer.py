"""What a query answers with: columns, then rows until it ends."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerColumn:
    """`type`: as ksqlDB writes it."""

    name: str
    type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryAnswer:
    """`query_id`: None of a pull query. `rows`: lists of rows, whose values are as JSON shows them; an empty list now and then
    while there is nothing. `close` ends the query; it is called in any case. `final_message`: what is said in the end.
    `is_short`: the rows are few, and come at once.
    """

    query_id: str | None
    columns: tuple[AnswerColumn, ...]
    rows: AsyncIterator[list[list[Any]]]
    close: Callable[[], Awaitable[None]]
    final_message: str = "Query Completed"
    key_names: tuple[str, ...] = ()
    is_short: bool = False

    @property
    def schema(self) -> str:
        """As /query writes it: `` `ID` INTEGER, `NAME` STRING``."""
        return ", ".join(f"`{column.name}` {column.type}" for column in self.columns)


class AnswerWriter(Protocol):
    """How an answer is written: one of the content types."""

    def begin(self, query_answer: QueryAnswer) -> str: ...

    def rows(self, rows: list[list[Any]]) -> str:
        """One or more rows."""

    def idle(self) -> str:
        """Nothing came for a while."""

    def problem(self, code: int, message: str) -> str: ...

    def end(self, query_answer: QueryAnswer) -> str: ...
