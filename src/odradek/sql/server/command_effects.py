"""Applies commands: to the state, and then to what follows from it: queries in the engine, views, and the doors of Spark.

A snapshot is another way to the same state, so what follows from it is computed by comparison: which queries the engine runs,
and which it should run.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from odradek.sql import changes
from odradek.sql.metastore.catalog import Catalog
from odradek.sql.queries.archive_run import ArchiveBuild
from odradek.sql.queries.builds import PersistentBuild, program_name
from odradek.sql.queries.channel import StartArchive, StartQuery
from odradek.sql.queries.engine import SqlEngine
from odradek.sql.queries.tables import TableViews
from odradek.sql.server.checkpoints import QueryCheckpoints
from odradek.sql.server.command_log.commands import SqlCommand
from odradek.sql.server.command_log.state import QueryRun, ServiceState
from odradek.sql.server.command_log.state_format import state_content, state_of
from odradek.sql.server.topics.processing_log import ServerProcessingLog
from odradek.sql.server.topics.source_topics import starting_options
from odradek.telemetry import events

_log = events.get("sql")
_NOT_IN_A_SINK: Final = re.compile(r"[^A-Za-z0-9._-]")
_SINK_CHARS_MAX: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryOrders:
    """Makes the orders that start queries in the engine. `settings` are those for connecting to the brokers, by Kafka's
    names; `spark_options` are the same for Spark's source."""

    service_id: str
    servers: str
    settings: Mapping[str, str] = field(repr=False)
    spark_options: Mapping[str, str] = field(repr=False)
    checkpoints: QueryCheckpoints
    processing_log: ServerProcessingLog

    def start(self, run: QueryRun) -> StartQuery:
        """Returns the order to start a query that writes to a topic."""
        return StartQuery(
            query_id=run.query_id,
            name=program_name(f"sql.{self.service_id}.{run.run_id}"),
            build=PersistentBuild(text=run.text),
            servers=self.servers,
            options=self.spark_options,
            checkpoint=str(self.checkpoints.directory_of(run.run_id, run.carried_at)),
            starting=starting_options(run.starting),
            left_out_log=self.processing_log.of(run.query_id),
        )

    def start_archive(self, run: QueryRun) -> StartArchive:
        """Returns the order to start a query that fills an archive."""
        sink_id = _NOT_IN_A_SINK.sub("_", f"sql.{self.service_id}.{run.query_id}")[:_SINK_CHARS_MAX]
        build = ArchiveBuild(text=run.text, servers=self.servers, client=self.settings, sink_id=sink_id)
        return StartArchive(query_id=run.query_id, start=build)


class CommandEffects:
    """Applies the command topic's commands and snapshots to the server's state, engine and views. Used from one event loop."""

    def __init__(
        self, state: ServiceState, orders: QueryOrders, engine: SqlEngine, views: TableViews
    ) -> None:
        self._state = state
        self._orders = orders
        self._engine = engine
        self._views = views
        self.on_catalog: Callable[[Catalog], None] = lambda catalog: None
        """It is called with each new catalog."""
        self._tasks: set[asyncio.Task[object]] = set()

    # ---- commands

    def apply(self, offset: int, command: SqlCommand) -> None:
        """Applies one command; a command that is refused has no effect but its status."""
        applied = self._state.replay(offset, command)
        if applied is None:
            reason = self._state.statuses[command.command_id]["message"]
            _log.warning("sql_command_refused", command=command.command_id, offset=offset, reason=reason)
            return
        self.on_catalog(applied.catalog)
        for change in applied.changes:
            self._follow(change)

    def _follow(self, change: changes.Change) -> None:
        match change:
            case changes.QueryStarted(query=query) | changes.ArchiveCreated(query=query):
                replaced = change.replaces if isinstance(change, changes.QueryStarted) else None
                if replaced is not None:
                    self._engine.terminate(replaced)
                self._run(query.id)
            case changes.QueryStopped():
                self._engine.terminate(change.query.id)
            case changes.QueryPaused():
                self._engine.pause(change.query.id)
            case changes.QueryResumed():
                self._engine.resume(change.query.id)
            case changes.SourceDropped():
                self.soon(self._views.forget(change.source.topic))
            case changes.SourceCreated(source=source, replaces=known):
                if known is not None and known.topic != source.topic:
                    self.soon(self._views.forget(known.topic))

    def _run(self, query_id: str) -> None:
        run, query = self._state.runs[query_id], self._state.catalog.queries[query_id]
        order = self._orders.start_archive(run) if query.fills_archive else self._orders.start(run)
        self._engine.run(order)
        if query.state == "paused":
            self._engine.pause(query_id)

    def query_checkpoints(self) -> set[Path]:
        """Returns the checkpoints of the queries that run or are paused."""
        orders = (query.order for query in self._engine.wanted.values())
        return {Path(order.checkpoint) for order in orders if isinstance(order, StartQuery)}

    def soon(self, work: Coroutine[object, None, object]) -> None:
        """Runs something in the background."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # ---- snapshots

    @property
    def live_count(self) -> int:
        return self._state.live_count

    def why_none(self) -> str | None:
        if self._state.refused is None:
            return None
        return (
            f"this server refuses the command {self._state.refused}, which others may have applied:"
            " start it with the settings of the other servers"
        )

    async def content(self) -> bytes:
        state = self._state
        captured = ServiceState()
        captured.restore(state)
        return await asyncio.to_thread(state_content, captured)

    def restore(self, content: bytes) -> None:
        state, before = self._state, self._state.catalog
        state.restore(state_of(content, allows_python=before.allows_python, registry=before.registry))
        for name, source in before.sources.items():
            now = state.catalog.sources.get(name)
            if now is None or now.topic != source.topic:
                self.soon(self._views.forget(source.topic))
        self.on_catalog(state.catalog)
        self._follow_snapshot()

    def _follow_snapshot(self) -> None:
        """Makes the engine run the queries of the state, and no others."""
        engine, queries = self._engine, self._state.catalog.queries
        for query_id in [known for known in engine.wanted if known not in queries]:
            engine.terminate(query_id)
        for query_id, run in self._state.runs.items():
            wanted = engine.wanted.get(query_id)
            if wanted is None or not self._runs(wanted.order, run):
                if wanted is not None:
                    engine.terminate(query_id)
                self._run(query_id)
            elif queries[query_id].state == "paused":
                engine.pause(query_id)
            else:
                engine.resume(query_id)

    def _runs(self, order: StartQuery | StartArchive, run: QueryRun) -> bool:
        """Tells whether an order is the one of a run."""
        if isinstance(order, StartArchive):
            return isinstance(order.start, ArchiveBuild) and order.start.text.statement == run.text.statement
        directory = str(self._orders.checkpoints.directory_of(run.run_id, run.carried_at))
        build = order.build
        return (
            isinstance(build, PersistentBuild)
            and build.text.statement == run.text.statement
            and order.checkpoint == directory
        )
