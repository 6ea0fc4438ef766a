"""The server's side of the engine, which runs persistent and push queries.

It starts the process with the JVM when a query needs it, and again when it dies.
"""

from __future__ import annotations

import asyncio
import os
import random
import socket
import sys
from collections import deque
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

from odradek.model.errors import OdradekError
from odradek.model.exception_text import text_of
from odradek.runtime.ports import Clock
from odradek.runtime.real_clock import SystemClock
from odradek.spark.query_figures import SessionFigures
from odradek.sql.queries.channel import (
    EngineFigures,
    MeasureQueries,
    QueryEnded,
    QueryHasStopped,
    QueryProgressed,
    QueryRows,
    QueryRunning,
    QuerySlept,
    StartArchive,
    StartPush,
    StartQuery,
    StopQuery,
    framed,
    read_message,
)
from odradek.sql.queries.sleeping import Offsets, SleepTerms
from odradek.telemetry import events
from odradek.values.rows import SqlValue

_log = events.get("sql")
BACK_OFF_FIRST_S: Final = 1.0
BACK_OFF_MAX_S: Final = 60.0
_STOP_S: Final = 10.0
ROWS_WAITING_MAX: Final = 50_000
"""The most rows that wait for a push query's client. If it reads too slowly, the query ends."""
_FAILURES_KEPT: Final = 10
"""The number of a query's last failures that are shown. Source: ksqlDB's `ksql.query.error.max.queue.size`."""


