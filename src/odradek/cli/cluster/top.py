"""`odradek top`: what happens in a cluster now, from the metrics listeners of its brokers."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import click

from odradek.cli.broker import access_options, metrics_page
from odradek.cli.numbers import Real, Whole
from odradek.cli.output import RefreshingTable

COLUMNS: Final = ("what", "name", "records/s", "in B/s", "out B/s", "requests/s", "behind", "notes")
_SAMPLE: Final = re.compile(r"([a-z_]+)(?:\{(.*)\})? ([^ ]+)")
_LABEL: Final = re.compile(r'([a-z_]+)="((?:[^"\\]|\\.)*)"')
_ESCAPE: Final = re.compile(r"\\(.)")
_TOPICS: Final = "kafka_server_brokertopicmetrics_"
_REPLICAS: Final = "kafka_server_replicamanager_"
_GROUPS: Final = "kafka_consumergroup_"
_REQUESTS: Final = "kafka_network_requestmetrics_requests_total"
_READ: Final = frozenset(
    {
        f"{_TOPICS}messagesin_total", f"{_TOPICS}bytesin_total", f"{_TOPICS}bytesout_total",
        f"{_REPLICAS}leadercount", f"{_REPLICAS}underreplicatedpartitions", f"{_REPLICAS}offlinereplicacount",
        "kafka_network_socketserver_networkprocessoravgidle_percent", _REQUESTS,
        f"{_GROUPS}members", f"{_GROUPS}lag_sum", "odradek_consumergroup_lag_seconds_max",
        "odradek_client_requests", "odradek_client_bytes", "odradek_client_busy_seconds",
        "odradek_server_connections", "kafka_controller_kafkacontroller_activecontrollercount",
    }
)  # fmt: skip
"""The metrics that are shown. A line of another one costs a look at its name."""
Labels = tuple[tuple[str, str], ...]
Row = tuple[object, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsSnapshot:
    """The metrics of some brokers at one time."""

    at_s: float
    by_broker: Mapping[str, Mapping[str, Mapping[Labels, float]]] = field(default_factory=dict)
    """Values by the broker's address, name and labels."""

    def of(self, broker: str, name: str, **labels: str) -> float:
        """Returns the sum of a broker's values whose labels have these."""
        wanted = set(labels.items())
        values = self.by_broker.get(broker, {}).get(name, {})
        return sum(value for texts, value in values.items() if wanted <= set(texts))

    def whole(self, broker: str, name: str) -> float:
        """Returns a broker's value without labels: its sum over all topics."""
        return self.by_broker.get(broker, {}).get(name, {}).get((), 0.0)

    def total(self, name: str, **labels: str) -> float:
        return sum(self.of(broker, name, **labels) for broker in self.by_broker)

    def texts(self, name: str, label: str) -> set[str]:
        """Returns the values of a label."""
        values = (metrics.get(name, {}) for metrics in self.by_broker.values())
        return {text for series in values for labels in series for key, text in labels if key == label}


def samples(page: str) -> dict[str, dict[Labels, float]]:
    """Returns the shown metrics of a page in Prometheus' format, by name and labels."""
    read: dict[str, dict[Labels, float]] = {}
    for line in page.split("\n"):
        name = line[: min((end for end in (line.find("{"), line.find(" ")) if end > 0), default=0)]
        if name not in _READ or (parts := _SAMPLE.fullmatch(line)) is None:
            continue
        labels = tuple((key, _unescaped(text)) for key, text in _LABEL.findall(parts[2] or ""))
        read.setdefault(name, {})[labels] = float(parts[3])
    return read


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(lambda match: "\n" if match[1] == "n" else match[1], text)


def rows(before: MetricsSnapshot, now: MetricsSnapshot, *, limit: int) -> list[Row]:
    """Returns brokers, then the `limit` largest topics, groups and clients."""
    seconds = max(now.at_s - before.at_s, 1e-9)

    def rate(name: str, **labels: str) -> float:
        grown = now.total(name, **labels) - before.total(name, **labels)
        return max(grown, 0.0) / seconds  # a broker that was restarted begins at zero

    brokers = [_broker_row(before, now, broker, seconds) for broker in now.by_broker]
    topics = [
        (
            "topic",
            topic,
            round(rate(f"{_TOPICS}messagesin_total", topic=topic)),
            round(rate(f"{_TOPICS}bytesin_total", topic=topic)),
            round(rate(f"{_TOPICS}bytesout_total", topic=topic)),
            None,
            None,
            "",
        )
        for topic in now.texts(f"{_TOPICS}bytesin_total", "topic")
    ]
    groups = [_group_row(now, group) for group in now.texts(f"{_GROUPS}members", "consumergroup")]
    clients = [
        (
            "client",
            client,
            None,
            round(rate("odradek_client_bytes", client_id=client, direction="in")),
            round(rate("odradek_client_bytes", client_id=client, direction="out")),
            round(rate("odradek_client_requests", client_id=client)),
            None,
            f"{rate('odradek_client_busy_seconds', client_id=client):.0%} of a loop",
        )
        for client in now.texts("odradek_client_requests", "client_id")
    ]
    return [
        *brokers,
        *_largest(topics, limit, (3, 4)),
        *_largest(groups, limit, (6,)),
        *_largest(clients, limit, (3, 4)),
    ]


