"""`python -m benchmarks.scale.costs`: what one request, record, byte, partition, connection and group member costs a broker.

CPU time of the processes (user and system, from /proc), never the clock: so the figures hold on a machine that does other
things, too. Each is a difference or a quotient of two runs of the same client, `plain_requests`. Prints JSON; the constants of
`model.py` are such a document (`constants.json`).

    python -m benchmarks.scale.costs > benchmarks/scale/constants.json
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from benchmarks import report
from benchmarks.broker import plain_requests
from benchmarks.broker.plain_requests import Frame
from benchmarks.cluster.blocking_client import BlockingClient, until
from benchmarks.cluster.nodes import BROKERS, OdradekCluster
from benchmarks.cluster.plan import led_topic
from benchmarks.measures import work_directory
from benchmarks.odradek_node import OdradekNode
from benchmarks.watch import cpu_seconds, memory
from odradek.protocol import RequestHeader, api_by_name, encode_request
from odradek.protocol.messages.groups.heartbeat import HeartbeatRequest
from odradek.protocol.messages.groups.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from odradek.protocol.messages.groups.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.protocol.messages.groups.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from odradek.protocol.messages.metadata.find_coordinator import FindCoordinatorRequest
from odradek.protocol.messages.topics.create_topics import CreatableTopic

IN_FLIGHT: Final = 16
SMALL_BYTES: Final = 100
LARGE_BYTES: Final = 100_000
RECORDS: Final = 500
GROUP: Final = "scale"
_MEMBER_ID_REQUIRED: Final = 79
_SESSION_MS: Final = 9000
_SECONDS_MAX: Final = 120.0
_TOPIC_PARTITIONS: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Amounts:
    """How much of everything is measured."""

    requests: int
    idle_seconds: float
    partitions: int
    connections: int


FULL: Final = Amounts(requests=20_000, idle_seconds=20.0, partitions=5000, connections=2000)
SMOKE: Final = Amounts(requests=500, idle_seconds=0.5, partitions=200, connections=50)


def measure(amounts: Amounts) -> dict[str, float]:
    """Returns all costs, in microseconds of CPU and in bytes of memory."""
    plain_requests.allow_connections(amounts.connections)
    with work_directory() as directory, OdradekNode(directory=directory) as node:
        costs = _requests(node, amounts) | _groups(node, amounts)
    with work_directory() as directory, OdradekNode(directory=directory) as node:
        costs |= _at_rest(node, amounts)
    with work_directory() as directory:
        cluster = OdradekCluster(directory, _SESSION_MS)
        cluster.start()
        try:
            costs |= _replication(cluster, amounts)
        finally:
            cluster.stop()
    return costs


def _requests(node: OdradekNode, amounts: Amounts) -> dict[str, float]:
    """What a produce and a fetch cost apart from their bytes, a byte, and a record of a batch."""
    with BlockingClient(_address(node)) as asker:
        asker.create([CreatableTopic(name="requests", num_partitions=IN_FLIGHT, replication_factor=1)])
    partitions = range(IN_FLIGHT)

    def produced(records: bytes, acks: str, count: int = amounts.requests) -> float:
        frames = [plain_requests.produce("requests", [index], records, acks) for index in partitions]
        return _spent(node, frames, count)

    small = plain_requests.batch(SMALL_BYTES)
    many = plain_requests.batch(SMALL_BYTES, RECORDS)
    large = plain_requests.batch(LARGE_BYTES)
    flushed, unflushed = produced(small, "all"), produced(small, "1")
    large_count = max(1, amounts.requests // 10)
    of_many, of_large = produced(many, "1", large_count), produced(large, "1", large_count)
    byte_in = (of_large - unflushed) / (len(large) - len(small))
    fetches = [plain_requests.fetch("requests", index) for index in partitions]
    return {
        "produce request, acks=all": flushed,
        "produce request, acks=1": unflushed,
        "byte in": byte_in,
        "record in": max(0.0, (of_many - unflushed - byte_in * (len(many) - len(small))) / (RECORDS - 1)),
        **_fetches(node, fetches, amounts, len(large)),
    }


def _fetches(
    node: OdradekNode, small: Sequence[Frame], amounts: Amounts, large_bytes: int
) -> dict[str, float]:
    with BlockingClient(_address(node)) as asker:
        asker.create([CreatableTopic(name="large", num_partitions=1, replication_factor=1)])
    large = plain_requests.batch(LARGE_BYTES)
    frames = [plain_requests.produce("large", [0], large, "1")]
    plain_requests.until_accepted(node.bootstrap, frames, seconds_max=_SECONDS_MAX)
    of_small = _spent(node, small, amounts.requests)
    of_large = _spent(node, [plain_requests.fetch("large", 0)], amounts.requests)
    return {"fetch request": of_small, "byte out": max(0.0, (of_large - of_small) / large_bytes)}


def _groups(node: OdradekNode, amounts: Amounts) -> dict[str, float]:
    """A heartbeat of a member, and a commit of one offset."""
    with BlockingClient(_address(node)) as asker:
        member, generation = _joined(asker)
        heartbeat = HeartbeatRequest(group_id=GROUP, generation_id=generation, member_id=member)
        offset = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
        topics = [OffsetCommitRequestTopic(name="requests", partitions=[offset])]
        commit = OffsetCommitRequest(
            group_id=GROUP, generation_id_or_member_epoch=generation, member_id=member, topics=topics
        )
        name_bytes = 2 + len("requests")
        return {
            "heartbeat of a member": _spent(
                node, [_frame("Heartbeat", 3, heartbeat, (4 + 4 + 4,))], amounts.requests
            ),
            "offset commit": _spent(
                node,
                [_frame("OffsetCommit", 7, commit, (4 + 4 + 4 + 4 + name_bytes + 4 + 4,))],
                amounts.requests,
            ),
        }


def _joined(asker: BlockingClient) -> tuple[str, int]:
    """Joins the group as its only member."""
    until(
        lambda: not asker.ask("FindCoordinator", 2, FindCoordinatorRequest(key=GROUP)).error_code,
        "finding the coordinator",
        seconds_max=_SECONDS_MAX,
    )
    member = ""
    deadline = time.monotonic() + _SECONDS_MAX
    while True:
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=300_000,
            rebalance_timeout_ms=300_000,
            member_id=member,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
        joined = asker.ask("JoinGroup", 5, request)
        if not joined.error_code:
            break
        if joined.error_code == _MEMBER_ID_REQUIRED:
            member = joined.member_id
        elif time.monotonic() > deadline:
            raise RuntimeError(f"JoinGroup answered {joined.error_code}")
        else:
            time.sleep(0.1)
    assignment = SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"")
    synced = asker.ask(
        "SyncGroup",
        3,
        SyncGroupRequest(
            group_id=GROUP,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            assignments=[assignment],
        ),
    )
    if synced.error_code:
        raise RuntimeError(f"SyncGroup answered {synced.error_code}")
    return joined.member_id, joined.generation_id


def _at_rest(node: OdradekNode, amounts: Amounts) -> dict[str, float]:
    """CPU a second and memory of a broker at rest, of a partition, and of a connection."""

    def idle() -> float:
        before = cpu_seconds(node.pid)
        time.sleep(amounts.idle_seconds)
        return 1e6 * (cpu_seconds(node.pid) - before) / amounts.idle_seconds

    bare, bare_bytes = idle(), memory(node.pid).pss_bytes
    with plain_requests.connected(node.bootstrap, amounts.connections):
        time.sleep(1.0)
        connected_bytes, connected = memory(node.pid).pss_bytes, idle()
    with BlockingClient(_address(node)) as asker:
        before = cpu_seconds(node.pid)
        for number in range(amounts.partitions // _TOPIC_PARTITIONS):
            name = f"idle-{number:04d}"
            asker.create([CreatableTopic(name=name, num_partitions=_TOPIC_PARTITIONS, replication_factor=1)])
        created = 1e6 * (cpu_seconds(node.pid) - before) / amounts.partitions
    time.sleep(2.0)
    filled_bytes, filled = memory(node.pid).pss_bytes, idle()
    return {
        "broker at rest, a second": bare,
        "broker at rest, bytes": bare_bytes,
        "connection, a second": max(0.0, (connected - bare) / amounts.connections),
        "connection, bytes": max(0.0, (connected_bytes - bare_bytes) / amounts.connections),
        "replica created": created,
        "replica, a second": max(0.0, (filled - bare) / amounts.partitions),
        "replica, bytes": max(0.0, (filled_bytes - connected_bytes) / amounts.partitions),
    }


def _replication(cluster: OdradekCluster, amounts: Amounts) -> dict[str, float]:
    """What the leader and each follower pay for a request and a byte when there are three replicas."""
    placements: list[tuple[int, ...]] = [tuple(BROKERS)] * IN_FLIGHT
    with led_topic(cluster, placements) as topic:
        small, large = plain_requests.batch(SMALL_BYTES), plain_requests.batch(LARGE_BYTES)
        leader, follower = _replicated(cluster, topic, small, amounts.requests)
        leader_large, follower_large = _replicated(cluster, topic, large, max(1, amounts.requests // 10))
        weight = len(large) - len(small)
    return {
        "produce request, acks=all, three replicas: leader": leader,
        "produce request, acks=all, three replicas: a follower": follower,
        "byte in, three replicas: leader": max(0.0, (leader_large - leader) / weight),
        "byte in, three replicas: a follower": max(0.0, (follower_large - follower) / weight),
    }


def _replicated(cluster: OdradekCluster, topic: str, records: bytes, count: int) -> tuple[float, float]:
    frames = [plain_requests.produce(topic, [index], records, "all") for index in range(IN_FLIGHT)]
    host, port = cluster.address(BROKERS[0])
    bootstrap = f"{host}:{port}"
    plain_requests.until_accepted(bootstrap, frames, seconds_max=_SECONDS_MAX)
    before = [cpu_seconds(pid) for pid in cluster.pids()]
    with plain_requests.connected(bootstrap, IN_FLIGHT) as sockets:
        plain_requests.drive(sockets, frames, in_flight=IN_FLIGHT, count=count)
    leader, *followers = (
        1e6 * (cpu_seconds(pid) - spent) / count for pid, spent in zip(cluster.pids(), before, strict=True)
    )
    return leader, sum(followers) / len(followers)


def _spent(node: OdradekNode, frames: Sequence[Frame], count: int) -> float:
    """Microseconds of CPU that a request costs the broker; a tenth of the requests warm up."""
    plain_requests.until_accepted(node.bootstrap, frames, seconds_max=_SECONDS_MAX)
    with plain_requests.connected(node.bootstrap, IN_FLIGHT) as sockets:
        plain_requests.drive(sockets, frames, in_flight=IN_FLIGHT, count=max(1, count // 10))
        before = cpu_seconds(node.pid)
        plain_requests.drive(sockets, frames, in_flight=IN_FLIGHT, count=count)
        return 1e6 * (cpu_seconds(node.pid) - before) / count


def _frame(name: str, version: int, request: Any, error_positions: tuple[int, ...]) -> Frame:
    header = RequestHeader(api_by_name(name).key, version, 1, "bench")
    return Frame(data=encode_request(header, request), error_positions=error_positions)


def _address(node: OdradekNode) -> tuple[str, int]:
    host, _, port = node.bootstrap.rpartition(":")
    return host, int(port)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale.costs", description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="whether it runs; the figures mean nothing")
    options = parser.parse_args(arguments)
    costs = measure(SMOKE if options.smoke else FULL)
    document = {
        "machine": report.machine(),
        "measured": time.strftime("%Y-%m-%d", time.gmtime()),
        "unit": "microseconds of CPU; bytes where the name says so",
        "costs": {name: float(f"{value:.4g}") for name, value in costs.items()},
    }
    print(json.dumps(document, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
