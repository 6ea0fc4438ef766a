"""What metrics listeners say, as pages of the console show it: floods, certificates, slow requests, whatever they send."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.console.listeners.figures import (
    CERTIFICATES,
    FLOOD_BYTES,
    HEALING_DUE,
    HEALING_PARTITIONS,
    SLOW_MAX,
    TEXT_MAX,
    TOKENS,
    TROUBLES_MAX,
    ListenerFigures,
    PlannedHealing,
    busiest_brokers,
    certificates_of,
    flooding,
    healing_plan,
    listener_troubles,
    slow_requests_in,
    stage_shares,
)
from odradek.console.model.troubles import KINDS, Urgency
from odradek.telemetry.scraped_metrics import ClientTraffic, Labels, MetricsSnapshot

DAY_S = 86_400.0
BYTES = "odradek_client_bytes"
SLOW: dict[str, Any] = {
    "at_ms": 1_700_000_000_000,
    "request": "Produce",
    "version": 11,
    "client_id": "shop",
    "peer": "10.0.0.7:4711",
    "total_ms": 1200.5,
    "queued_ms": 0.1,
    "handled_ms": 0.4,
    "waited_ms": 1199,
    "response_queued_ms": 0,
    "sent_ms": 1,
}


def moved(**clients: float) -> dict[str, Mapping[Labels, float]]:
    return {BYTES: {(("client_id", name), ("direction", "in")): value for name, value in clients.items()}}


def figures(
    *, ends: Mapping[str, float] | None = None, tokens: Mapping[str, float] | None = None, **brokers: Any
) -> ListenerFigures:
    """Returns figures of brokers after a second; clients of `brokers` began at zero."""
    now = {name: dict(metrics) for name, metrics in brokers.items()} or {"b1:9464": {}}
    before = {
        name: {family: dict.fromkeys(series, 0.0) for family, series in metrics.items()}
        for name, metrics in brokers.items()
    }
    first = next(iter(now.values()))
    first[CERTIFICATES] = {(("listener", name),): left for name, left in (ends or {}).items()}
    first[TOKENS] = {
        (("owner", "User:ann"), ("token_id", name)): left for name, left in (tokens or {}).items()
    }
    return ListenerFigures(
        now=MetricsSnapshot(at_s=11.0, by_broker=now),
        before=MetricsSnapshot(at_s=10.0, by_broker=before),
        brokers=dict.fromkeys(now, 1),
    )


def test_a_client_floods_if_it_moves_four_fifths_and_much() -> None:
    def client(name: str, rate: float) -> ClientTraffic:
        return ClientTraffic(name, rate, 0.0, 1.0, 0.0)

    assert flooding([]) is None
    assert flooding([client("a", FLOOD_BYTES), client("b", 0)]) is None, "not more than the limit"
    assert flooding([client("a", 4 * FLOOD_BYTES), client("b", FLOOD_BYTES)]) is None, "exactly four fifths"
    flood = flooding([client("b", FLOOD_BYTES), client("a", 9 * FLOOD_BYTES)])
    assert flood is not None
    assert (flood[0].client_id, flood[1]) == ("a", 0.9)


def test_the_page_says_at_which_broker_a_client_moves_most() -> None:
    busiest = busiest_brokers(figures(one=moved(a=10, b=5), two=moved(a=30)))
    assert busiest == {"a": ("two", 0.75), "b": ("one", 1.0)}


def test_there_are_no_rates_before_a_second_scrape() -> None:
    alone = ListenerFigures(now=MetricsSnapshot(at_s=1.0, by_broker={"one": moved(a=10**9)}))
    assert (alone.clients(), alone.span_s, busiest_brokers(alone), listener_troubles(alone)) == (
        [],
        0.0,
        {},
        [],
    )


def test_troubles_are_those_of_the_alerts() -> None:
    troubles = listener_troubles(
        figures(
            ends={"SSL": 3 * DAY_S + 5, "OLD": -DAY_S, "FRESH": 15 * DAY_S},
            tokens={"t1": 1800.0, "t2": 7200.0},
            one=moved(crawler=20 * FLOOD_BYTES, shop=1),
        )
    )
    shown = [(trouble.kind, trouble.level, dict(trouble.values)) for trouble in troubles]
    assert shown == [
        ("certificate_ended", Urgency.BAD, {"listener": "OLD", "broker": 1, "days": 1}),
        ("certificate_ends", Urgency.WARNING, {"listener": "SSL", "broker": 1, "days": 3}),
        ("token_ends", Urgency.WARNING, {"token": "t1", "owner": "User:ann", "minutes": 30}),
        (
            "client_floods",
            Urgency.WARNING,
            {"client": "crawler", "percent": 100, "rate_bytes": 20 * FLOOD_BYTES},
        ),
    ]
    assert {trouble.kind for trouble in troubles} <= set(KINDS)
    assert [trouble.path for trouble in troubles] == ["/people/certificates"] * 3 + ["/traffic"]


def test_a_listener_cannot_fill_the_overview() -> None:
    many = figures(
        ends={f"L{number}": 1.0 for number in range(1000)}, tokens={f"t{n}": 1.0 for n in range(1000)}
    )
    assert len(listener_troubles(many)) == 2 * TROUBLES_MAX
    long = figures(one=moved(**{"x" * 5000: 20 * FLOOD_BYTES}))
    assert len(str(listener_troubles(long)[0].values["client"])) == TEXT_MAX


def test_certificates_that_end_first_come_first() -> None:
    assert [end.listener for end in certificates_of(figures(ends={"b": 9.0, "a": 9.0, "c": 1.0}))] == [
        "c",
        "a",
        "b",
    ]


def test_slow_requests_are_shown_with_their_stages() -> None:
    [row] = slow_requests_in("b1:9464", json.dumps([SLOW]).encode())
    assert (row.request, row.client_id, row.peer, row.total_ms) == (
        "Produce v11",
        "shop",
        "10.0.0.7:4711",
        1200.5,
    )
    assert (row.stages_ms, row.longest) == ((0.1, 0.4, 1199.0, 0.0, 1.0), "waited")
    assert stage_shares([row])[0] == ("waited", pytest.approx(1199 / 1200.5, abs=1e-6))
    assert sum(share for _, share in stage_shares([row])) == pytest.approx(1.0)
    assert [share for _, share in stage_shares([])] == [0.0] * 5


@pytest.mark.parametrize(
    "change",
    [
        {"total_ms": None},
        {"total_ms": "1"},
        {"total_ms": True},
        {"total_ms": -1},
        {"waited_ms": float("nan")},
        {"sent_ms": float("inf")},
        {"sent_ms": 10**400},
        {"queued_ms": []},
    ],
)
def test_an_entry_without_times_is_left_out(change: dict[str, Any]) -> None:
    rows = slow_requests_in("b", json.dumps([{**SLOW, **change}, 7, None, [], SLOW]).encode())
    assert [row.client_id for row in rows] == ["shop"]


@pytest.mark.parametrize("content", [b"", b"{}", b"7", b"[", b"\xff", b"[" * 100_000])
def test_a_page_that_is_no_list_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        slow_requests_in("b", content)


def test_texts_and_rows_of_a_listener_are_bounded() -> None:
    entry = {
        **SLOW,
        "client_id": "x" * 5000,
        "peer": 7,
        "version": "v" * 5000,
        "at_ms": 10**30,
        "request": None,
    }
    rows = slow_requests_in("b", json.dumps([entry] * (SLOW_MAX + 50)).encode())
    assert len(rows) == SLOW_MAX
    assert (len(rows[0].client_id), rows[0].peer, rows[0].at_ms) == (TEXT_MAX, "7", 0)
    assert len(rows[0].request) <= 2 * TEXT_MAX


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(max_size=3),
        lambda some: st.lists(some) | st.dictionaries(st.sampled_from(sorted(SLOW)), some),
    )
)
def test_whatever_json_a_listener_sends_is_read_or_refused(value: Any) -> None:
    try:
        rows = slow_requests_in("b", json.dumps(value).encode())
    except ValueError:
        assert not isinstance(value, list)
    else:
        assert all(len(row.stages_ms) == 5 for row in rows)


def test_the_plan_of_healing_is_that_of_whichever_broker_is_the_controller() -> None:
    def listed(due: dict[str, float], count: float) -> dict[str, Any]:
        return {
            HEALING_DUE: {(("broker", broker),): due_s for broker, due_s in due.items()},
            HEALING_PARTITIONS: {(): count},
        }

    snapshot = MetricsSnapshot(
        at_s=1.0, by_broker={"a": listed({}, 0), "b": listed({"3": 60.0, "2": -5.0}, 4)}
    )
    assert healing_plan(ListenerFigures(now=snapshot)) == PlannedHealing((("2", 0.0), ("3", 60.0)), 4)
    assert healing_plan(ListenerFigures(now=MetricsSnapshot(at_s=1.0))) == PlannedHealing()
    many = {str(number): float(number) for number in range(1_000)}
    flooded = healing_plan(
        ListenerFigures(now=MetricsSnapshot(at_s=1.0, by_broker={"a": listed(many, 1e20)}))
    )
    assert len(flooded.due_s) == TROUBLES_MAX
