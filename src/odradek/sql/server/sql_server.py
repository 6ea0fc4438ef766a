"""The server: makes the parts, starts and ends them, and passes each request of the REST API to the part that handles it."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from odradek.client.admin.aio import AsyncAdmin
from odradek.client.producer.aio import AsyncProducer
from odradek.client.settings.settings import ConsumerSettings
from odradek.model.errors import OdradekError
from odradek.net.metrics_page import MetricsPage, PageTerms
from odradek.runtime.real_clock import SystemClock
from odradek.sql.doors.opening import DoorTerms, SparkDoors
from odradek.sql.language.parsing import parse_one
from odradek.sql.metastore.catalog import Catalog
from odradek.sql.queries.answer import QueryAnswer
from odradek.sql.queries.engine import SqlEngine
from odradek.sql.queries.engine_families import EngineSnapshots
from odradek.sql.queries.sleeping import SleepTerms, SleepWatch
from odradek.sql.queries.tables import TableViews
from odradek.sql.server.application import application
from odradek.sql.server.beside import StatementThreads
from odradek.sql.server.checkpoints import CheckpointRemoval, QueryCheckpoints
from odradek.sql.server.cluster import KnownHosts, ending_statements
from odradek.sql.server.command_effects import CommandEffects, QueryOrders
from odradek.sql.server.command_log.command_topic import CommandTopic
from odradek.sql.server.command_log.state import ServiceState
from odradek.sql.server.connections import SqlConnections
from odradek.sql.server.gate import LOOPBACK, GateLimits, HttpUsers
from odradek.sql.server.parts import ServerParts
from odradek.sql.server.properties import checked_properties, is_known, notes, with_settings
from odradek.sql.server.rebuilding import RebuildWatch
from odradek.sql.server.refusals import BAD_REQUEST, RestRefusal, refusal_of
from odradek.sql.server.schemas import StatementSchemas
from odradek.sql.server.serving import HttpTerms, listening, serve_http, url
from odradek.sql.server.statements import Statements
from odradek.sql.server.topics.error_statistics import ErrorStatistics
from odradek.sql.server.topics.processing_log import ProcessingLogTerms, ServerProcessingLog
from odradek.sql.server.topics.source_topics import SourceTopics
from odradek.sql.server.transient_queries import TransientQueries
from odradek.telemetry import events
from odradek.values.schema_registry import SchemaRegistryTerms

_log = events.get("sql")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTerms:
    """The settings of the server.

    `settings`: how to connect to the brokers, by Kafka's names. `directory`: of checkpoints, which may be lost.
    `python_functions`: users may make functions, which run with the rights of the server. All servers of a service agree on it.
    """

    servers: str
    directory: Path
    service_id: str = "default"
    settings: Mapping[str, str] = field(default_factory=dict, repr=False)
    schema_registry: SchemaRegistryTerms | None = None
    python_functions: bool = False
    sleep: SleepTerms = field(default_factory=SleepTerms)
    task_count: int = 0
    """The tasks of Spark that run at the same time; 0: one for each core."""
    processing_log: ProcessingLogTerms | None = None
    """The terms of the processing log; None: records that cannot be read are in the server's log only."""
    commands_between_snapshots: int = 500
    """The fewest commands between two snapshots of the command topic."""
    archive_endpoints: frozenset[str] = frozenset()
    """Stores of archives that statements may name, in addition to AWS and the one of the server's environment."""

    metrics: PageTerms | None = None
    """The metrics listener; None: there is none."""

    @property
    def client_settings(self) -> dict[str, Any]:
        """The settings of our clients, as keyword arguments."""
        config = {**self.settings, "bootstrap.servers": self.servers}
        arguments = ConsumerSettings.arguments(config)
        arguments.pop("bootstrap_servers")
        return arguments

    @property
    def shown_properties(self) -> dict[str, str]:
        """The server's own properties, for SHOW PROPERTIES."""
        return {
            "ksql.service.id": self.service_id,
            "ksql.schema.registry.url": self.schema_registry.url if self.schema_registry else "",
            "odradek.sql.python.functions": str(self.python_functions).lower(),
            "odradek.sql.archive.endpoints": ",".join(sorted(self.archive_endpoints)),
            "odradek.sql.awake.queries": str(self.sleep.awake_count_max),
            "odradek.sql.sleep.after.ms": str(round(self.sleep.idle_s * 1000)),
            "odradek.sql.tasks": str(self.task_count),
            "odradek.sql.snapshot.commands": str(self.commands_between_snapshots),
        }

    @property
    def spark_options(self) -> dict[str, str]:
        return {
            "kafka.isolation.level": "read_committed",
            **{f"kafka.{name}": value for name, value in self.settings.items()},
        }


