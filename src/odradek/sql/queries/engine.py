"""The server's side of the engine: the process with the JVM, started when a query needs it, and started again when it dies."""

from __future__ import annotations

import asyncio
import os
import random
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final

from odradek.model.errors import OdradekError
from odradek.sql.queries.channel import (
    QueryEnded,
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

_log = events.get("sql")
BACK_OFF_FIRST_S: Final = 1.0
BACK_OFF_MAX_S: Final = 60.0
_STOP_S: Final = 10.0
ROWS_WAITING_MAX: Final = 50_000
"""Of one push query whose client reads too slowly; then the query ends."""


class EngineFailed(OdradekError):
    """A query that cannot go on."""


@dataclass(slots=True)
class SupervisedQuery:
    """A persistent query that shall run, and how it fares."""

    order: StartQuery | StartArchive
    state: str = "STARTING"
    """STARTING, RUNNING, SLEEPING, PAUSED, ERROR (it is started again after a pause) or TERMINATED."""
    problem: str | None = None
    read: Offsets = field(default_factory=dict)
    """How far it had read when it fell asleep."""
    failure_count: int = 0
    retry: asyncio.TimerHandle | None = None


@dataclass(slots=True)
class PushedRows:
    """The rows of one push query, as they come. `async for rows in pushed`: lists of rows."""

    order: StartPush
    _queue: asyncio.Queue[list[list[Any]] | None] = field(default_factory=asyncio.Queue)
    _waiting: int = 0
    _problem: str | None = None
    _is_over: bool = False

    def give(self, rows: list[list[Any]]) -> bool:
        """False when the client reads too slowly."""
        self._waiting += len(rows)
        self._queue.put_nowait(rows)
        return self._waiting <= ROWS_WAITING_MAX

    def end(self, problem: str | None) -> None:
        if not self._is_over:
            self._is_over, self._problem = True, problem
            self._queue.put_nowait(None)

    async def next_rows(self, timeout_s: float) -> list[list[Any]] | None:
        """The next rows, an empty list after `timeout_s`, or None when there are no more. EngineFailed."""
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
    """Use it from one event loop."""

    def __init__(
        self,
        changed: Callable[[str, SupervisedQuery], None] = lambda query_id, query: None,
        sleep: SleepTerms | None = None,
    ) -> None:
        """`changed`: of a persistent query whose state is another one now."""
        self._sleep = sleep or SleepTerms()
        self.wanted: Final[dict[str, SupervisedQuery]] = {}
        self._pushes: dict[str, PushedRows] = {}
        self._stopping: dict[str, asyncio.Future[None]] = {}
        """Queries whose end is waited for."""
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
        """None while there is no engine, as before the first query."""
        return None if self._process is None else self._process.pid

    # ---- persistent queries

    def hold(self) -> None:
        """Start no query before `release`: while commands are read again, a query may be replaced, or end."""
        self._is_held = True

    def release(self) -> None:
        self._is_held = False
        for query in self.wanted.values():
            if query.state == "STARTING":
                self._send_soon(query.order)

    def run(self, order: StartQuery | StartArchive) -> None:
        """Keep a query running until `terminate` or `pause`."""
        self.wanted[order.query_id] = SupervisedQuery(order)
        self._send_soon(order)

    def pause(self, query_id: str) -> None:
        """Idempotent."""
        query = self.wanted.get(query_id)
        if query is not None and query.state != "PAUSED":
            self._set(query_id, query, "PAUSED", None)
            self._stop(query_id, query)

    def resume(self, query_id: str) -> None:
        """Idempotent."""
        query = self.wanted.get(query_id)
        if query is not None and query.state == "PAUSED":
            self._set(query_id, query, "STARTING", None)
            self._send_soon(query.order)

    def sleeping(self) -> dict[str, Offsets]:
        """The queries that sleep, and how far each has read."""
        return {query_id: query.read for query_id, query in self.wanted.items() if query.state == "SLEEPING"}

    def wake(self, query_id: str) -> None:
        """Idempotent."""
        query = self.wanted.get(query_id)
        if query is not None and query.state == "SLEEPING":
            _log.info("sql_query_woken", query=query_id)
            self._set(query_id, query, "STARTING", None)
            self._send_soon(query.order)

    def terminate(self, query_id: str) -> None:
        """Idempotent."""
        query = self.wanted.pop(query_id, None)
        if query is not None:
            query.state = "TERMINATED"
            self._stop(query_id, query)

    def _stop(self, query_id: str, query: SupervisedQuery) -> None:
        if query.retry is not None:
            query.retry.cancel()
            query.retry = None
        if self._writer is not None:
            self._writer.write(framed(StopQuery(query_id=query_id)))

    async def stopped(self, query_id: str) -> None:
        """Until a query that was terminated writes nothing any more."""
        if self._writer is None:
            return
        ended = self._stopping.setdefault(query_id, asyncio.get_running_loop().create_future())
        self._writer.write(framed(StopQuery(query_id=query_id, answers=True)))
        await ended

    # ---- push queries

    async def push(self, order: StartPush) -> PushedRows:
        """Start it. Its rows come until `close_push`, its limit, or its end."""
        rows = self._pushes[order.query_id] = PushedRows(order)
        try:
            await self._send(order)
        except BaseException:
            self._pushes.pop(order.query_id, None)
            raise
        return rows

    def close_push(self, query_id: str, problem: str | None = None) -> bool:
        """False when there is no such query. Idempotent."""
        rows = self._pushes.pop(query_id, None)
        if rows is None:
            return False
        rows.end(problem)
        if self._writer is not None:
            self._writer.write(framed(StopQuery(query_id=query_id)))
        return True

    @property
    def push_ids(self) -> list[str]:
        return list(self._pushes)

    # ---- the process

    async def close(self) -> None:
        """End the process. Persistent queries go on from where they are when they are started again. Idempotent."""
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
        self._writer.write(framed(order))

    async def _launch(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "odradek.sql.queries.engine_process",
                str(theirs.fileno()),
                pass_fds=[theirs.fileno()],
                stdin=asyncio.subprocess.DEVNULL,
                env={"MALLOC_ARENA_MAX": "2", **os.environ, "PYTHONUNBUFFERED": "1"},
                start_new_session=True,  # Ctrl-C is for the server: it decides
            )
        reader, self._writer = await asyncio.open_connection(sock=ours)
        self._writer.write(framed(self._sleep))
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
            self._has_stopped(query_id)
        if self._is_closing:
            return
        _log.warning("sql_engine_ended", exit_code=code)
        problem = f"the engine ended (exit code {code})"
        for query_id in list(self._pushes):
            self._pushes.pop(query_id).end(problem + ": run the query again")
        for query_id, query in list(self.wanted.items()):
            if query.state in ("STARTING", "RUNNING"):
                self._failed(query_id, problem)

    def _receive(self, message: QueryRunning | QuerySlept | QueryRows | QueryEnded) -> None:
        query_id = message.query_id
        match message:
            case QueryRunning():
                query = self.wanted.get(query_id)
                if query is not None and query.state != "PAUSED":
                    self._set(query_id, query, "RUNNING", None)
            case QuerySlept():
                query = self.wanted.get(query_id)
                if query is not None and query.state == "RUNNING":
                    _log.info("sql_query_sleeps", query=query_id)
                    query.read = message.read
                    self._set(query_id, query, "SLEEPING", None)
            case QueryRows():
                rows = self._pushes.get(query_id)
                if rows is not None and not rows.give(message.rows):
                    self.close_push(query_id, "the client reads too slowly: the query is ended")
            case QueryEnded():
                if self._has_stopped(query_id):
                    return
                if query_id in self._pushes:
                    self.close_push(query_id, message.problem)
                elif query_id in self.wanted and self.wanted[query_id].state != "PAUSED":
                    self._failed(query_id, message.problem or "the query ended by itself")

    def _has_stopped(self, query_id: str) -> bool:
        """False when no one waits for that."""
        ended = self._stopping.pop(query_id, None)
        if ended is None:
            return False
        if not ended.done():
            ended.set_result(None)
        return True

    def _failed(self, query_id: str, problem: str) -> None:
        """Start it again after a pause: twice as long each time, up to a minute."""
        query = self.wanted.get(query_id)
        if query is None or query.state == "PAUSED" or self._is_closing:
            return
        query.failure_count += 1
        pause_s = min(BACK_OFF_MAX_S, BACK_OFF_FIRST_S * 2 ** min(query.failure_count - 1, 10))
        pause_s *= 0.8 + 0.4 * self._random.random()
        _log.warning("sql_query_failed", query=query_id, reason=problem, again_after_s=round(pause_s, 1))
        self._set(query_id, query, "ERROR", problem)

        def again() -> None:
            query.retry = None
            query.order = replace(query.order)
            self._send_soon(query.order)

        query.retry = asyncio.get_running_loop().call_later(pause_s, again)

    def _set(self, query_id: str, query: SupervisedQuery, state: str, problem: str | None) -> None:
        query.state = state
        if problem is not None or state == "RUNNING":
            query.problem = problem
        self._changed(query_id, query)
