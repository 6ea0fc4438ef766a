"""A cluster that exists in answers alone: thousands of topics in a second, brokers that are dead when a picture needs it.

python -m tests.interop.console.scripted_cluster --topics 10000 --dead 3    # prints `ready HOST:PORT`
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Iterable
from typing import Any, Final
from uuid import UUID

from tests.unit.client.conftest import ReceivedRequest, ScriptedBroker

from odradek.protocol import APIS
from odradek.protocol.acls import AclOperation, AclPermission, AclResourceType, PatternType
from odradek.protocol.messages.configs.describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from odradek.protocol.messages.data.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from odradek.protocol.messages.groups.list_groups import ListGroupsResponse
from odradek.protocol.messages.metadata.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from odradek.protocol.messages.security.describe_acls import (
    AclDescription,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from odradek.protocol.messages.topics.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from odradek.protocol.messages.topics.list_partition_reassignments import (
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)

PARTITIONS: Final = 4
BROKERS: Final = 6
GIB: Final = 1 << 30
LARGEST: Final = 190 * GIB
_ANSWERED: Final = (
    "ApiVersions",
    "Metadata",
    "DescribeLogDirs",
    "ListGroups",
    "DescribeConfigs",
    "ListOffsets",
    "DescribeAcls",
    "ListPartitionReassignments",
)
_AREAS: Final = ("orders", "payments", "shipments", "flights", "clicks", "audit", "prices", "stock")
_EARLIEST: Final = -2
RECEIVER: Final = 6
"""The broker to which replicas of the first topics move. It has a port of its own, since its directories differ."""
COPIED: Final = (0.35, 0.8, 0.1)
"""The share of each of these replicas that the receiver has."""


def topic_name(number: int) -> str:
    return f"{_AREAS[number % len(_AREAS)]}.team-{number // len(_AREAS) % 40}.v{number // 320}"


class ScriptedCluster:
    """Answers the requests of the console for topics with two replicas each, on brokers in three racks."""

    def __init__(self, topics: int, dead: Iterable[int] = ()) -> None:
        self._topics = [topic_name(number) for number in range(topics)]
        self._numbers = {name: number for number, name in enumerate(self._topics)}
        self._dead = frozenset(dead)
        self.broker = ScriptedBroker()
        self.broker.versions = {
            api.name: (api.versions.min, api.versions.max) for api in APIS.values() if api.name in _ANSWERED
        }
        self.broker.on = {
            "Metadata": self._metadata,
            "DescribeLogDirs": self._directories,
            "ListGroups": lambda _: ListGroupsResponse(groups=[]),
            "DescribeConfigs": self._settings,
            "ListOffsets": self._offsets,
            "DescribeAcls": lambda _: _acls(),
            "ListPartitionReassignments": self._moves,
        }
        self._whole: MetadataResponse | None = None
        self._all_directories: dict[bool, DescribeLogDirsResponse] = {}
        self._receiver: asyncio.Server | None = None
        self._receiver_port = 0

    async def start(self) -> str:
        """Returns the address."""
        self.broker.server = await asyncio.start_server(self.broker.serve, "127.0.0.1", 0)
        self.broker.port = self.broker.server.sockets[0].getsockname()[1]
        self._receiver = await asyncio.start_server(self.broker.serve, "127.0.0.1", 0)
        self._receiver_port = self._receiver.sockets[0].getsockname()[1]
        return self.broker.bootstrap

    async def stop(self) -> None:
        """Hangs up on everyone, whatever was to be sent. Idempotent."""
        for server in (self.broker.server, self._receiver):
            if server is not None:
                server.close()
        for writer in self.broker.writers:
            writer.transport.abort()
        await asyncio.sleep(0)

    def _metadata(self, request: ReceivedRequest) -> MetadataResponse:
        self.broker.asked.clear()
        wanted = request.message.topics
        if wanted is None:
            self._whole = self._whole or self._described(self._topics)
            return self._whole
        return self._described([topic.name for topic in wanted])

    def _described(self, names: Iterable[str]) -> MetadataResponse:
        return MetadataResponse(
            cluster_id="x7Qm2sVNTbWk0aYcHf3dGw",
            controller_id=1,
            brokers=[
                MetadataResponseBroker(
                    node_id=number,
                    host="127.0.0.1",
                    port=self._receiver_port if number == RECEIVER else self.broker.port,
                    rack=f"zone-{'abc'[number % 3]}",
                )
                for number in range(1, BROKERS + 1)
                if number not in self._dead
            ],
            topics=[self._topic(name) for name in names],
        )

    def _topic(self, name: str) -> MetadataResponseTopic:
        number = self._numbers.get(name)
        if number is None:
            return MetadataResponseTopic(error_code=3, name=name)
        return MetadataResponseTopic(
            name=name,
            topic_id=UUID(int=number + 1),
            partitions=[self._partition(number, index) for index in range(PARTITIONS)],
        )

    def _partition(self, topic: int, index: int) -> MetadataResponsePartition:
        first = (topic + index) % BROKERS
        replicas = [first + 1, (first + 1) % BROKERS + 1]
        alive = [replica for replica in replicas if replica not in self._dead]
        return MetadataResponsePartition(
            partition_index=index,
            leader_id=alive[0] if alive else -1,
            leader_epoch=1,
            replica_nodes=replicas,
            isr_nodes=alive,
        )

    def _directories(self, request: ReceivedRequest) -> DescribeLogDirsResponse:
        writer = self.broker.writers[request.connection - 1]
        is_receiver = writer.get_extra_info("sockname")[1] == self._receiver_port
        if is_receiver not in self._all_directories:
            self._all_directories[is_receiver] = self._directory(is_receiver=is_receiver)
        return self._all_directories[is_receiver]

    def _directory(self, *, is_receiver: bool) -> DescribeLogDirsResponse:
        return DescribeLogDirsResponse(
            results=[
                DescribeLogDirsResult(
                    log_dir="/var/lib/kafka",
                    total_bytes=2_000 * GIB,
                    usable_bytes=700 * GIB,
                    topics=[
                        DescribeLogDirsTopic(
                            name=name,
                            partitions=[
                                DescribeLogDirsPartition(
                                    partition_index=index,
                                    partition_size=round(
                                        self._size(number) * _held(number, index, is_receiver=is_receiver)
                                    ),
                                )
                                for index in range(PARTITIONS)
                            ],
                        )
                        for number, name in enumerate(self._topics)
                    ],
                )
            ]
        )

    def _size(self, number: int) -> int:
        """Returns the bytes of a partition: few topics are large, most are small."""
        rank = number * 7919 % len(self._topics)
        return LARGEST // PARTITIONS // (1 + rank)

    def _moves(self, _: ReceivedRequest) -> ListPartitionReassignmentsResponse:
        """Returns moves of the first topics to the receiver, which holds a part of them already."""
        return ListPartitionReassignmentsResponse(
            topics=[
                OngoingTopicReassignment(
                    name=name,
                    partitions=[
                        OngoingPartitionReassignment(
                            partition_index=0,
                            replicas=[number + 1, number + 2, RECEIVER],
                            adding_replicas=[RECEIVER],
                            removing_replicas=[number + 2],
                        )
                    ],
                )
                for number, name in enumerate(self._topics[: len(COPIED)])
            ]
        )

    def _settings(self, request: ReceivedRequest) -> DescribeConfigsResponse:
        return DescribeConfigsResponse(
            results=[
                DescribeConfigsResult(
                    resource_type=resource.resource_type,
                    resource_name=resource.resource_name,
                    configs=[
                        DescribeConfigsResourceResult(name="min.insync.replicas", value="1", config_source=5),
                        DescribeConfigsResourceResult(name="retention.ms", value="86400000", config_source=1),
                    ],
                )
                for resource in request.message.resources
            ]
        )

    def _offsets(self, request: ReceivedRequest) -> ListOffsetsResponse:
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[
                        ListOffsetsPartitionResponse(
                            partition_index=partition.partition_index,
                            offset=0 if partition.timestamp == _EARLIEST else 1_000_000,
                        )
                        for partition in topic.partitions
                    ],
                )
                for topic in request.message.topics
            ]
        )


def _held(topic: int, index: int, *, is_receiver: bool) -> float:
    """Returns the share of a partition that a broker has."""
    return COPIED[topic] if is_receiver and index == 0 and topic < len(COPIED) else 1.0


def _acls() -> DescribeAclsResponse:
    rules = (
        (AclResourceType.TOPIC, "orders.", PatternType.PREFIXED, "billing", AclOperation.READ),
        (AclResourceType.TOPIC, "orders.", PatternType.PREFIXED, "shop", AclOperation.WRITE),
        (AclResourceType.TOPIC, "payments.", PatternType.PREFIXED, "billing", AclOperation.ALL),
        (AclResourceType.GROUP, "billing", PatternType.LITERAL, "billing", AclOperation.READ),
        (AclResourceType.CLUSTER, "kafka-cluster", PatternType.LITERAL, "operator", AclOperation.ALTER),
        (AclResourceType.TRANSACTIONAL_ID, "shop-", PatternType.PREFIXED, "shop", AclOperation.WRITE),
    )
    return DescribeAclsResponse(
        resources=[
            DescribeAclsResource(
                resource_type=kind,
                resource_name=name,
                pattern_type=how,
                acls=[
                    AclDescription(
                        principal=f"User:{user}",
                        host="*",
                        operation=operation,
                        permission_type=AclPermission.ALLOW,
                    )
                ],
            )
            for kind, name, how, user, operation in rules
        ]
    )


async def run(arguments: Any) -> None:
    address = await ScriptedCluster(arguments.topics, arguments.dead).start()
    print(f"ready {address}", flush=True)  # noqa: T201 - what a process that starts it reads
    await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--dead", type=int, nargs="*", default=[])
    asyncio.run(run(parser.parse_args()))
