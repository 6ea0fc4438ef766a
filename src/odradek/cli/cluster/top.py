"""`odradek top`: what happens in a cluster now, from the metrics listeners of its brokers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from typing import Final

import click

from odradek.cli.broker import access_options, listener_address
from odradek.cli.numbers import Real, Whole
from odradek.cli.output import RefreshingTable
from odradek.net.listener_pages import ListenerAccess, ListenerAddress, read_page
from odradek.telemetry.scraped_metrics import (
    CLIENT_METRICS,
    MetricsSnapshot,
    ScrapedSamples,
    client_traffic,
)

COLUMNS: Final = ("what", "name", "records/s", "in B/s", "out B/s", "requests/s", "behind", "notes")
_TOPICS: Final = "kafka_server_brokertopicmetrics_"
_REPLICAS: Final = "kafka_server_replicamanager_"
_GROUPS: Final = "kafka_consumergroup_"
_REQUESTS: Final = "kafka_network_requestmetrics_requests_total"
METRICS: Final = CLIENT_METRICS | {
    f"{_TOPICS}messagesin_total", f"{_TOPICS}bytesin_total", f"{_TOPICS}bytesout_total",
    f"{_REPLICAS}leadercount", f"{_REPLICAS}underreplicatedpartitions", f"{_REPLICAS}offlinereplicacount",
    "kafka_network_socketserver_networkprocessoravgidle_percent", _REQUESTS,
    f"{_GROUPS}members", f"{_GROUPS}lag_sum", "odradek_consumergroup_lag_seconds_max",
    "odradek_server_connections", "kafka_controller_kafkacontroller_activecontrollercount",
}  # fmt: skip
"""The metrics that are shown. A line of another one costs a look at its name."""
Row = tuple[object, ...]


def rows(before: MetricsSnapshot, now: MetricsSnapshot, *, limit: int) -> list[Row]:
    """Returns brokers, then the `limit` largest topics, groups and clients."""
    seconds = max(now.at_s - before.at_s, 1e-9)
    brokers = [_broker_row(before, now, broker, seconds) for broker in now.by_broker]
    clients = [
        (
            "client",
            client.client_id,
            None,
            round(client.bytes_in),
            round(client.bytes_out),
            round(client.requests),
            None,
            f"{client.busy:.0%} of a loop",
        )
        for client in client_traffic(before, now)
    ]
    return [
        *brokers,
        *_largest(_topic_rows(before, now, seconds), limit, (3, 4)),
        *_largest(_group_rows(now), limit, (6,)),
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


def _topic_rows(before: MetricsSnapshot, now: MetricsSnapshot, seconds: float) -> list[Row]:
    names = (f"{_TOPICS}messagesin_total", f"{_TOPICS}bytesin_total", f"{_TOPICS}bytesout_total")
    earlier = [before.sums(name, "topic") for name in names]
    later = [now.sums(name, "topic") for name in names]
    return [
        (
            "topic",
            topic,
            *(
                round(max(ends.get(topic, 0.0) - starts.get(topic, 0.0), 0.0) / seconds)
                for starts, ends in zip(earlier, later, strict=True)
            ),
            None,
            None,
            "",
        )
        for topic in later[1]
    ]


def _group_rows(now: MetricsSnapshot) -> list[Row]:
    lags = now.sums(f"{_GROUPS}lag_sum", "consumergroup")
    ages_s = now.sums("odradek_consumergroup_lag_seconds_max", "consumergroup")
    return [
        (
            "group",
            group,
            None,
            None,
            None,
            None,
            round(lags.get(group, 0.0)),
            f"{members:.0f} {'member' if members == 1 else 'members'}, {ages_s.get(group, 0.0):.0f} s behind",
        )
        for group, members in now.sums(f"{_GROUPS}members", "consumergroup").items()
    ]


def _largest(shown: Iterable[Row], limit: int, columns: Sequence[int]) -> list[Row]:
    def size(row: Row) -> tuple[float, str]:
        return -sum(float(str(row[column])) for column in columns), str(row[1])

    return sorted(shown, key=size)[:limit]


async def _scraped(addresses: Sequence[ListenerAddress], access: ListenerAccess) -> MetricsSnapshot:
    """Returns the metrics of all brokers, which are asked at the same time. Raises ListenerPageError, ScrapeError."""
    pages = [ScrapedSamples(METRICS) for _ in addresses]
    await asyncio.gather(
        *(
            read_page(address, "/metrics", access, page.feed)
            for address, page in zip(addresses, pages, strict=True)
        )
    )
    for page in pages:
        page.end()
    by_broker = {str(address): page.by_name for address, page in zip(addresses, pages, strict=True)}
    return MetricsSnapshot(at_s=time.monotonic(), by_broker=by_broker)


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

    Rates cover the last interval. Name the metrics listener of every broker: each shows what it leads and
    coordinates.
    """
    addresses = [listener_address(text) for text in listeners]
    access = ListenerAccess(token_file=token_file, ca=ca)
    before = asyncio.run(_scraped(addresses, access))
    with RefreshingTable(COLUMNS) as table:
        shown_count = 0
        while rounds is None or shown_count < rounds:
            time.sleep(interval)
            now = asyncio.run(_scraped(addresses, access))
            table.show(
                rows(before, now, limit=limit), f"the last {interval:g} s of {len(listeners)} broker(s)"
            )
            before = now
            shown_count += 1
