"""The console's SQL server: its address and login, calls on threads of a bounded number, and what was read lately."""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, TypeVar

from odradek.console.records.masking import RecordMasks
from odradek.console.sql.editor_text import EditorRun, RunSettings
from odradek.console.sql.live_queries import SqlResult, SqlResults
from odradek.console.sql.masked_sources import SOURCES, check_unmasked
from odradek.model.safe_text import safe_json
from odradek.runtime.ports import Clock
from odradek.runtime.shielded import outcome_of
from odradek.sql.rest_client import OpenQuery, RestClient, ServerRefusal, ServerUnreachable
from odradek.sql.shell.names import KnownNames
from odradek.sql.shell.rendering import TextTable, rendered

THREADS_MAX: Final = 16
"""The calls to the SQL server at the same time, running queries aside."""
READ_S: Final = 10.0
STATEMENT_S: Final = 50.0
"""The longest time for the statements of one text: the page has to come before the gate's limit."""
FRESH_S: Final = 2.0
"""Lists that were read less than this time ago are shown again: live pages of many browsers cost one reading."""
NAMES_S: Final = 30.0
LISTS_MAX: Final = 50
SERVERS_MAX: Final = 64
FIRST_ROWS_S: Final = 1.5
"""The time that a page waits for the rows of a query: most pull queries are over by then."""
Entity = dict[str, object]
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlTerms:
    """The SQL server that the command line names. `user`: the login that everyone shares; None: there is none."""

    url: str
    user: str | None = None
    password: str = field(default="", repr=False)
    ca: Path | None = None
    is_shared: bool = True
    """Whether everyone uses this login, or none; otherwise each user of the console logs in to the SQL server, too."""

    def client(self, user: str | None, password: str) -> RestClient:
        """Returns a client with a login."""
        return RestClient(url=self.url, user=user, password=password, ca=self.ca)


class CallThreads:
    """Runs blocking calls on threads, `THREADS_MAX` at most. They are daemons: no call holds up the end of the process."""

    def __init__(self) -> None:
        self._slots = asyncio.Semaphore(THREADS_MAX)

    async def start(self, work: Callable[[], T]) -> Future[T]:
        """Begins a call as soon as a thread may start. Its slot is free when the call is over, also if no one waits for it."""
        await self._slots.acquire()
        loop = asyncio.get_running_loop()
        future: Future[T] = Future()
        future.set_running_or_notify_cancel()  # a caller that leaves does not cancel it: the call continues

        def run() -> None:
            try:
                future.set_result(work())
            except BaseException as error:  # noqa: BLE001 - the root of a thread: the caller gets it
                future.set_exception(error)
            finally:
                with suppress(RuntimeError):  # the console has ended, and its loop is closed
                    loop.call_soon_threadsafe(self._slots.release)

        threading.Thread(target=run, name="odradek-console-sql", daemon=True).start()
        return future


class SlowSqlServerError(ServerUnreachable):
    """The SQL server did not answer in time."""


