"""Figures of requests: quantiles of the last minute, versions that strangers make up, and answers that come later."""

from __future__ import annotations

import asyncio
import math
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.broker.instruments.requests import ApiFigures, RequestFigures, quantile_of
from odradek.broker.instruments.slow_requests import SlowRequests
from odradek.broker.instruments.traffic import BrokerTraffic
from odradek.net.connection_owner import AnswerObserver, ConnectionFigures
from odradek.net.replies import HeldReply, Reply
from odradek.protocol.api import BROKER_SOFTWARE
from odradek.runtime.turns import in_one_go
from odradek.telemetry.metrics import LATENCY_BOUNDS_S, Histogram

CLIENT: Any = SimpleNamespace(
    client_software=("librdkafka", "2"), figures=ConnectionFigures(), peer="127.0.0.1:5"
)
FOLLOWER: Any = SimpleNamespace(client_software=(BROKER_SOFTWARE, "1"), figures=ConnectionFigures())


NAMES = {0: "Produce", 1: "Fetch"}


def frame(api_key: int, version: int) -> bytes:
    return api_key.to_bytes(2, "big") + version.to_bytes(2, "big", signed=True) + bytes(8)


def samples(figures: RequestFigures) -> dict[tuple[str, str], Any]:
    return {(family.name, text): value for family in figures.families() for text, value in family.samples}


@given(
    st.lists(st.floats(min_value=0.0, max_value=LATENCY_BOUNDS_S[-1]), min_size=1, max_size=200),
    st.floats(min_value=0.01, max_value=1.0),
)
def test_a_quantile_is_within_the_bucket_of_the_value_that_it_stands_for(
    values: list[float], quantile: float
) -> None:
    times = Histogram()
    for value in values:
        times.add(value)
    exact = sorted(values)[max(math.ceil(len(values) * quantile) - 1, 0)]
    bounds = (0.0, *LATENCY_BOUNDS_S)
    upper = next(bound for bound in bounds[1:] if exact <= bound)
    lower = bounds[bounds.index(upper) - 1]
    assert lower - 1e-9 <= quantile_of(times, quantile) <= upper + 1e-9


def test_nothing_and_more_than_the_last_bound_have_quantiles_too() -> None:
    times = Histogram()
    assert quantile_of(times, 0.99) == 0.0
    times.add(1e6)
    assert quantile_of(times, 0.99) == LATENCY_BOUNDS_S[-1]


def test_what_was_slow_long_ago_leaves_the_quantiles() -> None:
    figures = ApiFigures()
    figures.seconds.add(9.0)
    assert quantile_of(figures.lately(0.0)[0], 0.99) > 5
    for second in range(10, 200, 10):
        figures.seconds.add(0.0004)
        lately = figures.lately(float(second))[0]
    assert quantile_of(lately, 0.99) < 0.001
    assert figures.seconds.count == 20


def test_times_without_a_new_request_are_those_of_before() -> None:
    figures = ApiFigures()
    figures.seconds.add(9.0)
    for second in range(0, 300, 10):
        assert quantile_of(figures.lately(float(second))[0], 0.5) > 5


@pytest.mark.parametrize("version", [3, 4, 99, -5, 32767])
def test_versions_that_no_one_serves_are_one_series(version: int) -> None:
    figures = RequestFigures(lambda: 0.0)
    figures.answered(CLIENT, frame(18, version), [b"x"], 0.0)
    shown = version if version in (3, 4) else -1
    text = f'request="ApiVersions",version="{shown}"'
    assert samples(figures)["kafka_network_requestmetrics_requests", text] == 1


def test_followers_fetches_are_apart_and_fetch_is_the_sum() -> None:
    figures = RequestFigures(lambda: 0.0)
    for connection in (CLIENT, FOLLOWER, FOLLOWER):
        figures.answered(connection, frame(1, 12), [b"x"], 0.0)
    read = samples(figures)
    counts = {
        name: read["kafka_network_requestmetrics_requests", f'request="{name}",version="12"']
        for name in ("FetchConsumer", "FetchFollower", "Fetch")
    }
    assert counts == {"FetchConsumer": 1, "FetchFollower": 2, "Fetch": 3}


async def test_a_later_answer_counts_with_the_time_until_it_is_there_and_one_given_up_does_not() -> None:
    now = [10.0]
    figures = RequestFigures(lambda: now[0])

    async def later() -> list[Any] | None:
        await asyncio.sleep(0)
        now[0] += 2.0
        return [b"x"]

    replies: list[Reply] = [later(), HeldReply(later())]
    for reply in replies:
        reply = figures.answered(CLIENT, frame(0, 9), reply, now[0])
        awaitable = reply.chunks if isinstance(reply, HeldReply) else reply
        assert await awaitable == [b"x"]  # type: ignore[misc]
    given_up = figures.answered(CLIENT, frame(0, 9), asyncio.get_running_loop().create_future(), 10.0)
    assert isinstance(given_up, asyncio.Future)
    given_up.cancel()
    await asyncio.sleep(0)
    seconds = samples(figures)["odradek_request_seconds", 'request="Produce"']
    assert (seconds.count, seconds.total) == (2, 2.0 + 2.0)
    assert samples(figures)["kafka_network_requestmetrics_requests", 'request="Produce",version="9"'] == 3


