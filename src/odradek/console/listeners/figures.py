"""The figures of metrics listeners, as pages show them: clients, slow requests, certificates. Pure; accepts any content.

The limits at which a figure is marked are the limits of the alerts in `deploy/prometheus/alerts.yml`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from odradek.console.model.snapshot import UNKNOWN
from odradek.console.model.troubles import Trouble, Urgency
from odradek.telemetry.scraped_metrics import (
    CLIENT_METRICS,
    IN_FLIGHT,
    ClientTraffic,
    InFlight,
    MetricsSnapshot,
    client_traffic,
    in_flight,
)

CERTIFICATES: Final = "odradek_certificate_expires_seconds"
TOKENS: Final = "odradek_delegation_token_expires_seconds"
IDLE: Final = "kafka_network_socketserver_networkprocessoravgidle_percent"
HEALING_DUE: Final = "odradek_controller_healing_due_seconds"
HEALING_PARTITIONS: Final = "odradek_controller_healing_partitions"
METRICS: Final = CLIENT_METRICS | {CERTIFICATES, TOKENS, IDLE, IN_FLIGHT, HEALING_DUE, HEALING_PARTITIONS}
CERTIFICATE_S: Final = 14 * 86_400.0
"""A certificate that ends sooner is a trouble, as for the alert CertificateEnds."""
TOKEN_S: Final = 3_600.0
FLOOD_SHARE: Final = 0.8
FLOOD_BYTES: Final = 10_000_000
"""A client floods if it moves this share of all bytes, and this number each second (the alert ClientFloods)."""
TROUBLES_MAX: Final = 20
STAGES: Final = ("queued", "handled", "waited", "response_queued", "sent")
"""The stages of a request, in their order."""
SLOW_MAX: Final = 200
"""The slow requests that a broker keeps; what a listener sends beyond is left out."""
TEXT_MAX: Final = 200
_WALL_MS_MAX: Final = 253_402_300_799_000
"""The end of the year 9999."""
_DAY_S: Final = 86_400
_MINUTE_S: Final = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerFigures:
    """The figures of all brokers' listeners at one time, and at the time before."""

    now: MetricsSnapshot
    before: MetricsSnapshot | None = None
    """The scrape before, if it is recent enough for rates."""
    brokers: Mapping[str, int] = field(default_factory=dict)
    """The id of the broker at each address; UNKNOWN where the listener does not report it."""
    problems: Sequence[str] = ()
    """The reasons why listeners were not read."""
    left_out: int = 0
    """The number of samples beyond the bound."""

    @property
    def span_s(self) -> float:
        """The seconds that rates are about; 0 without any."""
        return 0.0 if self.before is None else max(self.now.at_s - self.before.at_s, 0.0)

    def clients(self, address: str = "") -> list[ClientTraffic]:
        """Returns the clients of a broker, or of all; none before there were two scrapes."""
        if self.before is None:
            return []
        return client_traffic(self.before, self.now, [address] if address else None)

    def in_flight(self, address: str = "") -> dict[str, InFlight]:
        """Returns by client id the bytes in a broker, or in all."""
        return in_flight(self.now, [address] if address else None)

    def busy_brokers(self) -> dict[int, float]:
        """Returns by broker the share of the last minute in which its event loop used the CPU."""
        return {
            broker_id: min(max(1.0 - self.now.whole(address, IDLE), 0.0), 1.0)
            for address, broker_id in self.brokers.items()
            if broker_id >= 0 and IDLE in self.now.by_broker.get(address, {})
        }


class PlannedHealing(NamedTuple):
    """What the controller plans to make again of dead brokers, and what it makes now."""

    due_s: tuple[tuple[str, float], ...] = ()
    """Each dead broker, and the seconds until its replicas are made on others, the nearest first."""
    partition_count: int = 0
    """The number of partitions whose lost replicas are being made."""


