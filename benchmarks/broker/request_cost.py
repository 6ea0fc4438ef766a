"""What a request costs a broker that has many partitions and many connections: the same requests with 10 and with 10,000.

CPU time of the broker, so that the client and the machine count little. The requests are spread evenly over all
partitions and connections, ten at a time: what grows is only what there is around a request. Few and many partitions take
turns on the same connections, several times: each turn is a sample, so the spread is known.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from benchmarks.broker import plain_requests
from benchmarks.broker.plain_requests import Frame
from benchmarks.cluster.blocking_client import BlockingClient, until
from benchmarks.contenders import Contender
from benchmarks.measures import Plan, Running, work_directory
from benchmarks.samples import Better, Sample
from benchmarks.watch import cpu_seconds
from odradek.protocol.messages.topics.create_topics import CreatableTopic

IN_FLIGHT: Final = 10
VALUE_BYTES: Final = 100
_FEW: Final = 10
_TOPIC_PARTITIONS: Final = 100
_SECONDS_MAX: Final = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How many there are of everything."""

    partitions: int
    connections: int
    turns: int
    requests: int
    """How many each turn has."""
    warm_up: int


def sizes_of(plan: Plan) -> Sizes:
    if plan.rounds == 1:
        return Sizes(partitions=200, connections=200, turns=1, requests=2000, warm_up=200)
    return Sizes(partitions=10_000, connections=5000, turns=5, requests=10_000, warm_up=2000)


def request_cost(contender: Contender, plan: Plan, round_number: int) -> Iterator[Sample]:
    """The broker's CPU for ten thousand requests: few and many partitions, each with few and many connections. One start of
    the broker is enough: the turns are the rounds."""
    if round_number > 0:
        return
    sizes = sizes_of(plan)
    plain_requests.allow_connections(sizes.connections)
    with work_directory() as directory:
        node = contender.make(directory)
        node.start()
        try:
            running = Running(contender=contender, node=node)
            few = _created(node.bootstrap, "few", _FEW, 0)
            many = _created(node.bootstrap, "many", sizes.partitions, _FEW)
            frames = [*_frames(node.bootstrap, few), *_frames(node.bootstrap, many)]
            for connections in (_FEW, sizes.connections):
                yield from _turns(running, sizes, frames, connections)
        finally:
            node.stop()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Frames:
    """The requests of one kind to all partitions of some topics."""

    kind: str
    frames: Sequence[Frame]


def _frames(bootstrap: str, topics: Sequence[tuple[str, int]]) -> Iterator[_Frames]:
    """Yields the requests to these partitions, once the broker accepts all of them: each partition has had one then."""
    records = plain_requests.batch(VALUE_BYTES)
    by_kind = {
        "produce, acks=1": [plain_requests.produce(name, [index], records, "1") for name, index in topics],
        "fetch": [plain_requests.fetch(name, index) for name, index in topics],
    }
    for kind, frames in by_kind.items():
        plain_requests.until_accepted(bootstrap, frames, seconds_max=_SECONDS_MAX)
        yield _Frames(kind=kind, frames=frames)


def _turns(
    running: Running, sizes: Sizes, by_partitions: Sequence[_Frames], connections: int
) -> Iterator[Sample]:
    with plain_requests.connected(running.node.bootstrap, connections) as sockets:
        for some in by_partitions:
            plain_requests.drive(
                sockets, some.frames, in_flight=IN_FLIGHT, count=max(connections, sizes.warm_up)
            )
        for turn in range(sizes.turns):
            for some in by_partitions:
                spent = _spent(running, sockets, some.frames, sizes)
                figures: dict[str, tuple[float, Better]] = {
                    "broker CPU s per 10,000 requests": (spent, "lower")
                }
                condition = f"{some.kind}, {len(some.frames):,} partitions, {connections:,} connections"
                yield from running.samples("cost of a request", condition, turn, figures)


def _spent(
    running: Running, sockets: Sequence[socket.socket], frames: Sequence[Frame], sizes: Sizes
) -> float:
    before = cpu_seconds(running.node.pid)
    plain_requests.drive(sockets, frames, in_flight=IN_FLIGHT, count=sizes.requests)
    return 10_000 * (cpu_seconds(running.node.pid) - before) / sizes.requests


def _created(bootstrap: str, name: str, count: int, there_are: int) -> list[tuple[str, int]]:
    """Creates topics with `count` partitions in all, and waits until all are led; returns the partitions."""
    host, _, port = bootstrap.rpartition(":")
    each_count = min(_TOPIC_PARTITIONS, count)
    names = [f"{name}-{number:04d}" for number in range(count // each_count)]
    with BlockingClient((host, int(port))) as asker:
        for topic in names:
            asker.create([CreatableTopic(name=topic, num_partitions=each_count, replication_factor=1)])
        total = there_are + len(names) * each_count
        until(
            lambda: _are_led(asker, total),
            f"leading {total:,} partitions",
            seconds_max=_SECONDS_MAX,
            pause=0.25,
        )
    return [(topic, index) for topic in names for index in range(each_count)]


def _are_led(asker: BlockingClient, count: int) -> bool:
    partitions = asker.partitions(None)
    return len(partitions) >= count and all(
        partition.leader_id >= 0 and not partition.error_code for partition in partitions
    )
