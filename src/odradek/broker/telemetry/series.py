"""The values that clients pushed, as series. Used on the event loop.

Names and labels come from strangers: they are written as Prometheus wants them, a name that is not Kafka's gets a prefix of its
own, and the number of series of all clients together is bounded.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable
from typing import Final

from odradek.model.java_numbers import is_digits
from odradek.telemetry.metrics import Family, MetricKind, labels
from odradek.telemetry.otlp import Attributes, OtlpPoint, PointKind

_KAFKAS: Final = "org_apache_kafka_"
_OTHERS: Final = "client_telemetry_"
"""The prefix of metrics that do not have Kafka's names: it keeps them apart from the broker's own metrics."""
_UNFIT: Final = re.compile(r"[^a-zA-Z0-9_]")
_RESERVED_ENDS: Final = ("_total", "_created", "_bucket", "_info")
_STEP_POINTS: Final = 16
_KINDS: Final = {PointKind.GAUGE: MetricKind.GAUGE, PointKind.COUNTER: MetricKind.COUNTER}


class SeriesRoom:
    """The room for series of all clients."""

    def __init__(self, series_max: int) -> None:
        self._series_max: Final = series_max
        self.count = 0
        self.left_out_count = 0
        """The number of points that were unfit, or for which there was no room."""

    def enter(self) -> bool:
        """Returns whether there is room for one more series, and counts it."""
        if self.count >= self._series_max:
            self.left_out_count += 1
            return False
        self.count += 1
        return True


class ClientValue:
    """One series of a client."""

    __slots__ = ("family", "kind", "label_text", "name", "shown_labels", "value")

    def __init__(
        self, name: str, family: str, kind: PointKind, shown_labels: dict[str, str], label_text: str
    ) -> None:
        self.name: Final = name
        """The client's own name of it."""
        self.family: Final = family
        self.kind: Final = kind
        self.shown_labels: Final = shown_labels
        self.label_text: Final = label_text
        self.value = 0.0


class ClientSeries:
    """The series of one client."""

    def __init__(self, client_id: str, client_instance_id: str, room: SeriesRoom) -> None:
        self._client: Final = labels(client_id=client_id, client_instance_id=client_instance_id)
        self._room: Final = room
        self.values: Final[dict[tuple[PointKind, str, str], ClientValue]] = {}
        """The values, by kind, family and labels."""
        self.resource: Attributes = ()
        """The client's own labels, as it pushed them last."""

    def steps(self, points: Iterable[OtlpPoint]) -> Generator[None, None, None]:
        """Takes over points that were pushed; yields every few of them."""
        for count, point in enumerate(points):
            if count % _STEP_POINTS == 0:
                yield
            self._set(point)

    def _set(self, point: OtlpPoint) -> None:
        family = family_name(point.name, point.kind)
        shown = {label_name(key): value for key, value in point.attributes}
        text = ",".join([self._client, labels(**shown)]) if shown else self._client
        key = (point.kind, family, text)
        known = self.values.get(key)
        if known is None:
            if not self._room.enter():
                return
            known = self.values[key] = ClientValue(point.name, family, point.kind, shown, text)
        known.value = known.value + point.value if point.is_delta else point.value

    def clear(self) -> None:
        self._room.count -= len(self.values)
        self.values.clear()


def family_name(name: str, kind: PointKind) -> str:
    """Returns the name of a family: `org.apache.kafka.producer.record.send.total` is `org_apache_kafka_producer_record_send`.

    The text of a counter gets its `_total` back.
    """
    fit = _UNFIT.sub("_", name)
    if not fit.startswith(_KAFKAS):
        fit = f"{_OTHERS}{fit}"
    if kind is PointKind.COUNTER:
        return fit.removesuffix("_total")
    return f"{fit}_value" if fit.endswith(_RESERVED_ENDS) else fit


def label_name(key: str) -> str:
    """Returns the name of a label. It is never one of the broker's own."""
    fit = _UNFIT.sub("_", key)
    if fit.startswith(("client_id", "client_instance_id", "_")) or is_digits(fit[0]):
        return f"attribute_{fit}"
    return fit


def families_of(all_series: Iterable[ClientSeries]) -> Generator[None, None, list[Family]]:
    """Returns the families of all clients, by name. Where clients disagree about a kind, the later one has it in its name."""
    families: dict[str, Family] = {}
    for series in all_series:
        yield
        for value in list(series.values.values()):
            kind = _KINDS[value.kind]
            name = value.family
            if name in families and families[name].kind is not kind:
                name = f"{name}_{kind.value}"
            family = families.get(name)
            if family is None:
                family = Family(name=name, kind=kind, meaning="Pushed by clients (KIP-714).")
                families[name] = family
            family.add(value.value, value.label_text)
    return [families[name] for name in sorted(families)]
