"""The progress of a session's streaming queries as metrics: a listener of Spark's, and the page that shows them.

Spark calls the listener on a thread of its own when a batch ends. What it keeps of a query is one immutable value, replaced
as a whole; the thread of the metrics listener reads these. A query that has ended is forgotten. At most `QUERIES_MAX` are
kept.
"""

from __future__ import annotations

import json
import logging
import threading
from collections import deque
from contextlib import ExitStack
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from pyspark.sql.streaming.listener import StreamingQueryListener

from odradek.model.public import public
from odradek.net.metrics_page import MetricsPage, PageTerms
from odradek.runtime.ports import Clock
from odradek.runtime.real import SystemClock
from odradek.spark.query_figures import QUERIES_MAX, QueryFigures, SessionFigures, advanced, query_families
from odradek.telemetry.metrics import Family

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

log: Final = logging.getLogger("odradek.spark")


class QueryProgressListener(StreamingQueryListener):
    """Keeps the figures of a session's queries."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._queries: dict[str, QueryFigures] = {}
        self._ended: deque[str] = deque(maxlen=QUERIES_MAX)
        """The runs that ended last: Spark may report an end twice."""
        self._packing: frozenset[str] = frozenset()
        self._packing_output: frozenset[str] = frozenset()
        self._failed_count = 0
        self._left_out_count = 0

    def note_packing(self, name: str, *, sources: bool, output: bool) -> None:
        """Notes where the query that starts under this name packs many records in a row."""
        if sources:
            self._packing |= {name}
        if output:
            self._packing_output |= {name}

    def _new(self, name: str) -> QueryFigures:
        return QueryFigures(
            name=name, packs_records=name in self._packing, packs_output=name in self._packing_output
        )

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        with self._lock:
            if len(self._queries) >= QUERIES_MAX:
                self._left_out_count += 1
            else:
                self._queries[str(event.runId)] = self._new(event.name or str(event.id))

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        try:
            with self._lock:
                before = self._queries.get(str(event.progress.runId))
            if before is None:  # it ran before the listener was added, or there are too many
                if len(self._queries) >= QUERIES_MAX or str(event.progress.runId) in self._ended:
                    return
                before = self._new(event.progress.name or str(event.progress.id))
            progress = json.loads(event.progress.json)
            if progress["batchId"] <= before.batch_id:
                return  # Spark reports it a second time
            after = advanced(before, progress, self._clock.wall_ms())
        except Exception as error:  # noqa: BLE001 - the root of a listener: the query must not mind
            log.warning("the progress of query %s cannot be read: %s", event.progress.id, error)
            return
        with self._lock:
            self._queries[str(event.progress.runId)] = after

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - Spark's name
        with self._lock:
            figures = self._queries.get(str(event.runId))
            if figures is not None:
                now_ms = self._clock.wall_ms()
                self._queries[str(event.runId)] = replace(
                    figures, input_rows_per_s=0.0, processed_rows_per_s=0.0, progressed_at_ms=now_ms
                )

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        run_id = str(event.runId)
        with self._lock:
            self._queries.pop(run_id, None)
            if run_id not in self._ended:
                self._ended.append(run_id)
                self._failed_count += event.exception is not None

    def figures(self) -> SessionFigures:
        with self._lock:
            return SessionFigures(
                queries=tuple(self._queries.values()),
                failed_count=self._failed_count,
                left_out_count=self._left_out_count,
            )

    def families(self) -> list[Family]:
        return query_families(self.figures(), self._clock.wall_ms())


class SessionMetrics:
    """Serves the metrics of a session's queries from `__enter__` on, until `close`. One for each process."""

    def __init__(self, spark: SparkSession, terms: PageTerms, clock: Clock | None = None) -> None:
        self._spark = spark
        self._terms = terms
        self._listener = QueryProgressListener(clock or SystemClock())
        self._closing = ExitStack()
        self.url = ""
        """The address of `/metrics`, once it serves."""

    def __enter__(self) -> Self:
        with ExitStack() as closing:
            page = closing.enter_context(MetricsPage(self._terms, self._listener.families))
            self._spark.streams.addListener(self._listener)
            closing.callback(self._spark.streams.removeListener, self._listener)
            self.url = page.url
            self._closing = closing.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def note_packing(self, name: str, *, sources: bool, output: bool) -> None:
        """Notes where the query that starts under this name packs many records in a row of Spark's: at its sources, which are
        counted by offsets then, and at its output, which is not counted."""
        self._listener.note_packing(name, sources=sources, output=output)

    def close(self) -> None:
        """Stops the metrics of the session. Idempotent."""
        self._closing.close()


@public("odradek.spark")
def serve_metrics(
    spark: SparkSession,
    address: str,
    *,
    token_file: str | None = None,
    certificate: str | None = None,
    key: str | None = None,
) -> SessionMetrics:
    """Serves the metrics of all streaming queries of a session at http://ADDRESS/metrics, until the returned object is closed.

    `address`: HOST:PORT; without a host the loopback interface, port 0 any port. `token_file`: a file with a token on each
    line, one of which a request must show. `certificate`, `key`: PEM files, for https. ConfigError for what cannot be used.
    """
    terms = PageTerms.of(address, token_file=token_file, certificate=certificate, key=key)
    return SessionMetrics(spark, terms).__enter__()
