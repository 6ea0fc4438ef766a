"""Requests that are sent in one write get the answers that they get one after another."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pytest
from tests.kit.requests import batch_of, fetch_request, produce_request
from tests.kit.wire import Wire

from odradek.protocol.messages.configs.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from odradek.protocol.messages.configs.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.protocol.messages.data.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from odradek.protocol.messages.data.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from odradek.protocol.messages.groups.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.protocol.messages.groups.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from odradek.protocol.messages.metadata.metadata import MetadataRequest, MetadataRequestTopic
from odradek.protocol.messages.topics.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from odradek.protocol.messages.topics.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.protocol.messages.topics.delete_topics import DeleteTopicsRequest

EARLIEST, LATEST = -2, -1
TOPIC = 2


@dataclass(frozen=True, kw_only=True)
class Step:
    """One request about a topic and a group that have the same name."""

    api: str
    version: int
    request: Callable[[str], Any]
    outcome: Callable[[Any], Any]


def produced(count: int) -> Step:
    return Step(
        api="Produce",
        version=9,
        request=lambda name: produce_request(name, batch_of([b"v"] * count)),
        outcome=lambda response: _of_partition(response.responses[0].partition_responses[0], "base_offset"),
    )


def _of_partition(partition: Any, field: str) -> Any:
    return partition.error_code, getattr(partition, field)


def offsets(timestamp: int) -> Step:
    def request(name: str) -> ListOffsetsRequest:
        partition = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        return ListOffsetsRequest(topics=[ListOffsetsTopic(name=name, partitions=[partition])])

    return Step(
        api="ListOffsets",
        version=5,
        request=request,
        outcome=lambda response: _of_partition(response.topics[0].partitions[0], "offset"),
    )


def deleted(offset: int) -> Step:
    def request(name: str) -> DeleteRecordsRequest:
        partition = DeleteRecordsPartition(partition_index=0, offset=offset)
        topic = DeleteRecordsTopic(name=name, partitions=[partition])
        return DeleteRecordsRequest(topics=[topic], timeout_ms=5000)

    return Step(
        api="DeleteRecords",
        version=1,
        request=request,
        outcome=lambda response: _of_partition(response.topics[0].partitions[0], "low_watermark"),
    )


def fetched(offset: int) -> Step:
    def outcome(response: Any) -> Any:
        partition = response.responses[0].partitions[0]
        return (
            partition.error_code,
            partition.high_watermark,
            partition.log_start_offset,
            len(partition.records or b""),
        )

    return Step(api="Fetch", version=11, request=lambda name: fetch_request(name, offset), outcome=outcome)


def committed(offset: int) -> Step:
    def request(name: str) -> OffsetCommitRequest:
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        topic = OffsetCommitRequestTopic(name=name, partitions=[partition])
        return OffsetCommitRequest(group_id=name, topics=[topic])

    return Step(
        api="OffsetCommit",
        version=7,
        request=request,
        outcome=lambda response: response.topics[0].partitions[0].error_code,
    )


def commit_looked_up() -> Step:
    def request(name: str) -> OffsetFetchRequest:
        return OffsetFetchRequest(
            group_id=name, topics=[OffsetFetchRequestTopic(name=name, partition_indexes=[0])]
        )

    return Step(
        api="OffsetFetch",
        version=5,
        request=request,
        outcome=lambda response: _of_partition(response.topics[0].partitions[0], "committed_offset"),
    )


def created() -> Step:
    def request(name: str) -> CreateTopicsRequest:
        return CreateTopicsRequest(
            topics=[CreatableTopic(name=name, num_partitions=1, replication_factor=1)], timeout_ms=5000
        )

    return Step(
        api="CreateTopics", version=4, request=request, outcome=lambda response: response.topics[0].error_code
    )


def grown(count: int) -> Step:
    def request(name: str) -> CreatePartitionsRequest:
        return CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=name, count=count)], timeout_ms=5000
        )

    return Step(
        api="CreatePartitions",
        version=1,
        request=request,
        outcome=lambda response: response.results[0].error_code,
    )


def removed() -> Step:
    return Step(
        api="DeleteTopics",
        version=3,
        request=lambda name: DeleteTopicsRequest(topic_names=[name], timeout_ms=5000),
        outcome=lambda response: response.responses[0].error_code,
    )


def described() -> Step:
    def request(name: str) -> MetadataRequest:
        topic = MetadataRequestTopic(topic_id=UUID(int=0), name=name)
        return MetadataRequest(topics=[topic], allow_auto_topic_creation=False)

    return Step(
        api="Metadata",
        version=8,
        request=request,
        outcome=lambda response: (response.topics[0].error_code, len(response.topics[0].partitions)),
    )


def retention_set(retention_ms: int) -> Step:
    def request(name: str) -> IncrementalAlterConfigsRequest:
        config = AlterableConfig(name="retention.ms", config_operation=0, value=str(retention_ms))
        resource = AlterConfigsResource(resource_type=TOPIC, resource_name=name, configs=[config])
        return IncrementalAlterConfigsRequest(resources=[resource])

    return Step(
        api="IncrementalAlterConfigs",
        version=0,
        request=request,
        outcome=lambda response: response.responses[0].error_code,
    )


def retention_looked_up() -> Step:
    def request(name: str) -> DescribeConfigsRequest:
        resource = DescribeConfigsResource(
            resource_type=TOPIC, resource_name=name, configuration_keys=["retention.ms"]
        )
        return DescribeConfigsRequest(resources=[resource])

    def outcome(response: Any) -> Any:
        described_resource = response.results[0]
        return described_resource.error_code, [config.value for config in described_resource.configs]

    return Step(api="DescribeConfigs", version=1, request=request, outcome=outcome)


def random_step(chance: random.Random) -> Step:
    return chance.choice(
        (
            produced(chance.randint(1, 5)),
            produced(chance.randint(1, 5)),
            offsets(chance.choice((EARLIEST, LATEST))),
            deleted(chance.randint(-1, 4)),
            fetched(chance.randint(0, 6)),
            committed(chance.randint(0, 9)),
            commit_looked_up(),
            created(),
            grown(chance.randint(1, 4)),
            removed(),
            described(),
            retention_set(chance.randint(1, 9) * 3_600_000),
            retention_looked_up(),
        )
    )


async def one_after_another(wire: Wire, steps: list[Step], name: str) -> list[Any]:
    return [step.outcome(await wire.ask(step.request(name), step.version)) for step in steps]


async def in_one_write(wire: Wire, steps: list[Step], name: str) -> list[Any]:
    for step in steps:
        wire.ask_later(step.request(name), step.version)
    return [step.outcome(await wire.response()) for step in steps]


async def test_records_deleted_by_an_earlier_request_are_gone_for_a_later_one(wire: Wire) -> None:
    steps = [produced(3), deleted(2), offsets(EARLIEST), fetched(0)]
    await wire.create("t")
    outcomes = await in_one_write(wire, steps, "t")
    assert outcomes[:3] == [(0, 0), (0, 2), (0, 2)]


async def test_a_fetch_behind_a_produce_sees_its_records(wire: Wire) -> None:
    await wire.create("t")
    (_, _), (error, high_watermark, _, size) = await in_one_write(wire, [produced(2), fetched(0)], "t")
    assert (error, high_watermark) == (0, 2)
    assert size > 0


@pytest.mark.parametrize("seed", range(12))
async def test_random_requests_get_the_same_answers_in_one_write_as_one_after_another(
    wire: Wire, seed: int
) -> None:
    chance = random.Random(seed)
    await wire.find_coordinator("apart")
    await wire.find_coordinator("together")
    steps = [created(), *(random_step(chance) for _ in range(15))]
    apart = await one_after_another(wire, steps, "apart")
    together = await in_one_write(wire, steps, "together")
    assert list(zip((step.api for step in steps), together, strict=True)) == list(
        zip((step.api for step in steps), apart, strict=True)
    )
