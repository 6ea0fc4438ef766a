"""What this broker sends to an OpenTelemetry collector: spans of traced records, and its metrics at intervals.

Metrics are collected on the broker's loop as a scrape collects them, and sent on a thread of their own: a collector that is
slow or away costs the broker nothing but lines in its log.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Final

from odradek.broker.instruments.record_traces import RecordTraces
from odradek.broker.metrics.collection import MeasuredBroker, MetricsCollection
from odradek.config.broker import BrokerConfig
from odradek.config.listening.listeners import checked_http_address
from odradek.runtime.ports import Runtime
from odradek.telemetry import events
from odradek.telemetry.metrics import Family, bounded
from odradek.telemetry.opentelemetry_export import ExportOrigin, OtlpMetrics, OtlpSpans
from odradek.telemetry.process_metrics import process_families

_log = events.get("broker")
_COLLECTION_SECONDS_MAX: Final = 10.0
_NS_PER_MS: Final = 1_000_000


class OtlpExport:
    """Exports from `start` to `close`. Both are called on the broker's loop, `start` before the broker starts."""

    def __init__(self, broker: MeasuredBroker, config: BrokerConfig, runtime: Runtime) -> None:
        """ConfigError for an endpoint that is none, or without the packages."""
        endpoint = checked_http_address("odradek.otlp.endpoint", config.otlp.endpoint)
        node_id = config.server.node_id
        origin = ExportOrigin(
            service="odradek-broker", instance=str(node_id), attributes={"odradek.broker.id": node_id}
        )
        self._broker = broker
        self._config = config.otlp
        self._wall_ms = runtime.clock.wall_ms
        self._loop = asyncio.get_running_loop()
        self._spans = OtlpSpans(endpoint, origin)
        self._metrics = OtlpMetrics(endpoint, origin, start_ns=self._wall_ms() * _NS_PER_MS)
        self._collection = MetricsCollection(broker)
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="odradek-otlp", daemon=True)
        if config.otlp.traced_records_per_second_max > 0:
            broker.traces = RecordTraces(self._spans, runtime, config.otlp, broker_id=node_id)

    def start(self) -> None:
        if self._config.metrics_interval_ms > 0:
            self._thread.start()

    async def close(self) -> None:
        """Sends what waits, for a few seconds at most."""
        self._ending.set()
        await self._aside(self._metrics.close)
        await self._aside(self._spans.close)
        if self._thread.ident is not None:
            await self._aside(self._thread.join, 1.0)

    async def _aside(self, work: Callable[..., object], *arguments: object) -> None:
        await self._loop.run_in_executor(None, work, *arguments)

    # -- on the thread of exports

    def _run(self) -> None:
        while not self._ending.wait(self._config.metrics_interval_ms / 1_000):
            try:
                self._send()
            except Exception:  # noqa: BLE001 - the root of a thread: the next round may succeed
                if not self._ending.is_set():
                    _log.exception("otlp_metrics_failed", endpoint=self._config.endpoint)

    def _send(self) -> None:
        families = self._collected()
        if families is None:
            return
        shown = bounded([*families, *process_families()], self._config.metrics_series_max)
        if not self._metrics.export(shown, self._wall_ms() * _NS_PER_MS) and not self._ending.is_set():
            _log.warning("otlp_metrics_not_sent", endpoint=self._config.endpoint)

    def _collected(self) -> list[Family] | None:
        """Returns the broker's families; None while it does not serve, or its loop takes too long."""
        pending = asyncio.run_coroutine_threadsafe(self._collect(), self._loop)
        try:
            return pending.result(_COLLECTION_SECONDS_MAX)
        except TimeoutError:
            pending.cancel()
            return None

    async def _collect(self) -> list[Family] | None:
        return await self._collection.collected() if self._broker.is_serving else None
