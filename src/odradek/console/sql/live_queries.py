"""Results of the editor: rows as they arrive, within limits, and queries that end when no one looks at them.

A query has a thread that reads lines from the server and keeps the last ones undecoded: a fast query costs little, and what
no page shows is never parsed. A page holds the query while its stream of events is open. Without one the query ends after
`LEASE_S`, so a page that is loaded again finds it, and a closed browser leaves no query running.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import threading
from collections import OrderedDict, deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from odradek.model.aliases import Json
from odradek.model.errors import ErrorCode, KafkaError, OdradekError
from odradek.sql.rest_client import OpenQuery, row_of
from odradek.sql.shell.rendering import TextTable
from odradek.telemetry import events

_log = events.get("console")

ROWS_MAX: Final = 500
"""The rows of a result: the first ones of a query that ends by itself, the last ones of a push query."""
RESULT_BYTES_MAX: Final = 1 << 20
LINE_BYTES_MAX: Final = 1 << 20
RESULTS_MAX: Final = 64
"""The results of all browsers. The oldest of those that are over makes room."""
RESULTS_OF_BROWSER_MAX: Final = 8
RUNNING_OF_BROWSER_MAX: Final = 4
"""Each one that is seen holds a connection, and browsers open six to a server: pages need the others."""
LEASE_S: Final = 10.0
ENDED_S: Final = 600.0
"""A result that no one looked at for so long is forgotten."""


class ResultRow(NamedTuple):
    """A row, and its number in the result, from 1. `values` is None for a row that cannot be decoded."""

    number: int
    values: list[Json] | None


class SqlResult:
    """What a text of the editor has returned. Rows arrive on a thread of its own; all else is of the loop of the pages."""

    def __init__(
        self,
        text: str,
        parts: Sequence[str | TextTable],
        query: OpenQuery | None,
        *,
        from_beginning: bool = False,
    ) -> None:
        self.result_id: Final = secrets.token_urlsafe(16)
        self.text: Final = text
        self.from_beginning: Final = from_beginning
        """Whether the editor asked for the rows from the first record on."""
        self.parts: Final = tuple(parts)
        """The answers of the statements before the query."""
        self.columns: Final[tuple[tuple[str, str], ...]] = () if query is None else query.columns
        self.has_rows: Final = query is not None
        self.is_push: Final = query is not None and query.query_id is not None
        self.watchers = 0
        self._query = query
        self._lock = threading.Lock()
        self._lines: deque[tuple[int, bytes]] = deque()
        self._bytes = 0
        self._count = 0
        self._problem = ""
        self._ended = threading.Event()
        self._over = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._is_stopped = False
        self._is_cut = False
        if query is None:
            self._ended.set()
            self._over.set()
        else:
            threading.Thread(target=self._read, name="odradek-console-query", daemon=True).start()

    @property
    def is_over(self) -> bool:
        """Whether no more rows will come."""
        return self._ended.is_set()

    @property
    def count(self) -> int:
        """The number of rows that have come."""
        return self._count

    @property
    def problem(self) -> str:
        """Why the query failed; empty while it has not."""
        return self._problem

    @property
    def state(self) -> str:
        """The state of the query: `running`, `complete`, `cut` (there are more rows than are shown), `stopped` or `failed`."""
        if not self.is_over:
            return "running"
        if self._problem:
            return "failed"
        return "stopped" if self._is_stopped else "cut" if self._is_cut else "complete"

    def rows(self, after: int = 0) -> list[ResultRow]:
        """Returns the kept rows after the number, in order."""
        with self._lock:
            lines = [(number, line) for number, line in self._lines if number > after]
        return [ResultRow(number, _decoded(line)) for number, line in lines]

    async def wait(self, wait_s: float) -> None:
        """Returns when the query is over, or after this time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._over.wait()

    def stop(self) -> None:
        """Ends the query; the rows stay. Idempotent."""
        if self._query is not None and not self.is_over:
            self._is_stopped = True
            self._query.close()

    def _read(self) -> None:
        assert self._query is not None
        try:
            for line in self._query.lines(LINE_BYTES_MAX):
                if not self._add(line):
                    break
        except OdradekError as error:
            if not self._is_stopped:
                self._problem = str(error)
        except Exception as error:  # noqa: BLE001 - the root of a thread: our own bug, logged, and shown as one line
            _log.exception("console_query_failed")
            self._problem = f"unexpected {type(error).__name__}"
        finally:
            self._query.close()
            self._ended.set()
            with suppress(RuntimeError):  # the console has ended, and its loop is closed
                self._loop.call_soon_threadsafe(self._over.set)

    def _add(self, line: bytes) -> bool:
        """Keeps a line; returns False when the result is full and its query ends by itself."""
        with self._lock:
            is_full = len(self._lines) >= ROWS_MAX or self._bytes + len(line) > RESULT_BYTES_MAX
            if is_full and not self.is_push and self._lines:
                self._is_cut = True
                return False
            self._count += 1
            self._lines.append((self._count, line))
            self._bytes += len(line)
            while len(self._lines) > 1 and (len(self._lines) > ROWS_MAX or self._bytes > RESULT_BYTES_MAX):
                self._bytes -= len(self._lines.popleft()[1])
        return True


