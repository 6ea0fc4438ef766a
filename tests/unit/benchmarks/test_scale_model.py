"""The model of large clusters: its arithmetic by hand, what grows with what, and that the page shows what it says."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
from benchmarks.scale import model
from benchmarks.scale.model import (
    ControlCosts,
    Costs,
    Hardware,
    Workload,
    capacity,
    data_plane_cores,
    planned,
)

NOTHING = Costs(**{field.name: 0.0 for field in fields(Costs)})
COSTS = replace(
    NOTHING,
    produce_leader=200.0,
    produce_follower=50.0,
    byte_in_leader=0.002,
    byte_in_follower=0.001,
    fetch=100.0,
    byte_out=0.0005,
)
CONTROL = ControlCosts(
    death_seconds=5e-6,
    takeover_seconds=1e-5,
    read_seconds=3e-6,
    snapshot_bytes=30.0,
    delta_bytes=40.0,
    poll_seconds=1e-4,
    isr_change_seconds=0.01,
    session_seconds=9.0,
    poll_interval_seconds=2.0,
)
LOAD = Workload(events_a_day=86_400_000, event_bytes=1000, batch_bytes=10_000, peak=2.0, retention_days=0.5)


def test_the_peak_follows_from_the_day() -> None:
    assert LOAD.events_a_second == 2000
    assert LOAD.bytes_a_second == 2_000_000
    assert LOAD.requests_a_second == 200


def test_cores_are_the_sum_of_what_each_part_costs() -> None:
    """By hand: produce 200 x (200 + 2 x 50), bytes 2e6 x (0.002 + 2 x 0.001), reads 3 x (200 x 100 + 2e6 x 0.0005)."""
    by_hand = (200 * 300 + 2e6 * 0.004 + 3 * (20_000 + 1000)) * 1e-6
    assert data_plane_cores(COSTS, LOAD) == pytest.approx(by_hand)


def test_members_and_replicas_cost_what_they_do_without_records() -> None:
    with_members = replace(NOTHING, heartbeat=30.0, offset_commit=50.0, replica_second=2.0)
    assert LOAD.busy_partitions == 12
    assert LOAD.members == 9
    assert data_plane_cores(with_members, LOAD) == pytest.approx((9 * (10 + 10) + 36 * 2) * 1e-6)


@pytest.mark.parametrize(
    ("hardware", "limit"),
    [
        ({}, "CPU"),
        ({"network_bytes_a_second": 1e6}, "network"),
        ({"disk_bytes_a_second": 1e5}, "disk speed"),
        ({"disk_bytes": 1e8}, "disk space"),
        ({"replicas_a_broker_max": 1}, "replicas"),
    ],
)
def test_the_scarcest_resource_says_how_many_brokers_there_are(
    hardware: dict[str, float], limit: str
) -> None:
    load = replace(LOAD, events_a_day=LOAD.events_a_day * 100)
    plan = planned(COSTS, CONTROL, load, replace(Hardware(), **hardware))  # type: ignore[arg-type]
    assert plan.limit == limit
    assert plan.brokers == plan.needs[limit] == max(plan.needs.values())


def test_a_small_load_still_needs_three_replicas() -> None:
    plan = planned(COSTS, CONTROL, replace(LOAD, events_a_day=1000), Hardware())
    assert (plan.brokers, plan.limit) == (3, "replication")


def test_what_a_broker_needs_at_rest_is_not_there_for_clients() -> None:
    load = replace(LOAD, events_a_day=LOAD.events_a_day * 100)
    busy = replace(COSTS, broker_second=300_000.0)  # half of the 0.6
    alone, burdened = (planned(costs, CONTROL, load, Hardware()).needs["CPU"] for costs in (COSTS, busy))
    assert burdened == pytest.approx(2 * alone, abs=1)


def test_larger_batches_need_fewer_brokers() -> None:
    sizes = [
        planned(COSTS, CONTROL, Workload(events_a_day=1e11, batch_bytes=size), Hardware()).brokers
        for size in (1000, 16_000, 128_000)
    ]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] > sizes[-1]


@pytest.mark.parametrize("brokers", [3, 10, 1000])
def test_capacity_is_what_so_many_brokers_just_carry(brokers: int) -> None:
    events = capacity(COSTS, CONTROL, LOAD, Hardware(), brokers)
    carried = replace(LOAD, events_a_day=events * 0.999)
    assert planned(COSTS, CONTROL, carried, Hardware()).brokers <= brokers
    too_many = replace(LOAD, events_a_day=events * 1.001)
    assert planned(COSTS, CONTROL, too_many, Hardware()).brokers > brokers


def test_a_failover_is_a_session_and_what_the_controller_decides_and_sends() -> None:
    costs = replace(CONTROL, delta_bytes=0.0)
    load = replace(LOAD, events_a_day=LOAD.events_a_day * 1000)
    plan = planned(COSTS, costs, load, Hardware())
    assert plan.failover_seconds == pytest.approx(9.0 + plan.partitions * 5e-6)
    assert plan.takeover_bytes == plan.brokers * plan.image_bytes == plan.brokers * plan.partitions * 30.0
    assert plan.takeover_seconds > plan.failover_seconds


def test_the_stored_constants_are_whole_and_the_page_shows_their_tables() -> None:
    costs, control = model.stored_constants()
    assert min(costs.produce_leader, costs.fetch, costs.heartbeat, costs.replica_bytes) > 0
    assert min(control.death_seconds, control.snapshot_bytes, control.poll_seconds) > 0
    page = model.PAGE.read_text(encoding="utf-8")
    assert model.with_tables(page, model.tables(costs, control)) == page


def test_a_page_without_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="has no <!-- model -->"):
        model.with_tables("no marks", "tables")
