"""The metrics of clients as instruments of OpenTelemetry, under KIP-714's names; needs `odradek[otel]`.

    observer = MetricsObserver()         # of the application's meter provider
    observer.add(producer)

The reader of the meter provider asks for values at its own interval, on its own thread. A client is forgotten when nothing else
refers to it.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Final, Protocol
from weakref import WeakSet

from odradek.client.consumer.consumer_metrics import FETCHING
from odradek.client.network.metrics import MetricName
from odradek.client.network.metrics_push import telemetry_name
from odradek.model.errors import ConfigError
from odradek.model.version import __version__

try:
    from opentelemetry import metrics as api
except ImportError as missing:
    raise ConfigError(f"MetricsObserver needs more ({missing}): pip install 'odradek[otel]'") from None

_LAG: Final = MetricName(FETCHING, "records-lag")
"""It has samples once partitions are assigned."""
_COUNTER: Final = ".total"


class MeasuredClient(Protocol):
    """A client of Odradek."""

    def metrics(self) -> dict[MetricName, float]: ...


class MetricsObserver:
    """Shows the metrics of the clients that are added. Used on any thread."""

    def __init__(self, meter_provider: Any = None) -> None:
        """`meter_provider`: the application's global one if there is none."""
        self._meter = api.get_meter("odradek", __version__, meter_provider)
        self._clients: WeakSet[MeasuredClient] = WeakSet()
        self._known: set[str] = set()
        self._lock = threading.Lock()

    def add(self, client: MeasuredClient) -> None:
        names = {(metric.group, metric.name) for metric in client.metrics()}
        if any(group == FETCHING for group, _ in names):
            names.add((_LAG.group, _LAG.name))
        with self._lock:
            self._clients.add(client)
            for group, name in sorted(names):
                shown = telemetry_name(MetricName(group, name))
                if shown in self._known:
                    continue
                self._known.add(shown)
                observe: Callable[..., Iterable[api.Observation]] = partial(self._observe, group, name)
                make: Any = self._meter.create_observable_gauge
                if shown.endswith(_COUNTER):
                    make = self._meter.create_observable_counter
                make(shown, callbacks=[observe])

    def _observe(self, group: str, name: str, _options: object) -> Iterator[api.Observation]:
        with self._lock:
            clients = list(self._clients)
        for client in clients:
            for metric, value in client.metrics().items():
                if metric.group == group and metric.name == name and not math.isnan(value):
                    yield api.Observation(value, {key.replace("-", "."): text for key, text in metric.tags})