def _decoded(line: bytes) -> list[Json] | None:
    try:
        return row_of(line)
    except ValueError:
        return None


class SqlResults:
    """The results of all browsers. Used on the loop of the pages."""

    def __init__(self) -> None:
        self._results: OrderedDict[tuple[bytes, str], SqlResult] = OrderedDict()
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def __len__(self) -> int:
        return len(self._results)

    def check_room(self, browser_id: str) -> None:
        """Raises KafkaError THROTTLING_QUOTA_EXCEEDED if the browser, or all of them, have too many running queries."""
        owner = _owner(browser_id)
        running = [key for key, outcome in self._results.items() if not outcome.is_over]
        if len(running) >= RESULTS_MAX or sum(key[0] == owner for key in running) >= RUNNING_OF_BROWSER_MAX:
            raise KafkaError(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                f"too many queries run: at most {RUNNING_OF_BROWSER_MAX} of a browser and {RESULTS_MAX} of all; stop one first",
            )

    def add(self, browser_id: str, outcome: SqlResult) -> None:
        """Keeps a result for the browser. Results that are over make room, the oldest first."""
        owner = _owner(browser_id)
        self._results[owner, outcome.result_id] = outcome
        own = [key for key in self._results if key[0] == owner]
        self._make_room(own, len(own) - RESULTS_OF_BROWSER_MAX)
        self._make_room(list(self._results), len(self._results) - RESULTS_MAX)
        self._expect(owner, outcome)

    def _make_room(self, keys: list[tuple[bytes, str]], count: int) -> None:
        over = [key for key in keys if self._results[key].is_over and not self._results[key].watchers]
        for key in over[: max(0, count)]:
            self._remove(key)

    def get(self, browser_id: str, result_id: str) -> SqlResult:
        """Returns a result of the browser, and prolongs it. KafkaError RESOURCE_NOT_FOUND if it has none of that id."""
        owner = _owner(browser_id)
        outcome = self._results.get((owner, result_id))
        if outcome is None:
            raise KafkaError(
                ErrorCode.RESOURCE_NOT_FOUND,
                "this result no longer exists: run the statement again to have it",
            )
        self._results.move_to_end((owner, result_id))
        self._expect(owner, outcome)
        return outcome

    def watch(self, outcome: SqlResult) -> None:
        """Notes that a stream of events follows the result: its query continues."""
        outcome.watchers += 1

    def leave(self, browser_id: str, outcome: SqlResult) -> None:
        """Notes the end of such a stream."""
        outcome.watchers -= 1
        self._expect(_owner(browser_id), outcome)

    def _expect(self, owner: bytes, outcome: SqlResult) -> None:
        """Begins the time within which the result must be read again."""
        timer = self._timers.pop(outcome.result_id, None)
        if timer is not None:
            timer.cancel()
        if (owner, outcome.result_id) in self._results:
            wait_s = ENDED_S if outcome.is_over else LEASE_S
            self._timers[outcome.result_id] = asyncio.get_running_loop().call_later(
                wait_s, self._expire, owner, outcome
            )

    def _expire(self, owner: bytes, outcome: SqlResult) -> None:
        if outcome.watchers:
            self._timers.pop(outcome.result_id, None)
        elif not outcome.is_over:
            outcome.stop()
            self._expect(owner, outcome)
        else:
            self._remove((owner, outcome.result_id))

    def _remove(self, key: tuple[bytes, str]) -> None:
        outcome = self._results.pop(key, None)
        timer = self._timers.pop(key[1], None)
        if timer is not None:
            timer.cancel()
        if outcome is not None:
            outcome.stop()

    def close(self) -> None:
        """Ends all queries. Idempotent."""
        for key in list(self._results):
            self._remove(key)


def _owner(browser_id: str) -> bytes:
    return hashlib.sha256(browser_id.encode("utf-8", "replace")).digest()