def healing_plan(figures: ListenerFigures) -> PlannedHealing:
    """Returns the plan of the controller, whichever broker it is; others have none."""
    due_s = figures.now.earliest(HEALING_DUE, "broker")
    counts = [metrics.get(HEALING_PARTITIONS, {}).get((), 0.0) for metrics in figures.now.by_broker.values()]
    nearest = sorted((left_s, broker[:TEXT_MAX]) for broker, left_s in due_s.items())
    return PlannedHealing(
        tuple((broker, max(left_s, 0.0)) for left_s, broker in nearest[:TROUBLES_MAX]),
        round(max(counts, default=0.0)),
    )


class BusiestBroker(NamedTuple):
    """The broker at which a client moves most of its bytes, and the share of them."""

    address: str
    share: float


def busiest_brokers(figures: ListenerFigures) -> dict[str, BusiestBroker]:
    """Returns for each client where it moves the most bytes."""
    totals: dict[str, float] = {}
    largest: dict[str, tuple[float, str]] = {}
    for address in figures.now.by_broker:
        for client in figures.clients(address):
            moved = client.bytes_moved
            totals[client.client_id] = totals.get(client.client_id, 0.0) + moved
            if moved > largest.get(client.client_id, (0.0, ""))[0]:
                largest[client.client_id] = moved, address
    return {name: BusiestBroker(address, moved / totals[name]) for name, (moved, address) in largest.items()}


def flooding(clients: Iterable[ClientTraffic]) -> tuple[ClientTraffic, float] | None:
    """Returns the client that moves four fifths of all bytes, and its share; None if none does."""
    listed = list(clients)
    total = sum(client.bytes_moved for client in listed)
    largest = max(listed, key=lambda client: client.bytes_moved, default=None)
    if largest is None or largest.bytes_moved <= max(FLOOD_BYTES, FLOOD_SHARE * total):
        return None
    return largest, largest.bytes_moved / total


class CertificateEnd(NamedTuple):
    """The certificate of a listener, and the seconds until it ends: negative once it has ended."""

    address: str
    """The metrics listener of the broker that has it; empty for the console's own."""
    listener: str
    left_s: float

    @property
    def level(self) -> Urgency:
        return _level(self.left_s, CERTIFICATE_S)


def certificates_of(figures: ListenerFigures) -> list[CertificateEnd]:
    """Returns the certificates of all brokers, those that end first before the others."""
    ends = [
        CertificateEnd(address, dict(texts).get("listener", ""), left_s)
        for address, metrics in figures.now.by_broker.items()
        for texts, left_s in metrics.get(CERTIFICATES, {}).items()
    ]
    return sorted(ends, key=lambda end: (end.left_s, end.address, end.listener))


def token_level(left_s: float) -> Urgency:
    """Returns how urgent it is that a token ends after these seconds."""
    return _level(left_s, TOKEN_S)


def _level(left_s: float, soon_s: float) -> Urgency:
    if left_s <= 0:
        return Urgency.BAD
    return Urgency.WARNING if left_s < soon_s else Urgency.NOTE


def listener_troubles(figures: ListenerFigures) -> list[Trouble]:
    """Returns what the listeners show to be wrong: at most `TROUBLES_MAX` of each kind."""
    troubles = [*_ending_certificates(figures), *_ending_tokens(figures)]
    flood = flooding(figures.clients())
    if flood is not None:
        client, share = flood
        values: dict[str, str | int] = {
            "client": client.client_id[:TEXT_MAX],
            "percent": round(100 * share),
            "rate_bytes": round(client.bytes_moved),
        }
        troubles.append(Trouble(kind="client_floods", level=Urgency.WARNING, values=values, path="/traffic"))
    return troubles


