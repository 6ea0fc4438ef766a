"""Reads what brokers write at `/metrics`: samples of chosen metrics, and the rates between two scrapes. A core: no I/O.

A page arrives in pieces, and only samples of chosen metrics stay in memory, so a page of 10,000 topics costs little. The page
may come from anyone: the length of a line and the number of series are bounded, and what is no sample is left out.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from odradek.model.errors import OdradekError
from odradek.model.java_numbers import double_number

SERIES_MAX: Final = 500_000
"""The most series of one page: as many as a broker writes at most, unless `odradek.metrics.series.max` is larger."""
LINE_BYTES_MAX: Final = 256 << 10
"""The longest line: a client id has at most 32 KiB, and an escape doubles it."""
CLIENT_METRICS: Final = frozenset(
    {"odradek_client_requests", "odradek_client_bytes", "odradek_client_busy_seconds"}
)
"""The metrics of the largest clients, over their open connections."""
IN_FLIGHT: Final = "odradek_client_in_flight_bytes"
"""What of the largest clients' requests and responses is in a broker now."""
_VALUE_MAX: Final = 1e21
"""No figure of a broker is larger; sums and differences of such values are finite. What is no number compares as false."""
_NAME: Final = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL: Final = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')
_ESCAPE: Final = re.compile(r"\\(.)")
Labels = tuple[tuple[str, str], ...]


class ScrapeError(OdradekError):
    """A page is not in Prometheus' format."""


class ScrapedSamples:
    """Collects the samples of some metrics from a page that arrives in pieces."""

    def __init__(self, names: Collection[str], *, series_max: int = SERIES_MAX) -> None:
        self._names = {name.encode() for name in names}
        self._series_max = series_max
        self._rest = b""
        self._series_count = 0
        self.by_name: Final[dict[str, dict[Labels, float]]] = {}
        """Values by the metric's name and its labels."""
        self.left_out = 0
        """The number of samples beyond the bound."""

    def feed(self, piece: bytes) -> None:
        """Reads the next bytes of the page. Raises ScrapeError at a line that is longer than any of a broker."""
        lines = (self._rest + piece).split(b"\n")
        self._rest = lines.pop()
        if len(self._rest) > LINE_BYTES_MAX:
            raise ScrapeError(f"a line has more than {LINE_BYTES_MAX} bytes: this is no page of metrics")
        for line in lines:
            self._read(line)

    def end(self) -> None:
        """Reads the last line, which may lack its line end."""
        line, self._rest = self._rest, b""
        self._read(line)

    def _read(self, line: bytes) -> None:
        ends = [end for end in (line.find(b"{", 0, 256), line.find(b" ", 0, 256)) if end > 0]
        if not ends or line[: min(ends)] not in self._names:
            return
        sample = _sample(line.decode("utf-8", "replace"))
        if sample is None:
            return
        name, labels, value = sample
        series = self.by_name.setdefault(name, {})
        if labels not in series:
            if self._series_count >= self._series_max:
                self.left_out += 1
                return
            self._series_count += 1
        series[labels] = value


def _sample(line: str) -> tuple[str, Labels, float] | None:
    """Returns the name, the labels and the value of a line; None for one that is no sample, or whose value is no number.

    It reads from left to right, so that no line takes longer than its length.
    """
    name = _NAME.match(line)
    if name is None:
        return None
    position, labels = name.end(), []
    if line[position : position + 1] == "{":
        position += 1
        while (label := _LABEL.match(line, position)) is not None:
            labels.append((label[1], _unescaped(label[2])))
            position = label.end()
            if line[position : position + 1] == ",":
                position += 1
        if line[position : position + 1] != "}":
            return None
        position += 1
    words = line[position:].split()
    try:
        value = double_number(words[0])
    except (IndexError, ValueError):
        return None
    return (name[0], tuple(labels), value) if abs(value) <= _VALUE_MAX else None


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(lambda match: "\n" if match[1] == "n" else match[1], text)


