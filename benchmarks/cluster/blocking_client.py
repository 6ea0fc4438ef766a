"""What a cluster says of itself, over plain connections: who controls it, who leads what, who is in sync.

A client library asks on its own schedule; these ask when the benchmark wants it, so that a wait ends
when what it waits for is there.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Self

from benchmarks.cluster.nodes import BROKERS, Cluster
from odradek.protocol import RequestHeader, api_by_name, decode_response, encode_request
from odradek.protocol.messages.cluster.describe_quorum import DescribeQuorumRequest, PartitionData, TopicData
from odradek.protocol.messages.data.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from odradek.protocol.messages.metadata.metadata import MetadataRequest, MetadataRequestTopic
from odradek.protocol.messages.topics.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from odradek.protocol.messages.topics.delete_topics import DeleteTopicsRequest
from odradek.protocol.messages.topics.describe_log_dirs import DescribeLogDirsRequest

_METADATA_LOG: Final = "__cluster_metadata"
_SOCKET_SECONDS_MAX: Final = 120.0
_CREATE_MS_MAX: Final = 120_000
_END: Final = -1
"""The timestamp of ListOffsets that asks for the end of a log."""


class BlockingClient:
    """One connection, one request after another. A context manager."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._peer = socket.create_connection(address, timeout=_SOCKET_SECONDS_MAX)
        self._peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._number = 0

    def ask(self, name: str, version: int, request: Any) -> Any:
        self._number += 1
        api = api_by_name(name)
        self._peer.sendall(encode_request(RequestHeader(api.key, version, self._number, "bench"), request))
        (size,) = struct.unpack(">i", self._exactly(4))
        return decode_response(api.key, version, self._exactly(size))[1]

    def _exactly(self, count: int) -> bytes:
        parts = bytearray()
        while len(parts) < count:
            part = self._peer.recv(count - len(parts))
            if not part:
                raise ConnectionError("the broker closed the connection")
            parts += part
        return bytes(parts)

    def controller(self) -> int:
        """The controller's broker id; -1 while this broker knows none."""
        asked = TopicData(topic_name=_METADATA_LOG, partitions=[PartitionData(partition_index=0)])
        answer = self.ask("DescribeQuorum", 0, DescribeQuorumRequest(topics=[asked]))
        return int(answer.topics[0].partitions[0].leader_id) if answer.topics else -1

    def partitions(self, topic: str | None) -> list[Any]:
        """The partitions of `topic`, or of all topics, as Metadata tells them."""
        topics = None if topic is None else [MetadataRequestTopic(name=topic)]
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        answer = self.ask("Metadata", 8, request)
        return [partition for item in answer.topics if not item.error_code for partition in item.partitions]

    def led_by(self, broker: int) -> dict[str, list[int]]:
        """The partitions that `broker` leads, by topic, as Metadata names them."""
        answer = self.ask("Metadata", 8, MetadataRequest(topics=None, allow_auto_topic_creation=False))
        led: dict[str, list[int]] = {}
        for topic in answer.topics:
            for partition in topic.partitions:
                if partition.leader_id == broker:
                    led.setdefault(topic.name, []).append(partition.partition_index)
        return led

    def has_ends(self, partitions: Mapping[str, Sequence[int]]) -> bool:
        """Whether this broker, as their leader, answers for the end offset of each of these partitions."""
        topics = [
            ListOffsetsTopic(
                name=name,
                partitions=[ListOffsetsPartition(partition_index=index, timestamp=_END) for index in indexes],
            )
            for name, indexes in partitions.items()
        ]
        answer = self.ask("ListOffsets", 6, ListOffsetsRequest(replica_id=-1, topics=topics))
        return not any(partition.error_code for topic in answer.topics for partition in topic.partitions)

    def replica_count(self) -> int:
        """How many replicas are in this broker's log directories."""
        answer = self.ask("DescribeLogDirs", 3, DescribeLogDirsRequest(topics=None))
        return sum(len(topic.partitions) for result in answer.results for topic in result.topics)

    def create(self, topics: Sequence[CreatableTopic]) -> None:
        """RuntimeError unless all were created."""
        request = CreateTopicsRequest(topics=list(topics), timeout_ms=_CREATE_MS_MAX)
        answer = self.ask("CreateTopics", 5, request)
        refused = {topic.error_code: topic for topic in answer.topics if topic.error_code}
        if refused:
            code, named = next(iter(refused.items()))
            raise RuntimeError(f"CreateTopics answered {code} for {named.name}: {named.error_message}")

    def delete(self, topic: str) -> None:
        request = DeleteTopicsRequest(topic_names=[topic], timeout_ms=_CREATE_MS_MAX)
        self.ask("DeleteTopics", 5, request)

    def close(self) -> None:
        self._peer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def new_topic(name: str, partitions: int = 1) -> CreatableTopic:
    """Makes a topic with three replicas, wherever the cluster puts them."""
    return CreatableTopic(name=name, num_partitions=partitions, replication_factor=len(BROKERS))


def placed_topic(name: str, placements: Sequence[Sequence[int]]) -> CreatableTopic:
    """Makes a topic with the replicas of each partition on these brokers, the first of which leads."""
    assignments = [
        CreatableReplicaAssignment(partition_index=number, broker_ids=list(brokers))
        for number, brokers in enumerate(placements)
    ]
    return CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=assignments)


def until(condition: Callable[[], bool], what: str, *, seconds_max: float, pause: float = 0.01) -> None:
    """Return when `condition` holds; TimeoutError with `what` when that takes too long."""
    deadline = time.monotonic() + seconds_max
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} took longer than {seconds_max:.0f} s")
        time.sleep(pause)


def all_in_sync(asker: BlockingClient, topic: str | None, count: int, *, leaders: Sequence[int] = ()) -> bool:
    """Whether `count` partitions are there, each led (by `leaders`, in order, if given) and in sync on all brokers."""
    partitions = asker.partitions(topic)
    if len(partitions) < count:
        return False
    if any(
        item.error_code or item.leader_id < 0 or len(item.isr_nodes) < len(BROKERS) for item in partitions
    ):
        return False
    by_index = sorted(partitions, key=lambda partition: partition.partition_index)
    return not leaders or [item.leader_id for item in by_index] == list(leaders)


def controller_of(cluster: Cluster, asked: int = BROKERS[0], *, seconds_max: float = 60.0) -> int:
    """Once there is one."""
    with BlockingClient(cluster.address(asked)) as asker:
        until(lambda: asker.controller() in BROKERS, "electing a controller", seconds_max=seconds_max)
        return asker.controller()
