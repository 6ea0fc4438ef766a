"""Publishing what queries have read the moment that a batch ends: a listener in the program that runs them.

Without it a query's position is committed when Spark asks for the next batch: with a long trigger interval, that much later.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from pyspark.sql.streaming.listener import StreamingQueryListener

from odradek.client.groups.values import OffsetsToCommit
from odradek.model.errors import ConfigError
from odradek.model.public import public
from odradek.runtime.ports import Clock
from odradek.runtime.real import SystemClock
from odradek.spark.clients import connections
from odradek.spark.engine.catalyst import streaming_leaves
from odradek.spark.options.option_table import Use
from odradek.spark.options.options import read_options
from odradek.spark.publishing import OffsetPublisher
from odradek.spark.reading.offsets import from_document

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

log: Final = logging.getLogger("odradek.spark")

FORMAT: Final = "odradek"
Committing = Callable[[Mapping[str, str]], Callable[[str, OffsetsToCommit], None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedSource:
    """A source of a query: where its offsets go. `group` is None where no one asked for that, or the source is not ours."""

    group: str | None
    client: Mapping[str, str] = field(repr=False)

    @classmethod
    def of(cls, name: str, options: Mapping[str, str]) -> PublishedSource:
        """Returns the source that a query's plan describes by a name and the options of its `readStream`."""
        if name != FORMAT:
            return cls(group=None, client={})
        checked = read_options(options, Use.STREAM_READ)
        return cls(group=checked.publish_group, client=checked.client)


class QueryPublishers:
    """The publishers of one query, in the order in which Spark reports its sources."""

    def __init__(self, sources: list[PublishedSource], committing: Committing, clock: Clock) -> None:
        self._publishers = [
            OffsetPublisher(source.group, committing(source.client), clock)
            if source.group is not None
            else None
            for source in sources
        ]

    def publish(self, ends: list[str | None]) -> None:
        """Publishes the position. `ends`: each source's offset after the batch that has ended, as JSON."""
        if len(ends) != len(self._publishers):
            return  # the planner publishes them a little later, and knows each source for itself
        for publisher, end in zip(self._publishers, ends, strict=True):
            if publisher is not None and end is not None:
                publisher.publish(from_document(json.loads(end)))


class LagListener(StreamingQueryListener):
    """Commits a query's offsets to its consumer group when a batch ends, so that tools show its consumer lag."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._queries: dict[str, QueryPublishers] = {}

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        try:
            sources = _sources(self._spark, str(event.id))
            self._queries[str(event.runId)] = QueryPublishers(sources, connections.committing, SystemClock())
        except Exception as error:  # noqa: BLE001 - the root of a listener: the query must not mind
            log.warning("publishOffsets: query %s is published with a delay: %s", event.id, error)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        publishers = self._queries.get(str(event.progress.runId))
        if publishers is not None:
            try:
                publishers.publish([source.endOffset for source in event.progress.sources])
            except (ConfigError, ValueError) as error:
                log.warning(
                    "publishOffsets: an offset of query %s is unreadable: %s", event.progress.id, error
                )

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - Spark's name
        """Does nothing: an idle query has read nothing."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        self._queries.pop(str(event.runId), None)


@public("odradek.spark")
def publish_offsets(spark: SparkSession) -> LagListener:
    """Commits what this session's queries have read when each later batch ends, where `publishOffsets` asks for it.

    Only needed with trigger intervals of many seconds. Returns the listener, for `spark.streams.removeListener`.
    """
    listener = LagListener(spark)
    spark.streams.addListener(listener)
    return listener


def _sources(spark: SparkSession, query_id: str) -> list[PublishedSource]:
    """Returns the sources of a running query. Those that are the same Spark reads once, and reports once."""
    query = spark.streams.get(query_id)
    assert query is not None, query_id
    sources: dict[tuple[str, tuple[tuple[str, str], ...]], PublishedSource] = {}
    for kind, options in streaming_leaves(query):
        sources[kind, tuple(sorted(options.items()))] = PublishedSource.of(kind, options)
    return list(sources.values())