def samples(page: bytes, names: Collection[str]) -> Mapping[str, Mapping[Labels, float]]:
    """Returns the samples of these metrics in a whole page, by name and labels."""
    scraped = ScrapedSamples(names)
    scraped.feed(page)
    scraped.end()
    return scraped.by_name


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsSnapshot:
    """The metrics of some brokers at one time."""

    at_s: float
    by_broker: Mapping[str, Mapping[str, Mapping[Labels, float]]] = field(default_factory=dict)
    """Values by the address of the broker's metrics listener, name and labels."""

    def of(self, broker: str, name: str, **labels: str) -> float:
        """Returns the sum of a broker's values whose labels have these."""
        wanted = set(labels.items())
        values = self.by_broker.get(broker, {}).get(name, {})
        return sum(value for texts, value in values.items() if wanted <= set(texts))

    def whole(self, broker: str, name: str) -> float:
        """Returns a broker's value without labels: its sum over all topics."""
        return self.by_broker.get(broker, {}).get(name, {}).get((), 0.0)

    def sums(self, name: str, label: str) -> dict[str, float]:
        """Returns the sums over all brokers, for each value of a label."""
        sums: dict[str, float] = {}
        for metrics in self.by_broker.values():
            for texts, value in metrics.get(name, {}).items():
                for key, text in texts:
                    if key == label:
                        sums[text] = sums.get(text, 0.0) + value
        return sums

    def earliest(self, name: str, label: str) -> dict[str, float]:
        """Returns the smallest value in all brokers, for each value of a label."""
        least: dict[str, float] = {}
        for metrics in self.by_broker.values():
            for texts, value in metrics.get(name, {}).items():
                text = dict(texts).get(label)
                if text is not None:
                    least[text] = min(value, least.get(text, value))
        return least


class ClientTraffic(NamedTuple):
    """What one client did between two scrapes, each second."""

    client_id: str
    bytes_in: float
    """Bytes that brokers received from it."""
    bytes_out: float
    requests: float
    busy: float
    """The share of one event loop that its requests used: 1 is a whole CPU."""

    @property
    def bytes_moved(self) -> float:
        return self.bytes_in + self.bytes_out


class InFlight(NamedTuple):
    """The bytes of one client in brokers at one time."""

    request_bytes: float = 0.0
    """Of requests that come in, wait or are being handled."""
    response_bytes: float = 0.0
    """Of responses that the client has not taken yet."""

    @property
    def total_bytes(self) -> float:
        return self.request_bytes + self.response_bytes


def in_flight(now: MetricsSnapshot, brokers: Iterable[str] | None = None) -> dict[str, InFlight]:
    """Returns by client id what is in these brokers, by default in all."""
    sums: dict[str, InFlight] = {}
    for broker in now.by_broker if brokers is None else brokers:
        for texts, value in now.by_broker.get(broker, {}).get(IN_FLIGHT, {}).items():
            labels, count = dict(texts), max(value, 0.0)
            known = sums.get(labels.get("client_id", ""), InFlight())
            if labels.get("direction") == "in":
                known = known._replace(request_bytes=known.request_bytes + count)
            else:
                known = known._replace(response_bytes=known.response_bytes + count)
            sums[labels.get("client_id", "")] = known
    return sums


def client_traffic(
    before: MetricsSnapshot, now: MetricsSnapshot, brokers: Iterable[str] | None = None
) -> list[ClientTraffic]:
    """Returns the clients of these brokers, by default of all, that both snapshots have.

    Brokers show sums over open connections of their largest clients. So a client that only the later snapshot has is left
    out: it may have done all of it long before. A sum that has become smaller counts as no traffic.
    """
    seconds = max(now.at_s - before.at_s, 1e-9)
    rates: dict[str, dict[tuple[str, str], float]] = {}
    for broker in now.by_broker if brokers is None else brokers:
        earlier, later = before.by_broker.get(broker, {}), now.by_broker.get(broker, {})
        for name in CLIENT_METRICS:
            known = earlier.get(name, {})
            for texts, value in later.get(name, {}).items():
                if texts not in known:
                    continue
                labels = dict(texts)
                sums = rates.setdefault(labels.get("client_id", ""), {})
                key = name, labels.get("direction", "")
                sums[key] = sums.get(key, 0.0) + max(value - known[texts], 0.0) / seconds
    return [
        ClientTraffic(
            client_id,
            sums.get(("odradek_client_bytes", "in"), 0.0),
            sums.get(("odradek_client_bytes", "out"), 0.0),
            sums.get(("odradek_client_requests", ""), 0.0),
            sums.get(("odradek_client_busy_seconds", ""), 0.0),
        )
        for client_id, sums in rates.items()
    ]