class SqlServer:
    """An SQL server on a cluster: implements `SqlService`. `start`, then requests, then `close`; all on one event loop."""

    def __init__(self, terms: ServerTerms, address: str = "") -> None:
        """`address`: where requests arrive, as HOST:PORT; without one, the server is shown by its process id."""
        self.terms: Final = terms
        self.address: Final = address or f"pid-{os.getpid()}"
        state = ServiceState(
            catalog=Catalog(allows_python=terms.python_functions, registry=terms.schema_registry)
        )
        self.state: Final = state
        settings = terms.client_settings
        self._checkpoints = QueryCheckpoints(terms.directory / terms.service_id)
        self._removal = CheckpointRemoval(self._checkpoints)
        self.engine: Final = SqlEngine(
            self._removal.query_changed,
            terms.sleep,
            measures=terms.metrics is not None,
            task_count=terms.task_count,
        )
        self._sleep_watch = SleepWatch(terms.servers, settings, self.engine.sleeping, self.engine.wake)
        self.topics: Final = SourceTopics(terms.servers, settings)
        self.views: Final = TableViews(terms.servers, settings, None)
        self.producer: Final = AsyncProducer(terms.servers, **settings)
        self._settings = settings
        log_terms = (terms.processing_log, terms.service_id)
        self.processing_log: Final = ServerProcessingLog(*log_terms, self.topics, self.producer)
        orders = _orders(terms, self._checkpoints, self.processing_log)
        self._effects = CommandEffects(self.state, orders, self.engine, self.views)
        self.commands: Final = CommandTopic(
            terms.servers,
            terms.service_id,
            settings,
            self._effects.apply,
            self._effects,
            terms.commands_between_snapshots,
        )
        self.schemas: Final = StatementSchemas(terms.schema_registry)
        self.threads: Final = StatementThreads()
        self._error_statistics = ErrorStatistics(terms.servers, settings, lambda: state.catalog)
        parts = ServerParts(
            state=self.state,
            commands=self.commands,
            engine=self.engine,
            topics=self.topics,
            views=self.views,
            producer=self.producer,
            schemas=self.schemas,
            threads=self.threads,
            broker_settings=(terms.servers, terms.settings),
            archive_endpoints=terms.archive_endpoints,
            shown_properties=terms.shown_properties,
            error_statistics=self._error_statistics,
            address=self.address,
        )
        self._statements = Statements(parts)
        self._rebuild_watch = RebuildWatch(parts, self._statements.swap)
        self._queries = TransientQueries(parts, terms.spark_options, self.processing_log)
        self._clock = SystemClock()
        self._hosts = KnownHosts()
        self._cluster_id = ""
        self._doors: SparkDoors | None = None

    @property
    def catalog(self) -> Catalog:
        return self.state.catalog

    async def start(self) -> None:
        """Applies the commands of the command topic, and runs the queries that they want."""
        async with AsyncAdmin(self.terms.servers, **self._settings) as admin:
            self._cluster_id = (await admin.describe_cluster()).cluster_id or ""
        await self.processing_log.start()
        if self.processing_log.is_open:
            await self._error_statistics.start(self.processing_log.topic)
        self.engine.hold()
        await self.commands.start()
        await asyncio.to_thread(self._checkpoints.remove_all_but, self._effects.query_checkpoints())
        self.engine.release()
        self._sleep_watch.start()
        self._rebuild_watch.start()
        stream = self.processing_log.stream_statement(self.catalog)
        if stream is not None:
            await self._statements.run(parse_one(stream), {}, {})
        _log.info(
            "sql_server_started",
            service=self.terms.service_id,
            commands=self.state.applied_count,
            queries=len(self.catalog.queries),
        )

    def open_doors(self, terms: DoorTerms, on_open: Callable[[str], object]) -> None:
        """Opens the doors; calls `on_open(URL)` for each."""
        self._doors = SparkDoors(terms, self.terms.servers, self.terms.spark_options, on_open)
        doors = self._doors
        doors.start(tuple(self.catalog.sources.values()))
        self._effects.on_catalog = lambda catalog: doors.show(tuple(catalog.sources.values()))

    async def close(self) -> None:
        """Stops the server. Idempotent."""
        await self._rebuild_watch.close()
        await self.commands.close()
        await self._sleep_watch.close()
        if self._doors is not None:
            await self._doors.close()
        await self.engine.close()
        await self._removal.close()
        await self.views.close()
        await self._error_statistics.close()
        await self.processing_log.close()
        await self.producer.close()
        self.threads.close()

    # ---- SqlService

    async def execute(
        self,
        text: str,
        properties: Mapping[str, str],
        variables: Mapping[str, str],
        after_sequence: int | None,
    ) -> list[dict[str, Any]]:
        if after_sequence is not None and after_sequence >= 0:
            await self.commands.wait_for(after_sequence)
        entities: list[dict[str, Any]] = []
        try:
            checked = checked_properties(properties)
            for statement in await self.threads.parsed(text, variables):
                await asyncio.sleep(0)  # other requests have their turn
                checked = with_settings(checked, statement)
                entity = await self._statements.run(statement, checked, variables)
                if entity is not None:
                    entity["warnings"] += [{"message": note} for note in notes(checked)]
                    entities.append(entity)
        except OdradekError as error:
            raise refusal_of(error, text, entities) from error
        return entities

    async def query(
        self, text: str, properties: Mapping[str, str], variables: Mapping[str, str]
    ) -> QueryAnswer:
        return await self._queries.run(text, properties, variables)

    async def insert(self, target: str, row: Mapping[str, object]) -> None:
        await self._statements.insert_json(target, row)

    def close_query(self, query_id: str) -> bool:
        return self._queries.close(query_id)

    def status(self, command_id: str) -> dict[str, Any] | None:
        return self.state.statuses.get(command_id)

    def statuses(self) -> dict[str, str]:
        return {command_id: status["status"] for command_id, status in self.state.statuses.items()}

    def info(self) -> dict[str, object]:
        return {
            "version": metadata.version("odradek"),
            "kafkaClusterId": self._cluster_id,
            "ksqlServiceId": self.terms.service_id,
            "serverStatus": "RUNNING" if self.commands.problem is None else "DEGRADED",
        }

    async def health(self) -> dict[str, object]:
        try:
            async with asyncio.timeout(5):
                await self.topics.sizes(self.commands.topic)
            kafka = True
        except (OdradekError, TimeoutError):
            kafka = False
        runs = self.commands.problem is None
        return {
            "isHealthy": kafka and runs,
            "details": {
                "metastore": {"isHealthy": runs},
                "kafka": {"isHealthy": kafka},
                "commandRunner": {"isHealthy": runs},
            },
            "serverState": "READY",
        }

    def cluster(self) -> dict[str, Any]:
        return self._hosts.statuses(self.address, list(self.catalog.queries), self._clock.wall_ms())

    def heard(self, message: Mapping[str, object]) -> None:
        self._hosts.heard(message, self._clock.wall_ms())

    def reported(self, message: Mapping[str, object]) -> None:
        self._hosts.reported(message, self._clock.wall_ms())

    async def terminate(self, topics: object) -> list[dict[str, object]]:
        """Ends all queries and drops all sources; the server continues without them."""
        statements = ending_statements(self.catalog, topics)
        return await self.execute("\n".join(statements), {}, {}, None) if statements else []

    def check_property(self, name: str) -> None:
        if not is_known(name):
            raise RestRefusal(
                BAD_REQUEST,
                f"One or more properties overrides set locally are prohibited by the KSQL server: [{name}]",
            )


