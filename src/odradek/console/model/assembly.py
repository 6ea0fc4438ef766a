"""Turns descriptions of brokers into figures: pure functions, which the refreshing calls."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType

from odradek.client.admin.types import ClusterDescription, TopicDescription
from odradek.console.model.snapshot import BrokerFigures, DiskFigures, PartitionTable, TopicFigures


def tabulated(
    topics: Iterable[TopicDescription],
) -> tuple[dict[str, TopicFigures], PartitionTable]:
    """Returns the figures of topics by name, sorted, and the table of their partitions."""
    table = PartitionTable()
    ordered = sorted(topics, key=lambda topic: topic.name)
    return {topic.name: table.add(topic) for topic in ordered}, table


def brokers_of(
    cluster: ClusterDescription,
    partitions: PartitionTable,
    disks: Mapping[int, tuple[DiskFigures, ...]],
    known: Mapping[int, BrokerFigures] = MappingProxyType({}),
) -> tuple[BrokerFigures, ...]:
    """Returns the brokers that live, and those that hold replicas without living, each with its part of the partitions.

    `known`: brokers as they were before; a dead one keeps its rack and its address.
    """
    alive = {
        broker.broker_id: BrokerFigures(
            broker_id=broker.broker_id,
            host=broker.host,
            port=broker.port,
            rack=broker.rack or "",
            is_controller=broker.broker_id == cluster.controller_id,
            disks=disks.get(broker.broker_id, ()),
        )
        for broker in cluster.brokers
    }
    dead = {
        broker_id: replace(
            known.get(broker_id) or BrokerFigures(broker_id=broker_id),
            is_alive=False,
            is_controller=False,
            disks=(),
        )
        for broker_id in partitions.holds.keys() - alive.keys()
    }
    return tuple(
        replace(
            broker,
            leads=partitions.leads[number],
            replicas=partitions.holds[number],
            out_of_sync=partitions.lags[number],
        )
        for number, broker in sorted({**alive, **dead}.items())
    )
