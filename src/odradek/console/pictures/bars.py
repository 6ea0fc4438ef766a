"""Bars of equal scale, for brokers and disks: lengths in units of a picture that is `WIDTH` wide. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from odradek.console.model.snapshot import BrokerFigures, DiskFigures

WIDTH: Final = 200.0
SEEN_MIN: Final = 2.0
"""What is more than nothing is at least this wide, so that it can be seen."""


class BrokerBars(NamedTuple):
    """The bars of one broker, relative to the largest broker."""

    replicas: float
    leads: float
    out_of_sync: float
    held: float


class Rack(NamedTuple):
    """The brokers of a rack, in order; the name is empty for brokers without one."""

    name: str
    brokers: tuple[BrokerFigures, ...]


def racks_of(brokers: Iterable[BrokerFigures]) -> tuple[Rack, ...]:
    """Returns brokers by rack, racks by name."""
    racks: dict[str, list[BrokerFigures]] = {}
    for broker in brokers:
        racks.setdefault(broker.rack, []).append(broker)
    return tuple(Rack(name, tuple(members)) for name, members in sorted(racks.items()))


def broker_bars(brokers: Iterable[BrokerFigures]) -> dict[int, BrokerBars]:
    """Returns the bars of each broker by its id."""
    listed = list(brokers)
    replicas_max = max((broker.replicas for broker in listed), default=0)
    held_max = max((broker.held_bytes for broker in listed), default=0)
    return {
        broker.broker_id: BrokerBars(
            _length(broker.replicas, replicas_max),
            _length(broker.leads, replicas_max),
            _length(broker.out_of_sync, replicas_max),
            _length(broker.held_bytes, held_max),
        )
        for broker in listed
    }


def used_length(disk: DiskFigures) -> float:
    """Returns the length of the used part of a disk; 0 where the broker does not send its size."""
    if disk.total_bytes <= 0 or disk.free_bytes < 0:
        return 0.0
    return _length(disk.total_bytes - disk.free_bytes, disk.total_bytes)


def _length(value: int, largest: int) -> float:
    if value <= 0 or largest <= 0:
        return 0.0
    return round(max(SEEN_MIN, WIDTH * value / largest), 1)