def _ending_certificates(figures: ListenerFigures) -> Iterator[Trouble]:
    ending = [end for end in certificates_of(figures) if end.level > Urgency.NOTE]
    for end in ending[:TROUBLES_MAX]:
        broker = figures.brokers.get(end.address, UNKNOWN)
        values: dict[str, str | int] = {
            "listener": end.listener[:TEXT_MAX],
            "broker": broker if broker >= 0 else end.address,
            "days": int(abs(end.left_s) // _DAY_S),
        }
        kind = "certificate_ends" if end.left_s > 0 else "certificate_ended"
        yield Trouble(kind=kind, level=end.level, values=values, path="/people/certificates")


def _ending_tokens(figures: ListenerFigures) -> Iterator[Trouble]:
    ending = [
        (left_s, texts)
        for metrics in figures.now.by_broker.values()
        for texts, left_s in metrics.get(TOKENS, {}).items()
        if token_level(left_s) > Urgency.NOTE
    ]
    for left_s, texts in sorted(ending)[:TROUBLES_MAX]:
        labels = dict(texts)
        values: dict[str, str | int] = {
            "token": labels.get("token_id", "")[:TEXT_MAX],
            "owner": labels.get("owner", "")[:TEXT_MAX],
            "minutes": int(left_s // _MINUTE_S),
        }
        yield Trouble(kind="token_ends", level=Urgency.WARNING, values=values, path="/people/certificates")


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowRequestRow:
    """A slow request, as its broker describes it."""

    broker: str
    """The address of the broker's metrics listener."""
    at_ms: int
    request: str
    client_id: str
    peer: str
    total_ms: float
    stages_ms: tuple[float, ...]
    """The milliseconds of each stage of `STAGES`."""

    @property
    def longest(self) -> str:
        """The stage that took longest."""
        return STAGES[max(range(len(STAGES)), key=lambda index: self.stages_ms[index])]


def slow_requests_in(broker: str, content: bytes) -> list[SlowRequestRow]:
    """Returns the requests of a page `/slow`, at most `SLOW_MAX`, without entries that are none. ValueError: no JSON list."""
    try:
        listed = json.loads(content)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(listed, list):
        raise ValueError("expected a list")
    rows = (_slow_request(broker, entry) for entry in listed[:SLOW_MAX])
    return [row for row in rows if row is not None]


def _slow_request(broker: str, entry: object) -> SlowRequestRow | None:
    if not isinstance(entry, dict):
        return None
    total_ms = _milliseconds(entry.get("total_ms"))
    stages = [_milliseconds(entry.get(f"{stage}_ms")) for stage in STAGES]
    if total_ms is None or None in stages:
        return None
    at_ms = entry.get("at_ms")
    return SlowRequestRow(
        broker=broker,
        at_ms=at_ms if isinstance(at_ms, int) and 0 <= at_ms <= _WALL_MS_MAX else 0,
        request=f"{_text(entry.get('request'))} v{_text(entry.get('version'))}",
        client_id=_text(entry.get("client_id")),
        peer=_text(entry.get("peer")),
        total_ms=total_ms,
        stages_ms=tuple(stage for stage in stages if stage is not None),
    )


def _milliseconds(value: object) -> float | None:
    """Returns a time; None for what is none. Numbers of JSON may be infinite, or have thousands of digits."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if not 0 <= value <= _WALL_MS_MAX or not math.isfinite(value):
        return None
    return float(value)


def _text(value: object) -> str:
    return (
        value[:TEXT_MAX]
        if isinstance(value, str)
        else str(value)[:TEXT_MAX]
        if isinstance(value, int)
        else ""
    )


def stage_shares(rows: Iterable[SlowRequestRow]) -> list[tuple[str, float]]:
    """Returns each stage with its share of the time of these requests, the largest first."""
    sums = [0.0] * len(STAGES)
    for row in rows:
        for index, stage_ms in enumerate(row.stages_ms):
            sums[index] += stage_ms
    total = sum(sums) or 1.0
    return sorted(zip(STAGES, (part / total for part in sums), strict=True), key=lambda pair: -pair[1])
