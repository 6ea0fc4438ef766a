"""The parts of a server that statements work with. The server makes them, and none of them refers to the server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from odradek.client.producer.aio import AsyncProducer
from odradek.sql.metastore.catalog import Catalog
from odradek.sql.queries.engine import SqlEngine
from odradek.sql.queries.scan import TopicReading
from odradek.sql.queries.tables import TableViews
from odradek.sql.server.beside import StatementThreads
from odradek.sql.server.command_log.command_topic import CommandTopic
from odradek.sql.server.command_log.state import ServiceState
from odradek.sql.server.entities import QueryHealth
from odradek.sql.server.schemas import StatementSchemas
from odradek.sql.server.topics.error_statistics import ErrorStatistics
from odradek.sql.server.topics.source_topics import SourceTopics


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerParts:
    """The parts of an SQL server that statements use.

    `broker_settings`: the brokers' addresses, and the settings for logging in, by Kafka's names. `archive_endpoints`: the
    stores that a statement may name. `shown_properties`: the server's own properties, for SHOW PROPERTIES."""

    state: ServiceState
    commands: CommandTopic
    engine: SqlEngine
    topics: SourceTopics
    views: TableViews
    producer: AsyncProducer
    schemas: StatementSchemas
    threads: StatementThreads
    broker_settings: tuple[str, Mapping[str, str]] = field(repr=False)
    archive_endpoints: frozenset[str]
    shown_properties: Mapping[str, str]
    error_statistics: ErrorStatistics
    address: str
    """The address where requests arrive, as HOST:PORT."""

    @property
    def catalog(self) -> Catalog:
        """The catalog as it is now."""
        return self.state.catalog

    def health(self, query_id: str) -> QueryHealth:
        """Returns how a query fares in the engine."""
        return QueryHealth.of(self.engine.wanted.get(query_id))

    async def reading(self, topic: str) -> TopicReading:
        """Returns all records of a topic, from its beginning; `ends` is where it ends now."""
        return await TopicReading.begin(
            self.topics.servers, self.topics.settings, topic, earliest=True, to_end=True
        )