def _orders(
    terms: ServerTerms, checkpoints: QueryCheckpoints, processing_log: ServerProcessingLog
) -> QueryOrders:
    return QueryOrders(
        service_id=terms.service_id,
        servers=terms.servers,
        settings=terms.settings,
        spark_options=terms.spark_options,
        checkpoints=checkpoints,
        processing_log=processing_log,
    )


async def serve(
    terms: ServerTerms,
    http: HttpTerms,
    users: HttpUsers | None,
    ended: asyncio.Event,
    on_ready: Callable[[str], object] = lambda address: None,
    doors: DoorTerms | None = None,
) -> None:
    """Serves until `ended`. Calls `on_ready(URL)` once it answers requests, and once each of the doors is open."""
    if doors is not None:
        doors.check()
    with contextlib.closing(listening(http)) as opened, contextlib.ExitStack() as closing:
        server = SqlServer(terms, url(http, opened).partition("://")[2])
        try:
            await server.start()
            if terms.metrics is not None:
                measured = EngineSnapshots(server.engine)
                page = closing.enter_context(MetricsPage(terms.metrics, measured.families))
                _log.info("metrics_listener_opened", url=page.url)
                following = asyncio.create_task(measured.follow(), name="odradek-sql-metrics")
                closing.callback(following.cancel)
            if doors is not None:
                server.open_doors(doors, on_ready)
            is_loopback = opened.getsockname()[0] in ("127.0.0.1", "::1")
            limits = GateLimits(hosts=LOOPBACK if is_loopback else None)
            connections = SqlConnections()
            app = application(server, users, limits, connections)
            await serve_http(app, http, opened, ended, on_ready, connections)
        finally:
            await server.close()
