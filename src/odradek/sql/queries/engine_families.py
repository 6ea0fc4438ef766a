"""The metrics of an SQL server: the states of its queries, and what its engine reports of them."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Final

from odradek.runtime.real_clock import SystemClock
from odradek.spark.query_figures import query_families
from odradek.sql.queries.engine import SqlEngine
from odradek.telemetry.metrics import Family, gauge, labels

QUERIES_MAX: Final = 500
"""The most persistent queries that have series of their own."""
_SNAPSHOT_S: Final = 1.0
_STATES: Final = ("STARTING", "RUNNING", "SLEEPING", "PAUSED", "ERROR", "TERMINATED")


def engine_families(engine: SqlEngine, now_ms: int) -> list[Family]:
    """Returns the families of an engine's queries. Called on the event loop. `now_ms`: milliseconds since 1970."""
    states = gauge("odradek_sql_queries", "Persistent queries by state.")
    failures = gauge("odradek_sql_query_failures_in_a_row", "Failures of a query since its last batch.")
    pushes = gauge("odradek_sql_push_queries", "Push queries that run in the engine.")
    runs = gauge("odradek_sql_engine_running", "1 while there is a process with Spark's JVM.")
    counts = Counter(query.state for query in engine.wanted.values())
    for state in _STATES:
        states.add(counts[state], labels(state=state))
    for query_id, query in list(engine.wanted.items())[:QUERIES_MAX]:
        failures.add(query.failure_count, labels(query=query_id))
    pushes.add(engine.push_count)
    runs.add(int(engine.process_id is not None))
    return [states, runs, pushes, failures, *query_families(engine.figures, now_ms)]


class EngineSnapshots:
    """The families of the engine's queries, made on the event loop every second, for the thread of the metrics listener."""

    def __init__(self, engine: SqlEngine) -> None:
        self._engine = engine
        self._clock = SystemClock()
        self._latest = engine_families(engine, self._clock.wall_ms())

    def families(self) -> list[Family]:
        return self._latest

    async def follow(self) -> None:
        while True:
            await asyncio.sleep(_SNAPSHOT_S)
            self._latest = engine_families(self._engine, self._clock.wall_ms())