def _broker_row(before: MetricsSnapshot, now: MetricsSnapshot, broker: str, seconds: float) -> Row:
    busy = 1 - now.of(broker, "kafka_network_socketserver_networkprocessoravgidle_percent")
    notes = [f"{busy:.0%} busy", f"{now.of(broker, f'{_REPLICAS}leadercount'):.0f} led"]
    notes.append(f"{now.of(broker, 'odradek_server_connections'):.0f} connections")
    if now.of(broker, "kafka_controller_kafkacontroller_activecontrollercount"):
        notes.append("controller")
    for name, what in (("underreplicatedpartitions", "under-replicated"), ("offlinereplicacount", "offline")):
        if count := now.of(broker, f"{_REPLICAS}{name}"):
            notes.append(f"{count:.0f} {what}")
    moved = [
        max(now.whole(broker, name) - before.whole(broker, name), 0.0) / seconds
        for name in (f"{_TOPICS}messagesin_total", f"{_TOPICS}bytesin_total", f"{_TOPICS}bytesout_total")
    ]
    # `Fetch` is the sum of the fetches of consumers and followers, which have rows of their own.
    counts = [
        shown.of(broker, _REQUESTS) - shown.of(broker, _REQUESTS, request="Fetch") for shown in (before, now)
    ]
    requests = max(counts[1] - counts[0], 0.0) / seconds
    return ("broker", broker, *map(round, moved), round(requests), None, ", ".join(notes))


def _group_row(now: MetricsSnapshot, group: str) -> Row:
    members = now.total(f"{_GROUPS}members", consumergroup=group)
    lag = now.total(f"{_GROUPS}lag_sum", consumergroup=group)
    age_s = now.total("odradek_consumergroup_lag_seconds_max", consumergroup=group)
    return (
        "group",
        group,
        None,
        None,
        None,
        None,
        round(lag),
        f"{members:.0f} members, {age_s:.0f} s behind",
    )


def _largest(shown: Iterable[Row], limit: int, columns: Sequence[int]) -> list[Row]:
    def size(row: Row) -> tuple[float, str]:
        return -sum(float(str(row[column])) for column in columns), str(row[1])

    return sorted(shown, key=size)[:limit]


@click.command()
@click.option(
    "--metrics",
    "listeners",
    metavar="HOST:PORT",
    multiple=True,
    default=("127.0.0.1:9464",),
    show_default=True,
    help="The metrics listener of a broker; once for each broker.",
)
@access_options
@click.option(
    "--interval", type=Real(0.1), default=2.0, show_default=True, help="The seconds between two refreshes."
)
@click.option("--limit", type=Whole(1), default=10, show_default=True, help="At most this many of each kind.")
@click.option("--rounds", type=Whole(1), help="End after this many refreshes; without it, at Ctrl-C.")
def top(
    listeners: tuple[str, ...],
    token_file: str | None,
    ca: str | None,
    interval: float,
    limit: int,
    rounds: int | None,
) -> None:
    """Watch brokers, and the largest topics, groups and clients.

    Rates are those of the last interval. Name the metrics listener of every broker: each shows what it leads and coordinates.
    """

    def read() -> MetricsSnapshot:
        pages = {
            listener: samples(metrics_page(listener, "/metrics", token_file, ca).decode("utf-8", "replace"))
            for listener in listeners
        }
        return MetricsSnapshot(at_s=time.monotonic(), by_broker=pages)

    before = read()
    with RefreshingTable(COLUMNS) as table:
        shown_count = 0
        while rounds is None or shown_count < rounds:
            time.sleep(interval)
            now = read()
            table.show(
                rows(before, now, limit=limit), f"the last {interval:g} s of {len(listeners)} broker(s)"
            )
            before = now
            shown_count += 1
