"""`odradek top`: rates of brokers, topics, groups and clients between two looks, read from what a broker writes."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from odradek.cli.cluster.top import METRICS, rows
from odradek.telemetry.exposition import written
from odradek.telemetry.metrics import Family, counter, gauge, labels
from odradek.telemetry.scraped_metrics import MetricsSnapshot, samples

TOPICS = "kafka_server_brokertopicmetrics_"


def page(records: int, *, sizes: dict[str, int], lag: int = 0, requests: int = 0) -> bytes:
    families: list[Family] = []
    for name, factor in (("messagesin", 1), ("bytesin", 100), ("bytesout", 50)):
        family = counter(f"{TOPICS}{name}", "?")
        family.add(records * factor)
        for topic, size in sizes.items():
            family.add(size * factor, labels(topic=topic))
        families.append(family)
    for name, value, text in (
        ("kafka_consumergroup_members", 2, labels(consumergroup="readers")),
        ("kafka_consumergroup_lag_sum", lag, labels(consumergroup="readers", topic="a")),
        ("odradek_client_requests", requests, labels(client_id="loader")),
        ("odradek_client_bytes", requests * 10, labels(client_id="loader", direction="in")),
        ("odradek_client_busy_seconds", requests / 100, labels(client_id="loader")),
        ("kafka_server_replicamanager_underreplicatedpartitions", 3, ""),
        ("kafka_topic_partition_leader", 1, labels(topic="a", partition=0)),
    ):
        family = gauge(name, "?")
        family.add(value, text)
        families.append(family)
    asked = counter("kafka_network_requestmetrics_requests", "?")
    for request in ("Fetch", "FetchConsumer", "Produce"):
        asked.add(requests, labels(request=request, version=1))
    return written([*families, asked])


def snapshot(at_s: float, *pages: bytes) -> MetricsSnapshot:
    return MetricsSnapshot(
        at_s=at_s, by_broker={f"b{number}": samples(text, METRICS) for number, text in enumerate(pages)}
    )


def test_rates_are_those_between_two_looks_and_add_up_over_brokers() -> None:
    before = snapshot(10.0, page(100, sizes={"a": 60, "b": 40}), page(0, sizes={}))
    later = page(300, sizes={"a": 80, "b": 220}, lag=7, requests=20)
    after = snapshot(12.0, later, page(10, sizes={"a": 10}))
    shown: dict[Any, Any] = {(row[0], row[1]): row[2:] for row in rows(before, after, limit=5)}
    assert shown["broker", "b0"][:4] == (100, 10_000, 5_000, 20), "fetches count once"
    assert "3 under-replicated" in shown["broker", "b0"][-1]
    assert shown["broker", "b1"][:3] == (5, 500, 250)
    assert shown["topic", "a"][:3] == (15, 1_500, 750)
    assert shown["topic", "b"][:3] == (90, 9_000, 4_500)
    assert shown["group", "readers"][-2:] == (7, "4 members, 0 s behind")
    assert shown["client", "loader"][:4] == (None, 100, 0, 10)
    assert shown["client", "loader"][-1] == "10% of a loop"


def test_the_largest_come_first_and_the_rest_is_left_out() -> None:
    before = snapshot(0.0, page(0, sizes={}))
    after = snapshot(1.0, page(60, sizes={"small": 10, "large": 30, "middle": 20}))
    assert [row[1] for row in rows(before, after, limit=2) if row[0] == "topic"] == ["large", "middle"]


def test_a_broker_that_was_restarted_has_no_negative_rates() -> None:
    before, after = snapshot(0.0, page(100, sizes={"a": 100})), snapshot(1.0, page(1, sizes={"a": 1}))
    assert all(
        float(str(value)) >= 0
        for row in rows(before, after, limit=5)
        for value in row[2:7]
        if value is not None
    )


@given(st.dictionaries(st.text(max_size=8), st.integers(0, 9), max_size=4))
def test_names_are_read_as_they_were_written(sizes: dict[str, int]) -> None:
    read = samples(page(0, sizes=sizes), METRICS)[f"{TOPICS}messagesin_total"]
    shown = {dict(texts)["topic"]: value for texts, value in read.items() if texts}
    assert shown == {name.encode("utf-8", "replace").decode(): size for name, size in sizes.items()}