def test_a_request_that_came_in_parts_has_a_stage_for_it_once() -> None:
    figures = RequestFigures(lambda: 12.0)
    connection: Any = SimpleNamespace(
        client_software=("x", "1"), figures=ConnectionFigures(), peer="127.0.0.1:5"
    )
    own = connection.figures
    own.arrived_at, own.received_at, own.received_s = 9.0, 9.0, 0.5
    for _ in range(2):
        figures.answered(connection, frame(0, 9), [b"x"], 10.0)
    received = samples(figures)["odradek_request_stage_seconds", 'request="Produce",stage="received"']
    assert (received.count, received.total) == (1, 0.5)
    assert own.handled_s == 4.0, "two requests of two seconds"


def test_waits_for_disks_and_followers_are_apart_and_so_are_those_of_quotas() -> None:
    figures = RequestFigures(lambda: 12.0)
    figures.persisted(fsync_s=0.25, replicated_s=None)
    figures.persisted(fsync_s=0.5, replicated_s=2.0)
    figures.throttled(0, 3.0)
    read = samples(figures)
    stage = "odradek_request_stage_seconds"
    fsync, replicated = (read[stage, f'request="Produce",stage="{name}"'] for name in ("fsync", "replicated"))
    assert (fsync.count, fsync.total) == (2, 0.75)
    assert (replicated.count, replicated.total) == (1, 2.0)
    assert read["odradek_request_throttle_seconds", 'request="Produce"'].total == 3.0
    assert read["kafka_network_requestmetrics_throttletimems_count", 'request="Produce"'] == 1


async def test_stages_of_a_request_add_up_to_its_time() -> None:
    now = [10.0]
    slow = SlowRequests(3_000, lambda: 77)
    figures = RequestFigures(lambda: now[0], slow)
    connection: Any = SimpleNamespace(
        client_software=("x", "1"), figures=ConnectionFigures(), peer="127.0.0.1:5"
    )
    connection.figures.arrived_at, connection.figures.client_id = 9.0, "reader"

    def served(key: int) -> AnswerObserver:
        future = asyncio.get_running_loop().create_future()
        now[0] = 12.0
        reply = figures.answered(connection, frame(key, 9), future, 10.0)
        assert samples(figures)["odradek_requests_pending", f'request="{NAMES[key]}"'] == 1
        now[0] = 15.0
        future.set_result([b"x"])
        assert isinstance(reply, asyncio.Future)
        return connection.figures.served  # type: ignore[no-any-return]

    for key in (0, 1):
        observer = served(key)
        await asyncio.sleep(0)
        observer.sent(0.25, 0.5)
    read = samples(figures)
    stages = {
        stage: read["odradek_request_stage_seconds", f'request="Produce",stage="{stage}"'].total
        for stage in ("queued", "handled", "waited", "response_queued", "sent")
    }
    assert stages == {"queued": 1.0, "handled": 2.0, "waited": 3.0, "response_queued": 0.25, "sent": 0.5}
    assert read["odradek_request_seconds", 'request="Produce"'].total == 2.0 + 3.0
    assert read["odradek_requests_pending", 'request="Produce"'] == 0
    assert read["odradek_slow_requests", ""] == 2
    newest, oldest = slow.described()
    assert (newest["request"], oldest["request"], oldest["client_id"]) == ("Fetch", "Produce", "reader")
    assert oldest["total_ms"] == 6_750
    assert (connection.figures.request_count, connection.figures.request_bytes) == (2, 24)


async def test_what_waits_because_it_was_asked_to_is_not_slow() -> None:
    slow = SlowRequests(1_000, lambda: 0)
    now = [0.0]
    figures = RequestFigures(lambda: now[0], slow)
    for key in (1, 10000, 0):
        future = asyncio.get_running_loop().create_future()
        CLIENT.figures.arrived_at = now[0]
        figures.answered(CLIENT, frame(key, 9), future, now[0])
        now[0] += 30.0
        future.set_result([b"x"])
        await asyncio.sleep(0)
        CLIENT.figures.served.sent(0.0, 0.0)
    assert [request["request"] for request in slow.described()] == ["Produce"]


def test_the_ring_of_slow_requests_is_bounded() -> None:
    slow = SlowRequests(1, lambda: 0)
    for _ in range(5_000):
        slow.note(0, 9, CLIENT, (0.0, 0.0, 1.0, 0.0, 0.0))
    assert slow.count == 5_000
    assert len(slow.described()) == 200


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 9), st.booleans()), max_size=50))
def test_sums_of_a_broker_are_of_all_topics_that_were(steps: list[tuple[str, int, bool]]) -> None:
    traffic = BrokerTraffic()
    total = 0
    for topic, size_bytes, is_deleted_next in steps:
        traffic.of(topic).appended(1, size_bytes)
        total += size_bytes
        if is_deleted_next:
            traffic.forget({topic, "never seen"})
        (family,) = [family for family in in_one_go(traffic.steps()) if family.name.endswith("_bytesin")]
        (no_label, summed), *of_topics = family.samples
        assert (no_label, summed) == ("", total)
        shown = [text for text, _ in of_topics]
        assert len(shown) == len(set(shown))
        assert (f'topic="{topic}"' in shown) is not is_deleted_next
