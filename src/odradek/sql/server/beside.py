"""Work on statements that runs off the event loop: parsing, checks, plans. It is pure: it takes values and returns values.

The cost of a text is linear in its length, but a text may be long. Threads give the interpreter up every few milliseconds,
so the event loop continues with other requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, TypeVar

from odradek.sql.language.dialect import too_deep
from odradek.sql.language.parsing import parse
from odradek.sql.language.statements import Statement
from odradek.values.errors import SqlError

T = TypeVar("T")
_THREADS_MAX: Final = 4
_STATEMENTS_MAX: Final = 2_000
_STATEMENT_CHARS_MAX: Final = 128 << 10


class StatementThreads:
    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_THREADS_MAX, "odradek-sql-statements")

    async def run(self, work: Callable[..., T], *arguments: object) -> T:
        """Runs pure work on another thread. Raises SqlError for expressions that nest too deeply for it."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, partial(work, *arguments))
        except RecursionError:
            raise too_deep(None) from None

    async def parsed(self, text: str, variables: Mapping[str, str]) -> list[Statement]:
        """Returns the statements of a request. Raises SqlError for too many, and for too long a one."""
        statements = await self.run(parse, text, variables)
        if len(statements) > _STATEMENTS_MAX:
            raise SqlError(
                f"a request has at most {_STATEMENTS_MAX} statements, not {len(statements)}",
                statements[_STATEMENTS_MAX].position,
                "Send them in several requests.",
            )
        for statement in statements:
            if len(statement.text) > _STATEMENT_CHARS_MAX:
                raise SqlError(
                    f"a statement has at most {_STATEMENT_CHARS_MAX} characters, not {len(statement.text)}",
                    statement.position,
                )
        return statements

    def close(self) -> None:
        """Does not wait for work that is under way."""
        self._threads.shutdown(wait=False, cancel_futures=True)