class EngineFailed(OdradekError):
    """A query that cannot go on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryFailure:
    """Why and when a query ended. `at_ms`: milliseconds since 1970."""

    reason: str
    at_ms: int


@dataclass(slots=True)
class SupervisedQuery:
    """A persistent query that must run, and its state."""

    order: StartQuery | StartArchive
    state: str = "STARTING"
    """STARTING, RUNNING, SLEEPING, PAUSED, TERMINATED, or ERROR: it failed, and has ended no batch since."""
    read: Offsets = field(default_factory=dict)
    """The offsets that it had read when it fell asleep."""
    failures: deque[QueryFailure] = field(default_factory=lambda: deque(maxlen=_FAILURES_KEPT))
    failure_count: int = 0
    """The number of failures one after another, without a batch that ended between them."""
    failing_since_ms: int | None = None
    retry: asyncio.TimerHandle | None = None


@dataclass(slots=True)
class PushedRows:
    """The rows of one push query, as they come. `async for rows in pushed`: lists of rows."""

    order: StartPush
    _queue: asyncio.Queue[list[list[SqlValue]] | None] = field(default_factory=asyncio.Queue)
    _waiting: int = 0
    row_count: int = 0
    """The number of rows that came."""
    _problem: str | None = None
    _is_over: bool = False

    def give(self, rows: list[list[SqlValue]]) -> bool:
        """Queues rows; returns False when the client reads too slowly."""
        self._waiting += len(rows)
        self.row_count += len(rows)
        self._queue.put_nowait(rows)
        return self._waiting <= ROWS_WAITING_MAX

    def end(self, problem: str | None) -> None:
        if not self._is_over:
            self._is_over, self._problem = True, problem
            self._queue.put_nowait(None)

    @property
    def has_reached_limit(self) -> bool:
        return self.order.limit is not None and self.row_count >= self.order.limit

    async def next_rows(self, timeout_s: float) -> list[list[SqlValue]] | None:
        """Returns the next rows, an empty list after `timeout_s`, or None when there are no more. EngineFailed."""
        try:
            async with asyncio.timeout(timeout_s):
                rows = await self._queue.get()
        except TimeoutError:
            return []
        if rows is None:
            self._queue.put_nowait(None)
            if self._problem is not None:
                raise EngineFailed(self._problem)
            return None
        self._waiting -= len(rows)
        return rows


class SqlEngine:
    """The server's face of the engine process: it starts, pauses and ends queries. Used from one event loop."""

    def __init__(
        self,
        changed: Callable[[str, SupervisedQuery], None] = lambda query_id, query: None,
        sleep: SleepTerms | None = None,
        clock: Clock | None = None,
        *,
        measures: bool = False,
        task_count: int = 0,
    ) -> None:
        """`changed`: of a persistent query whose state is another one now. `measures`: the engine reports `figures`.

        `task_count`: the tasks of Spark that run at the same time; 0: two for each core.
        """
        self._measures = measures
        self._task_count = task_count
        self.figures = SessionFigures()
        """The engine's last report of its queries."""
        self._clock = clock or SystemClock()
        self._sleep = sleep or SleepTerms()
        self.wanted: Final[dict[str, SupervisedQuery]] = {}
        self._pushes: dict[str, PushedRows] = {}
        self._stopping: dict[str, deque[asyncio.Future[None]]] = {}
        """The orders to stop a query that the engine has not carried out yet, by query."""
        self._changed = changed
        self._process: asyncio.subprocess.Process | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None
        self._starting = asyncio.Lock()
        self._is_closing = False
        self._is_held = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._random = random.Random()  # of pauses only

    @property
    def process_id(self) -> int | None:
        """The process id of the engine; None while there is none, as before the first query."""
        return None if self._process is None else self._process.pid

    # ---- persistent queries

    @property
    def push_count(self) -> int:
        """The push queries that run in the engine."""
        return len(self._pushes)

    def hold(self) -> None:
        """Starts no query before `release`: while commands are read again, a query may be replaced, or end."""
        self._is_held = True

    def release(self) -> None:
        self._is_held = False
        for query in self.wanted.values():
            if query.state == "STARTING":
                self._send_soon(query.order)

    def run(self, order: StartQuery | StartArchive) -> None:
        """Keeps a query running until `terminate` or `pause`."""
        self.wanted[order.query_id] = SupervisedQuery(order)
        self._send_soon(order)

    def pause(self, query_id: str) -> None:
        """Pauses a query. Idempotent."""
        query = self.wanted.get(query_id)
        if query is not None and query.state != "PAUSED":
            self._set(query_id, query, "PAUSED")
            self._stop(query_id, query)

    def resume(self, query_id: str) -> None:
        """Resumes a paused query. Idempotent."""
        query = self.wanted.get(query_id)
        if query is not None and query.state == "PAUSED":
            query.failure_count, query.failing_since_ms = 0, None
            self._set(query_id, query, "STARTING")
            self._send_soon(query.order)

    def sleeping(self) -> dict[str, Offsets]:
        """Returns the queries that sleep, and how far each has read."""
        return {query_id: query.read for query_id, query in self.wanted.items() if query.state == "SLEEPING"}

    def wake(self, query_id: str) -> None:
        """Wakes a query that sleeps. Idempotent."""
        query = self.wanted.get(query_id)
        if query is not None and query.state == "SLEEPING":
            _log.info("sql_query_woken", query=query_id)
            self._set(query_id, query, "STARTING")
            self._send_soon(query.order)

    def terminate(self, query_id: str) -> None:
        """Ends a query for good. Idempotent."""
        query = self.wanted.pop(query_id, None)
        if query is not None:
            query.state = "TERMINATED"
            self._stop(query_id, query)

    def _stop(self, query_id: str, query: SupervisedQuery) -> None:
        if query.retry is not None:
            query.retry.cancel()
            query.retry = None
        if self._writer is not None:
            ended = asyncio.get_running_loop().create_future()
            self._stopping.setdefault(query_id, deque()).append(ended)
            self._writer.write(framed(StopQuery(query_id=query_id, answers=True)))

    async def stopped(self, query_id: str) -> None:
        """Waits until a query that was terminated, paused or replaced writes nothing any more."""
        orders = self._stopping.get(query_id)
        if orders:
            await asyncio.shield(orders[-1])  # others may wait for the same query

    async def all_stopped(self, query_ids: Collection[str], timeout_s: float) -> list[str]:
        """Waits until none of these queries writes any more. Returns those that still do after `timeout_s`."""
        left = list(query_ids)
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while left:
                    await self.stopped(left[-1])
                    left.pop()
        return [query_id for query_id in left if query_id in self._stopping]

    # ---- push queries

    async def push(self, order: StartPush) -> PushedRows:
        """Starts it. Its rows come until `close_push`, its limit, or its end."""
        rows = self._pushes[order.query_id] = PushedRows(order)
        try:
            await self._send(order)
        except BaseException:
            self._pushes.pop(order.query_id, None)
            raise
        return rows

    def close_push(self, query_id: str, problem: str | None = None) -> bool:
        """Closes a push query; returns False when there is none. Idempotent."""
        rows = self._pushes.pop(query_id, None)
        if rows is None:
            return False
        rows.end(problem)
        if self._writer is not None:
            self._writer.write(framed(StopQuery(query_id=query_id)))
        return True

    # ---- the process

    async def close(self) -> None:
        """Ends the process. Persistent queries go on from where they are when they are started again. Idempotent."""
        self._is_closing = True
        for query in self.wanted.values():
            if query.retry is not None:
                query.retry.cancel()
        for task in list(self._tasks):
            task.cancel()
        if self._writer is not None:
            self._writer.close()
        if self._process is not None:
            try:
                async with asyncio.timeout(_STOP_S):
                    await self._process.wait()
            except TimeoutError:
                with suppress(ProcessLookupError):
                    self._process.kill()
                await self._process.wait()
        if self._reading is not None:
            await self._reading

    def _send_soon(self, order: StartQuery | StartArchive) -> None:
        if self._is_held:
            return
        task = asyncio.get_running_loop().create_task(self._try_send(order))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _try_send(self, order: StartQuery | StartArchive) -> None:
        try:
            await self._send(order)
        except (OSError, EngineFailed) as error:
            self._failed(order.query_id, str(error))

    async def _send(self, order: StartQuery | StartArchive | StartPush) -> None:
        async with self._starting:
            if self._writer is None:
                await self._launch()
        if self._writer is None or self._is_closing:
            raise EngineFailed("the engine ended while the query was started")
        if not isinstance(order, StartPush):
            query = self.wanted.get(order.query_id)
            if query is None or query.order is not order or query.state == "PAUSED":
                return  # it was stopped meanwhile
        try:
            content = framed(order)
        except Exception as error:  # noqa: BLE001 - objects of the query define how they are pickled
            reason = " ".join(text_of(error).split())
            raise EngineFailed(f"the query cannot be sent to its engine: {reason}") from None
        self._writer.write(content)

    async def _launch(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-P",
                "-m",
                "odradek.sql.queries.engine_process",
                str(theirs.fileno()),
                str(self._task_count),
                pass_fds=[theirs.fileno()],
                stdin=asyncio.subprocess.DEVNULL,
                env={"MALLOC_ARENA_MAX": "2", **os.environ, "PYTHONUNBUFFERED": "1"},
                start_new_session=True,  # Ctrl-C is for the server: it decides
            )
        reader, self._writer = await asyncio.open_connection(sock=ours)
        self._writer.write(framed(self._sleep))
        if self._measures:
            self._writer.write(framed(MeasureQueries()))
        _log.info("sql_engine_started", process_id=self._process.pid)
        self._reading = asyncio.get_running_loop().create_task(
            self._read(reader, self._process), name="odradek-sql-engine"
        )

    async def _read(self, reader: asyncio.StreamReader, process: asyncio.subprocess.Process) -> None:
        try:
            while True:
                self._receive(await read_message(reader))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        code = await process.wait()
        for query_id in list(self._stopping):
            while query_id in self._stopping:
                self._has_stopped(query_id)
        if self._is_closing:
            return
        self.figures = SessionFigures()
        _log.warning("sql_engine_ended", exit_code=code)
        problem = f"the engine ended (exit code {code})"
        for query_id in list(self._pushes):
            self._pushes.pop(query_id).end(problem + ": run the query again")
        for query_id, query in list(self.wanted.items()):
            if query.state in ("STARTING", "RUNNING", "ERROR"):
                self._failed(query_id, problem)

    def _receive(
        self,
        message: QueryRunning
        | QueryProgressed
        | QuerySlept
        | QueryRows
        | QueryEnded
        | QueryHasStopped
        | EngineFigures,
    ) -> None:
        query_id = message.query_id
        if isinstance(message, EngineFigures):
            self.figures = message.figures
        elif isinstance(message, QueryHasStopped):
            self._has_stopped(query_id)
        elif query_id in self._pushes:
            self._receive_push(query_id, message)
        elif query_id not in self._stopping:  # its predecessor's last messages are of no interest
            query = self.wanted.get(query_id)
            if query is not None and query.state != "PAUSED":
                self._receive_persistent(query_id, query, message)

    def _receive_push(self, query_id: str, message: object) -> None:
        match message:
            case QueryRows(rows=rows) if not self._pushes[query_id].give(rows):
                self.close_push(query_id, "the client reads too slowly: the query is ended")
            case QueryEnded(problem=problem):
                self.close_push(query_id, problem)

    def _receive_persistent(self, query_id: str, query: SupervisedQuery, message: object) -> None:
        match message:
            case QueryRunning() if query.state == "STARTING":
                self._set(query_id, query, "RUNNING")
            case QueryProgressed() if query.state == "ERROR" and query.retry is None:
                self._recovered(query_id, query)
            case QuerySlept(read=read) if query.retry is None and query.state in ("RUNNING", "ERROR"):
                _log.info("sql_query_sleeps", query=query_id)
                if query.failure_count:
                    self._recovered(query_id, query)
                query.read = read
                self._set(query_id, query, "SLEEPING")
            case QueryEnded(problem=problem):
                self._failed(query_id, problem or "the query ended by itself")

    def _has_stopped(self, query_id: str) -> None:
        orders = self._stopping.get(query_id)
        if orders:
            orders.popleft().set_result(None)
            if not orders:
                del self._stopping[query_id]

    def _recovered(self, query_id: str, query: SupervisedQuery) -> None:
        """Notes that a query that failed has ended a batch. Its failures stay, to be looked at."""
        _log.info("sql_query_recovered", query=query_id, failures=query.failure_count)
        query.failure_count, query.failing_since_ms = 0, None
        self._set(query_id, query, "RUNNING")

    def _failed(self, query_id: str, problem: str) -> None:
        """Starts it again after a pause: twice as long each time, up to a minute."""
        query = self.wanted.get(query_id)
        if query is None or query.state == "PAUSED" or query.retry is not None or self._is_closing:
            return
        now_ms = self._clock.wall_ms()
        query.failures.append(QueryFailure(reason=problem, at_ms=now_ms))
        query.failure_count += 1
        if query.failing_since_ms is None:
            query.failing_since_ms = now_ms
        pause_s = min(BACK_OFF_MAX_S, BACK_OFF_FIRST_S * 2 ** min(query.failure_count - 1, 10))
        pause_s *= 0.8 + 0.4 * self._random.random()
        _log.warning("sql_query_failed", query=query_id, reason=problem, again_after_s=round(pause_s, 1))
        self._set(query_id, query, "ERROR")

        def again() -> None:
            query.retry = None
            query.order = replace(query.order, tells_progress=True)
            self._send_soon(query.order)

        query.retry = asyncio.get_running_loop().call_later(pause_s, again)

    def _set(self, query_id: str, query: SupervisedQuery, state: str) -> None:
        query.state = state
        self._changed(query_id, query)