class SqlAccess:
    """The SQL server as one login sees it. Used on the loop of the pages; its calls run on threads."""

    def __init__(self, client: RestClient, threads: CallThreads, clock: Clock, masks: RecordMasks) -> None:
        self.url: Final = client.url
        self.names: Final = KnownNames(replace(client, timeout_s=READ_S))
        self._reader: Final = replace(client, timeout_s=READ_S)
        self._client: Final = replace(client, timeout_s=STATEMENT_S)
        self._threads = threads
        self._clock = clock
        self._masks = masks
        self._lists: OrderedDict[str, tuple[float, list[Entity]]] = OrderedDict()
        self._under_way: dict[str, asyncio.Task[list[Entity]]] = {}
        self._names_s = -NAMES_S

    async def read(self, statements: str) -> list[Entity]:
        """Returns the entities of SHOW, DESCRIBE or EXPLAIN, at most `FRESH_S` old. Raises ServerRefusal."""
        read_s, entities = self._lists.get(statements, (-FRESH_S, []))
        if self._clock.monotonic() - read_s < FRESH_S:
            return entities
        task = self._under_way.get(statements)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._read(statements))
            self._under_way[statements] = task
            task.add_done_callback(lambda _: self._under_way.pop(statements, None))
        return await outcome_of(task)

    async def _read(self, statements: str) -> list[Entity]:
        entities = await self._call(READ_S, lambda: self._reader.execute(statements))
        self._lists[statements] = (self._clock.monotonic(), entities)
        while len(self._lists) > LISTS_MAX:
            self._lists.popitem(last=False)
        return entities

    async def execute(self, statements: str) -> list[Entity]:
        """Carries out statements. Raises ServerRefusal, SlowSqlServerError."""
        self._lists.clear()
        try:
            return await self._call(STATEMENT_S, lambda: self._client.execute(statements))
        finally:
            self._lists.clear()

    async def info(self) -> Entity:
        """Returns the server's description of itself. Raises ServerRefusal with code 40100 where it asks for another login."""
        return await self._call(READ_S, self._reader.info)

    async def run(self, text: str, wanted: EditorRun, *, from_beginning: bool) -> SqlResult:
        """Carries out a text of the editor. Raises EditorFailure for the first statement that is refused."""
        settings = RunSettings({"auto.offset.reset": "earliest"} if from_beginning else {})
        parts: list[str | TextTable] = []
        self._lists.clear()
        try:
            async with asyncio.timeout(STATEMENT_S):
                for step in wanted.steps:
                    if not settings.apply(step):
                        await self._check_unmasked(step.text)
                        parts += await self._statement(step.text, settings)
                if wanted.query:
                    await self._check_unmasked(wanted.query)
                query = await self._opened(wanted.query, settings) if wanted.query else None
        except ServerRefusal as refusal:
            parts += _texts(refusal.entities)
            raise EditorFailure(refusal, parts) from refusal
        except TimeoutError:
            raise self._slow(STATEMENT_S) from None
        finally:
            self._lists.clear()
            self._names_s = -NAMES_S
        outcome = SqlResult(text, parts, query, from_beginning=from_beginning)
        if not outcome.is_push:
            await outcome.wait(FIRST_ROWS_S)
        return outcome

    async def _check_unmasked(self, text: str) -> None:
        """Raises EditorRefusal if rows of masked topics could pass. The sources are read again, since statements add some."""
        if not self._masks:
            return
        lists = await self._call(READ_S, lambda: self._reader.execute(SOURCES))
        sources = [
            source for entity in lists for kind in ("streams", "tables") for source in entity.get(kind) or ()
        ]
        check_unmasked(text, self._masks, sources)

    async def _statement(self, text: str, settings: RunSettings) -> list[str | TextTable]:
        written = text if text.rstrip().endswith(";") else text + ";"
        entities = await self._call(
            STATEMENT_S,
            lambda: self._client.execute(
                written, properties=settings.properties, variables=settings.variables
            ),
        )
        return _texts(entities)

    async def _opened(self, query: str, settings: RunSettings) -> OpenQuery:
        """Opens a query. It is closed when the page no longer waits for it."""
        future = await self._threads.start(
            lambda: self._client.query(query, properties=settings.properties, variables=settings.variables)
        )
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            future.add_done_callback(_close)
            raise

    def refresh_names(self) -> None:
        """Reads the names for completions again, if they are old. Does not wait."""
        if self._clock.monotonic() - self._names_s >= NAMES_S:
            self._names_s = self._clock.monotonic()
            self.names.refresh_soon()

    async def _call(self, limit_s: float, work: Callable[[], T]) -> T:
        try:
            async with asyncio.timeout(limit_s):
                return await asyncio.wrap_future(await self._threads.start(work))
        except TimeoutError:
            raise self._slow(limit_s) from None

    def _slow(self, limit_s: float) -> SlowSqlServerError:
        return SlowSqlServerError(
            f"the SQL server at {self.url} did not answer within {limit_s:g} s; what was begun may still be carried out"
        )


class EditorFailure(ServerRefusal):
    """A statement of the editor that the server refused. `parts`: the answers of the statements before it."""

    def __init__(self, refusal: ServerRefusal, parts: Sequence[str | TextTable]) -> None:
        super().__init__(refusal.code, refusal.message)
        self.parts: Final = tuple(parts)


def _texts(entities: Sequence[Entity]) -> list[str | TextTable]:
    """Returns the answers as texts and tables; as JSON where another server has other members than ours."""
    parts: list[str | TextTable] = []
    for entity in entities:
        try:
            parts += list(rendered(entity))
        except (LookupError, TypeError, ValueError, AttributeError):
            parts.append(safe_json(entity, indent=2))
    return parts


def _close(future: Future[OpenQuery]) -> None:
    if not future.cancelled() and future.exception() is None:
        future.result().close()


class SqlServers:
    """The SQL server as each login sees it: a bounded number, of which the one used longest ago goes first."""

    def __init__(self, terms: SqlTerms, clock: Clock, masks: RecordMasks | None = None) -> None:
        self.terms: Final = terms
        self.results: Final = SqlResults()
        self._clock = clock
        self._masks = masks or RecordMasks()
        self._threads = CallThreads()
        self._servers: OrderedDict[tuple[str, str | None, str], SqlAccess] = OrderedDict()

    def of(self, principal: str, user: str | None, password: str) -> SqlAccess:
        """Returns the server for a principal of the console, with a login of the SQL server."""
        key = (principal, user, password)
        server = self._servers.get(key)
        if server is None:
            server = SqlAccess(self.terms.client(user, password), self._threads, self._clock, self._masks)
            self._servers[key] = server
        self._servers.move_to_end(key)
        while len(self._servers) > SERVERS_MAX:
            self._servers.popitem(last=False)
        return server

    def close(self) -> None:
        """Ends queries. Idempotent."""
        self.results.close()
