"""The admin client against a broker that misbehaves on command."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from odradek.client.admin.admin import Admin
from odradek.client.admin.aio import AsyncAdmin
from odradek.client.admin.types import Append, ConfigResource, ConfigSource, NewTopic, Subtract
from odradek.client.network.errors import ClientClosedError, PartialFailureError, TimedOutError
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import TopicPartition
from odradek.protocol.messages.configs.describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from odradek.protocol.messages.configs.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)
from odradek.protocol.messages.data.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from odradek.protocol.messages.topics.create_topics import CreatableTopicResult, CreateTopicsResponse
from odradek.protocol.messages.topics.delete_topics import DeletableTopicResult, DeleteTopicsResponse
from odradek.protocol.messages.topics.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

Within = Callable[[Awaitable[Any]], Awaitable[Any]]
QUICK = {"retry_backoff_ms": 1, "retry_backoff_max_ms": 2, "reconnect_backoff_ms": 1}


def created(asked: Any, **codes: ErrorCode) -> CreateTopicsResponse:
    return CreateTopicsResponse(
        topics=[
            CreatableTopicResult(
                name=topic.name,
                error_code=codes.get(topic.name, 0),
                num_partitions=max(topic.num_partitions, 1),
                replication_factor=1,
                configs=[],
            )
            for topic in asked.message.topics
        ]
    )


async def test_topics_are_created_with_what_is_given_and_the_brokers_defaults_for_the_rest(
    broker: Any, within: Within
) -> None:
    broker.on["CreateTopics"] = created
    async with AsyncAdmin(broker.bootstrap, **QUICK) as admin:
        wanted = [NewTopic("a", 3, configs={"retention.ms": "5"}), "b", NewTopic("c", assignments=[[1], [1]])]
        answers = await within(admin.create_topics(wanted))
    assert {name: topic.partitions for name, topic in answers.items()} == {"a": 3, "b": 1, "c": 1}
    (request,) = broker.requests("CreateTopics")
    first, second, third = request.topics
    assert (first.num_partitions, first.configs[0].name, first.configs[0].value) == (3, "retention.ms", "5")
    assert (second.num_partitions, second.replication_factor) == (-1, -1)
    assert [assignment.broker_ids for assignment in third.assignments] == [[1], [1]]


async def test_the_error_of_a_single_topic_is_raised_as_it_is(broker: Any, within: Within) -> None:
    broker.on["CreateTopics"] = lambda asked: created(asked, a=ErrorCode.TOPIC_ALREADY_EXISTS)
    async with AsyncAdmin(broker.bootstrap, **QUICK) as admin:
        with pytest.raises(KafkaError, match="a: a topic of this name already exists") as caught:
            await within(admin.create_topics(["a"]))
    assert type(caught.value) is KafkaError
    assert caught.value.code is ErrorCode.TOPIC_ALREADY_EXISTS


async def test_several_topics_are_distinguished_when_some_fail(broker: Any, within: Within) -> None:
    broker.on["CreateTopics"] = lambda asked: created(
        asked, a=ErrorCode.TOPIC_ALREADY_EXISTS, c=ErrorCode.INVALID_PARTITIONS
    )
    async with AsyncAdmin(broker.bootstrap, **QUICK) as admin:
        with pytest.raises(
            PartialFailureError, match=r"create_topics failed for 2 of 3: a: .*; c: "
        ) as caught:
            await within(admin.create_topics(["a", "b", "c"]))
    assert {name: error.code.name for name, error in caught.value.errors.items()} == {
        "a": "TOPIC_ALREADY_EXISTS",
        "c": "INVALID_PARTITIONS",
    }
    assert list(caught.value.results) == ["b"]


async def test_only_what_failed_for_the_moment_is_asked_again(broker: Any, within: Within) -> None:
    broker.on["CreateTopics"] = created
    broker.once["CreateTopics"] = [lambda asked: created(asked, b=ErrorCode.NOT_CONTROLLER)]
    async with AsyncAdmin(broker.bootstrap, **QUICK) as admin:
        await within(admin.create_topics(["a", "b"]))
    assert [[topic.name for topic in request.topics] for request in broker.requests("CreateTopics")] == [
        ["a", "b"],
        ["b"],
    ]


async def test_a_lost_answer_is_asked_for_again(broker: Any, within: Within, hang_up: object) -> None:
    broker.on["CreateTopics"] = created
    broker.once["CreateTopics"] = [lambda _: hang_up]
    async with AsyncAdmin(broker.bootstrap, **QUICK) as admin:
        assert set(await within(admin.create_topics(["a"]))) == {"a"}


async def test_what_does_not_succeed_in_time_says_why(broker: Any, within: Within) -> None:
    broker.on["CreateTopics"] = lambda asked: created(asked, a=ErrorCode.NOT_CONTROLLER)
    async with AsyncAdmin(broker.bootstrap, **QUICK) as admin:
        with pytest.raises(KafkaError) as caught:
            await within(admin.create_topics(["a"], timeout_s=0.05))
    assert caught.value.code in (ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT)


async def test_a_topic_that_does_not_exist_is_not_asked_for_twice(broker: Any, within: Within) -> None:
    broker.on["DeleteTopics"] = lambda asked: DeleteTopicsResponse(
        responses=[DeletableTopicResult(name=topic.name, error_code=3) for topic in asked.message.topics]
    )
    async with AsyncAdmin(broker.bootstrap, **QUICK) as admin:
        with pytest.raises(KafkaError, match="nope: there is no such topic"):
            await within(admin.delete_topics(["nope"]))
        with pytest.raises(KafkaError, match="nope: there is no such topic"):
            await within(admin.describe_topics(["nope"]))
    assert len(broker.requests("DeleteTopics")) == 1


async def test_topics_are_listed_and_described(broker: Any, within: Within) -> None:
    broker.topics = {"b": 2, "a": 1}
    async with AsyncAdmin(broker.bootstrap, **QUICK) as admin:
        assert await within(admin.list_topics()) == ["a", "b"]
        described = (await within(admin.describe_topics(["b"])))["b"]
        cluster = await within(admin.describe_cluster())
    assert described.topic_partitions == (TopicPartition("b", 0), TopicPartition("b", 1))
    assert [
        (partition.leader, partition.leader_epoch, partition.isr) for partition in described.partitions
    ] == [(1, 3, (1,))] * 2
    assert (cluster.cluster_id, cluster.controller_id) == ("scripted", 1)
    assert [(node.broker_id, node.port) for node in cluster.brokers] == [(1, broker.port)]


async def test_settings_are_described_and_altered(broker: Any, within: Within) -> None:
    topic, own = ConfigResource.topic("t"), ConfigResource.broker(1)
    broker.on["DescribeConfigs"] = lambda asked: DescribeConfigsResponse(
        results=[
            DescribeConfigsResult(
                error_code=0,
                error_message=None,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
                configs=[DescribeConfigsResourceResult(name="retention.ms", value="5", config_source=1)],
            )
            for resource in asked.message.resources
        ]
    )
    broker.on["IncrementalAlterConfigs"] = lambda asked: IncrementalAlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(
                error_code=0,
                error_message=None,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource in asked.message.resources
        ]
    )
    async with AsyncAdmin(broker.bootstrap, **QUICK) as admin:
        described = await within(admin.describe_configs([topic, own]))
        await within(
            admin.alter_configs({topic: {"a": "1", "b": None, "c": Append("x"), "d": Subtract("y")}})
        )
        with pytest.raises(KafkaError, match="there is no broker 7"):
            await within(admin.describe_configs([ConfigResource.broker(7)]))
    assert set(described) == {topic, own}
    entry = described[topic]["retention.ms"]
    assert (entry.value, entry.source, entry.is_default) == ("5", ConfigSource.TOPIC, False)
    (request,) = broker.requests("IncrementalAlterConfigs")
    assert [
        (config.name, config.config_operation, config.value) for config in request.resources[0].configs
    ] == [
        ("a", 0, "1"),
        ("b", 1, None),
        ("c", 2, "x"),
        ("d", 3, "y"),
    ]


async def test_records_are_deleted_where_their_leader_is(broker: Any, within: Within) -> None:
    broker.topics = {"t": 2}
    broker.on["DeleteRecords"] = lambda asked: DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[
                    DeleteRecordsPartitionResult(
                        partition_index=partition.partition_index, low_watermark=partition.offset
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in asked.message.topics
        ]
    )
    before = {TopicPartition("t", 0): 5, TopicPartition("t", 1): 7}
    async with AsyncAdmin(broker.bootstrap, **QUICK) as admin:
        assert await within(admin.delete_records(before)) == before
        with pytest.raises(KafkaError, match="t-9: the topic has 2 partitions"):
            await within(admin.delete_records({TopicPartition("t", 9): 1}))


async def test_log_directories_are_described_broker_by_broker(broker: Any, within: Within) -> None:
    broker.on["DescribeLogDirs"] = lambda _: DescribeLogDirsResponse(
        results=[
            DescribeLogDirsResult(
                log_dir="/data",
                total_bytes=100,
                usable_bytes=60,
                topics=[
                    DescribeLogDirsTopic(
                        name="t", partitions=[DescribeLogDirsPartition(partition_index=0, partition_size=40)]
                    )
                ],
            ),
            DescribeLogDirsResult(log_dir="/gone", error_code=ErrorCode.KAFKA_STORAGE_ERROR),
        ]
    )
    async with AsyncAdmin(broker.bootstrap, **QUICK) as admin:
        whole, gone = (await within(admin.describe_log_dirs()))[1]
    assert (whole.path, whole.total_bytes, whole.usable_bytes, whole.error) == ("/data", 100, 60, None)
    assert whole.replicas[TopicPartition("t", 0)].size_bytes == 40
    assert "offline" in (gone.error or "")


async def test_an_api_that_the_broker_lacks_is_named(broker: Any, within: Within) -> None:
    broker.versions = {"ApiVersions": (0, 3), "Metadata": (0, 9)}
    async with AsyncAdmin(broker.bootstrap, **QUICK) as admin:
        with pytest.raises(KafkaError, match="does not offer CreateTopics") as caught:
            await within(admin.create_topics(["a"]))
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION


async def test_when_known_brokers_are_gone_the_bootstrap_list_is_asked_again(
    make_broker: Callable[[], Awaitable[Any]], within: Within
) -> None:
    first, second = await make_broker(), await make_broker()
    first.nodes = {1: 1}  # it names a broker that no one can reach
    async with AsyncAdmin([first.bootstrap, second.bootstrap], **QUICK) as admin:
        await within(admin.list_topics())
        await first.stop()
        assert await within(admin.list_topics()) == ["t"]


async def test_the_synchronous_face_does_the_same(broker: Any, within: Within) -> None:
    def work() -> None:
        with Admin.from_config({"bootstrap.servers": broker.bootstrap, "retry.backoff.ms": 1}) as admin:
            assert admin.list_topics() == ["t"]
            assert admin.describe_cluster().cluster_id == "scripted"
        with pytest.raises(ClientClosedError):
            admin.list_topics()

    await within(asyncio.to_thread(work))


def test_an_unreachable_cluster_is_named_in_one_sentence() -> None:
    with (
        Admin("127.0.0.1:1", default_api_timeout_ms=500, **QUICK) as admin,
        pytest.raises(TimedOutError, match=r"cannot connect to 127\.0\.0\.1:1: connection refused"),
    ):
        admin.list_topics()


async def test_offsets_of_groups_are_given_up_after_the_time_of_the_call(within: Within) -> None:
    async with AsyncAdmin("127.0.0.1:1", **QUICK) as admin:
        with pytest.raises(TimedOutError, match=r"within 0\.05 s .*nothing listens there"):
            await within(admin.list_group_offsets("g", timeout_s=0.05))
        with pytest.raises(TimedOutError, match=r"within 0\.05 s .*nothing listens there"):
            await within(admin.alter_group_offsets("g", {TopicPartition("t", 0): 1}, timeout_s=0.05))
