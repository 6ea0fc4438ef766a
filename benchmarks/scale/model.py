"""`python -m benchmarks.scale.model`: clusters of 10 to 1,000 brokers from the measured cost of a request, byte and partition.

Pure arithmetic: `constants.json` (by `costs.py`) has what a request costs, `control_plane.json` (by `control_plane.py`) what a
change of the cluster costs, `Workload` and `Hardware` are assumptions. A broker is one process with one event loop, which
uses little more than one core; a machine runs several of them. Writes the tables of docs/scale.md between their marks:

    python -m benchmarks.scale.model            # prints them
    python -m benchmarks.scale.model --write    # puts them into docs/scale.md
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from odradek.cluster.planning import PARTITIONS_MAX

HERE: Final = Path(__file__).resolve().parent
PAGE: Final = HERE.parent.parent / "docs" / "scale.md"
BEGIN, END = "<!-- model -->\n", "<!-- /model -->"
SESSION_SECONDS: Final = 18.0
"""The default of `zookeeper.session.timeout.ms`: brokers of several machines share a ZooKeeper."""
_DAY_SECONDS: Final = 86_400
_MICROSECOND: Final = 1e-6
_HOURS_A_MONTH: Final = 730
_GB: Final = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Microseconds of CPU on the broker, and bytes, as `costs.py` measures them."""

    produce_leader: float
    produce_follower: float
    byte_in_leader: float
    byte_in_follower: float
    fetch: float
    byte_out: float
    heartbeat: float
    offset_commit: float
    broker_second: float
    connection_second: float
    replica_second: float
    broker_bytes: float
    connection_bytes: float
    replica_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlCosts:
    """The control plane's costs, as `control_plane.py` measures them: seconds of CPU for a partition of the cluster."""

    death_seconds: float
    """At the controller, when a broker dies; for each partition of the cluster."""
    takeover_seconds: float
    """At a new controller, for each partition of the cluster."""
    read_seconds: float
    """At a broker that reads a whole image, for each partition of the cluster."""
    snapshot_bytes: float
    """Of a whole image, for each partition of the cluster."""
    delta_bytes: float
    """Of what every broker gets when one dies, for each partition that the dead one held."""
    poll_seconds: float
    """At the controller, for each question of a broker; the wire is not in it."""
    isr_change_seconds: float
    session_seconds: float
    poll_interval_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What clients do. The peak is what brokers are built for."""

    events_a_day: float
    event_bytes: int = 500
    batch_bytes: int = 16_384
    """Of one partition in one request: 16 KiB is the default of Kafka's producer."""
    peak: float = 2.5
    """The busiest minute, times the mean of the day."""
    replication: int = 3
    readers: int = 3
    """Groups that read everything."""
    retention_days: float = 3.0
    partition_bytes_a_second: float = 1e6
    """The peak of one partition: it decides how many there are."""
    partitions_a_member: int = 4
    heartbeat_seconds: float = 3.0
    commit_seconds: float = 5.0

    @property
    def events_a_second(self) -> float:
        """The rate of events at the peak."""
        return self.events_a_day / _DAY_SECONDS * self.peak

    @property
    def bytes_a_second(self) -> float:
        """The rate of bytes at the peak, before replication."""
        return self.events_a_second * self.event_bytes

    @property
    def requests_a_second(self) -> float:
        """Batches that producers send, at the peak."""
        return self.bytes_a_second / self.batch_bytes

    @property
    def members(self) -> int:
        """Consumers of all groups."""
        return max(self.readers, self.readers * self.busy_partitions // self.partitions_a_member)

    @property
    def busy_partitions(self) -> int:
        return max(12, math.ceil(self.bytes_a_second / self.partition_bytes_a_second))


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """What a broker gets, and what that costs. Prices are round list prices of public clouds, in US dollars."""

    cpu_share: float = 0.6
    """The part of one core that a broker may be busy at the peak: its loop also has to answer soon."""
    network_bytes_a_second: float = 0.6 * 3.125e8
    """60 % of 2.5 Gbit/s: a broker's share of its machine's network, in each direction."""
    disk_bytes_a_second: float = 0.6 * 2.5e8
    disk_bytes: float = 4e12
    disk_full_share: float = 0.7
    replicas_a_broker_max: int = 4000
    core_hour: float = 0.04
    cores_a_broker: float = 1.5
    """One for the loop, a half for flushes, checksums and the kernel."""
    disk_gb_month: float = 0.08
    zone_gb: float = 0.02
    """A gigabyte that crosses zones, both directions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A cluster for a workload."""

    brokers: int
    limit: str
    """The resource that asks for so many brokers."""
    needs: Mapping[str, int]
    """How many brokers each resource asks for."""
    partitions: int
    cpu_cores: float
    """Cores that brokers are busy with at the peak, all together."""
    broker_memory_bytes: float
    dollars_a_month: float
    failover_seconds: float
    takeover_seconds: float
    takeover_bytes: float
    """What a new controller sends to all brokers."""
    controller_core_share: float
    """The part of a core that the controller is busy with at rest."""
    image_bytes: float


def data_plane_cores(costs: Costs, load: Workload) -> float:
    """Returns how many cores all brokers are busy with at the peak, apart from what each needs at rest."""
    followers = load.replication - 1
    requests = load.requests_a_second
    produce = requests * (costs.produce_leader + followers * costs.produce_follower)
    written = load.bytes_a_second * (costs.byte_in_leader + followers * costs.byte_in_follower)
    fetched = load.readers * (requests * costs.fetch + load.bytes_a_second * costs.byte_out)
    members = load.members * (
        costs.heartbeat / load.heartbeat_seconds + costs.offset_commit / load.commit_seconds
    )
    replicas = load.busy_partitions * load.replication * costs.replica_second
    return (produce + written + fetched + members + replicas) * _MICROSECOND


def planned(
    costs: Costs, control: ControlCosts, load: Workload, hardware: Hardware, at_least: int = 3
) -> Plan:
    """Returns the smallest cluster that carries a workload, and what limits it."""
    cores = data_plane_cores(costs, load)
    a_broker = hardware.cpu_share - costs.broker_second * _MICROSECOND
    inbound = load.bytes_a_second * load.replication
    outbound = load.bytes_a_second * (load.replication - 1 + load.readers)
    stored = load.events_a_day * load.event_bytes * load.retention_days * load.replication
    replicas = load.busy_partitions * load.replication
    demand = {
        "CPU": cores / a_broker,
        "network": max(inbound, outbound) / hardware.network_bytes_a_second,
        "disk speed": inbound / hardware.disk_bytes_a_second,
        "disk space": stored / (hardware.disk_bytes * hardware.disk_full_share),
        "replicas": replicas / hardware.replicas_a_broker_max,
        "replication": at_least,
    }
    needs = {name: math.ceil(count) for name, count in demand.items()}
    limit = max(demand, key=lambda name: demand[name])
    brokers = max(needs.values())
    return Plan(
        brokers=brokers,
        limit=limit,
        needs=needs,
        partitions=load.busy_partitions,
        cpu_cores=cores + brokers * costs.broker_second * _MICROSECOND,
        broker_memory_bytes=_memory(costs, load, brokers),
        dollars_a_month=_dollars(load, hardware, brokers, stored),
        **_control(control, brokers, load.busy_partitions, load.replication),
    )


def _memory(costs: Costs, load: Workload, brokers: int) -> float:
    """A broker's process, without the page cache: replicas, and a connection of every member to every broker."""
    connections = 2 * load.members
    replicas = load.busy_partitions * load.replication / brokers
    return costs.broker_bytes + replicas * costs.replica_bytes + connections * costs.connection_bytes


def _dollars(load: Workload, hardware: Hardware, brokers: int, stored: float) -> float:
    mean_bytes = load.events_a_day * load.event_bytes / _DAY_SECONDS * _HOURS_A_MONTH * 3600
    crossing = (load.replication - 1 + 2 / 3) * mean_bytes  # followers, and two thirds of the producers
    return (
        brokers * hardware.cores_a_broker * hardware.core_hour * _HOURS_A_MONTH
        + stored / hardware.disk_full_share / _GB * hardware.disk_gb_month
        + crossing / _GB * hardware.zone_gb
    )


def _control(control: ControlCosts, brokers: int, partitions: int, replication: int) -> dict[str, Any]:
    """What the control plane does at rest, when a broker dies, and when the controller does."""
    held = partitions * replication / brokers
    death = partitions * control.death_seconds + _sent(brokers, held * control.delta_bytes)
    takeover = (
        partitions * control.takeover_seconds
        + _sent(brokers, partitions * control.snapshot_bytes)
        + partitions * control.read_seconds
    )
    return {
        "failover_seconds": control.session_seconds + death,
        "takeover_seconds": control.session_seconds + takeover,
        "takeover_bytes": brokers * partitions * control.snapshot_bytes,
        "controller_core_share": brokers * control.poll_seconds / control.poll_interval_seconds,
        "image_bytes": partitions * control.snapshot_bytes,
    }


def _sent(brokers: int, bytes_each: float) -> float:
    """Seconds to send that to every broker over the controller's network."""
    return brokers * bytes_each / Hardware().network_bytes_a_second


def capacity(costs: Costs, control: ControlCosts, shape: Workload, hardware: Hardware, brokers: int) -> float:
    """Returns the most events a day of this shape that so many brokers carry."""
    low, high = 0.0, 1e16
    for _ in range(200):
        middle = (low + high) / 2
        plan = planned(costs, control, replace(shape, events_a_day=middle), hardware)
        if plan.brokers <= brokers:
            low = middle
        else:
            high = middle
    return low


# -- the measured constants ---------------------------------------------------------------------------------


def costs_from(document: Mapping[str, Any]) -> Costs:
    """Reads what `costs.py` printed. KeyError where a cost is missing."""
    costs = document["costs"]
    return Costs(
        produce_leader=costs["produce request, acks=all, three replicas: leader"],
        produce_follower=costs["produce request, acks=all, three replicas: a follower"],
        byte_in_leader=costs["byte in, three replicas: leader"],
        byte_in_follower=costs["byte in, three replicas: a follower"],
        fetch=costs["fetch request"],
        byte_out=costs["byte out"],
        heartbeat=costs["heartbeat of a member"],
        offset_commit=costs["offset commit"],
        broker_second=costs["broker at rest, a second"],
        connection_second=costs["connection, a second"],
        replica_second=costs["replica, a second"],
        broker_bytes=costs["broker at rest, bytes"],
        connection_bytes=costs["connection, bytes"],
        replica_bytes=costs["replica, bytes"],
    )


def control_costs_from(document: Mapping[str, Any]) -> ControlCosts:
    """Reads what `control_plane.py` printed. KeyError where a step is missing."""
    sizes, steps = document["sizes"], {step["what"]: step for step in document["steps"]}
    partitions, brokers = sizes["partitions"], sizes["brokers"]
    death = steps["kill -9 of a broker, until all know its partitions' new leaders"]
    takeover = steps["kill -9 of the controller, until all know the new one and the new leaders"]
    rest = steps["60 seconds in which nothing happens"]
    changes = steps["20 changes of an ISR, one after another"]
    held = 3 * partitions / brokers
    return ControlCosts(
        death_seconds=death["controller_cpu_ms"] / 1000 / partitions,
        takeover_seconds=takeover["controller_cpu_ms"] / 1000 / partitions,
        read_seconds=takeover["broker_cpu_ms"] / 1000 / partitions,
        snapshot_bytes=sizes["snapshot of the image, bytes"] / partitions,
        delta_bytes=death["update_bytes_a_broker"] / held,
        poll_seconds=rest["controller_cpu_ms"] / 1000 / (60 / 2 * brokers),
        isr_change_seconds=changes["controller_cpu_ms"] / 1000 / 20,
        session_seconds=SESSION_SECONDS,
        poll_interval_seconds=2.0,
    )


def stored_constants() -> tuple[Costs, ControlCosts]:
    """Returns what was measured; what the simulation of the control plane leaves out of a broker's question is added."""
    costs = json.loads((HERE / "constants.json").read_text(encoding="utf-8"))
    control = control_costs_from(json.loads((HERE / "control_plane.json").read_text(encoding="utf-8")))
    wire_seconds = (
        costs_from(costs).heartbeat * _MICROSECOND
    )  # a small request, which the simulation does not send
    return costs_from(costs), replace(control, poll_seconds=control.poll_seconds + wire_seconds)


# -- tables --------------------------------------------------------------------------------------------------


def tables(costs: Costs, control: ControlCosts) -> str:
    """Returns the tables of docs/scale.md."""
    hardware = Hardware()
    return "\n".join(
        (
            "### From events a day to brokers\n",
            _by_events(costs, control, hardware),
            "### From brokers to events a day\n",
            _by_brokers(costs, control, hardware),
            "### The control plane\n",
            _of_control_plane(control),
        )
    )


def _by_events(costs: Costs, control: ControlCosts, hardware: Hardware) -> str:
    rows = []
    for events in (1e9, 1e10, 1e11, 1e12):
        for batch_bytes in (16_384, 131_072):
            load = Workload(events_a_day=events, batch_bytes=batch_bytes)
            plan = planned(costs, control, load, hardware)
            rows.append(
                (
                    f"{events:,.0f}",
                    f"{batch_bytes // 1024} KiB",
                    f"{load.bytes_a_second / 1e6:,.0f}",
                    f"{plan.brokers:,}",
                    plan.limit,
                    f"{plan.cpu_cores:,.1f}",
                    f"{plan.partitions:,}",
                    f"{plan.broker_memory_bytes / 1e6:,.0f}",
                    f"{plan.failover_seconds:.1f}",
                    f"{plan.dollars_a_month:,.0f}",
                )
            )
    head = (
        "events a day",
        "batches",
        "MB/s in, peak",
        "brokers",
        "what asks for so many",
        "cores busy, peak",
        "partitions",
        "MB a broker",
        "failover, s",
        "$ a month",
    )
    return _table(head, rows, left=(4,))


def _by_brokers(costs: Costs, control: ControlCosts, hardware: Hardware) -> str:
    rows = []
    for brokers in (10, 50, 100, 300, 1000):
        row = [f"{brokers:,}"]
        for batch_bytes in (1024, 16_384, 131_072):
            shape = Workload(events_a_day=0, batch_bytes=batch_bytes)
            row.append(f"{capacity(costs, control, shape, hardware, brokers) / 1e9:,.1f}")
        rows.append(row)
    head = ("brokers", "billions a day, 1 KiB batches", "16 KiB batches", "128 KiB batches")
    return _table(head, rows)


def _of_control_plane(control: ControlCosts) -> str:
    rows = []
    for brokers in (10, 50, 100, 300, 1000):
        for partitions in dict.fromkeys((100 * brokers, min(2000 * brokers, PARTITIONS_MAX), 2000 * brokers)):
            at = _control(control, brokers, partitions, 3)
            rows.append(
                (
                    f"{brokers:,}",
                    f"{partitions:,}" + " (refused)" * (partitions > PARTITIONS_MAX),
                    f"{at['image_bytes'] / 1e6:,.1f}",
                    f"{100 * at['controller_core_share']:.1f}",
                    f"{at['failover_seconds']:.1f}",
                    f"{at['takeover_seconds']:.1f}",
                    f"{at['takeover_bytes'] / _GB:,.2f}",
                    f"{1 / control.isr_change_seconds:,.0f}",
                )
            )
    head = (
        "brokers",
        "partitions",
        "image sent, MB",
        "controller at rest, % of a core",
        "a broker dies: led again after, s",
        "the controller dies: all know after, s",
        "GB sent then",
        "ISR changes/s, one by one",
    )
    return _table(head, rows)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], left: Sequence[int] = ()) -> str:
    lines = ["| " + " | ".join(head) + " |"]
    lines.append("|" + "".join("---|" if column in left else "---:|" for column in range(len(head))))
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def with_tables(page: str, text: str) -> str:
    """Returns the page with other tables between its marks. ValueError where they are missing."""
    before, mark, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not mark or not end:
        raise ValueError(f"docs/scale.md has no {BEGIN.strip()} … {END}")
    return before + BEGIN + "\n" + text + "\n" + END + after


def main(
    arguments: Sequence[str] | None = None,
    constants: Callable[[], tuple[Costs, ControlCosts]] = stored_constants,
) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale.model", description=__doc__)
    parser.add_argument("--write", action="store_true", help="put the tables into docs/scale.md")
    options = parser.parse_args(arguments)
    text = tables(*constants())
    if options.write:
        PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8"), text), encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
