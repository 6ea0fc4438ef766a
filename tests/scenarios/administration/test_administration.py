"""Topics, settings, offsets and log directories, as the wire has them."""

from typing import Any
from uuid import UUID

import pytest

from odradek.model.errors import ErrorCode
from odradek.protocol.messages.configs.alter_configs import AlterableConfig as ReplacedConfig
from odradek.protocol.messages.configs.alter_configs import AlterConfigsRequest
from odradek.protocol.messages.configs.alter_configs import AlterConfigsResource as ReplacedResource
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
from odradek.protocol.messages.data.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from odradek.protocol.messages.metadata.api_versions import ApiVersionsRequest
from odradek.protocol.messages.metadata.describe_cluster import DescribeClusterRequest
from odradek.protocol.messages.metadata.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from odradek.protocol.messages.metadata.metadata import MetadataRequest, MetadataRequestTopic
from odradek.protocol.messages.topics.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from odradek.protocol.messages.topics.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.protocol.messages.topics.delete_topics import DeleteTopicsRequest, DeleteTopicState
from odradek.protocol.messages.topics.describe_log_dirs import DescribeLogDirsRequest
from odradek.protocol.messages.transactions.init_producer_id import InitProducerIdRequest

SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
TOPIC, BROKER = 2, 4


async def offset_at(wire: Any, topic: str, timestamp: int, version: int = 9) -> tuple[int, int, int]:
    request = ListOffsetsRequest(
        replica_id=-1,
        topics=[ListOffsetsTopic(name=topic, partitions=[ListOffsetsPartition(timestamp=timestamp)])],
    )
    record = (await wire.ask(request, version)).topics[0].partitions[0]
    return record.error_code, record.offset, record.timestamp


async def config_of(wire: Any, kind: int, name: str) -> dict[str, Any]:
    request = DescribeConfigsRequest(
        resources=[DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)],
        include_synonyms=True,
        include_documentation=True,
    )
    topic_result = (await wire.ask(request, 4)).results[0]
    assert topic_result.error_code == 0, topic_result.error_message
    return {entry.name: entry for entry in topic_result.configs}


async def alter(wire: Any, kind: int, name: str, *changes: tuple[str, int, str | None]) -> int:
    configs = [
        AlterableConfig(name=key, config_operation=operation, value=value)
        for key, operation, value in changes
    ]
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    response = await wire.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    return int(response.responses[0].error_code)


async def delete(wire: Any, **topic: Any) -> int:
    request = DeleteTopicsRequest(topics=[DeleteTopicState(**topic)], timeout_ms=1000)
    return int((await wire.ask(request, 6)).responses[0].error_code)


async def test_a_topic_deleted_and_made_again_is_empty_and_has_another_id(wire: Any) -> None:
    first = await wire.create("t")
    await wire.produce("t", [b"old"])
    assert await delete(wire, name="t") == 0
    assert (await wire.fetch("t", 0)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    second = await wire.create("t")
    assert second.topic_id != first.topic_id
    assert await wire.values("t") == []
    assert await delete(wire, name=None, topic_id=first.topic_id) == ErrorCode.UNKNOWN_TOPIC_ID
    assert await delete(wire, name=None, topic_id=second.topic_id) == 0


async def test_deleting_what_does_not_exist_says_so(wire: Any) -> None:
    assert await delete(wire, name="none") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await delete(wire, name=None) == ErrorCode.INVALID_REQUEST
    assert await delete(wire, name="both", topic_id=UUID(int=5)) == ErrorCode.INVALID_REQUEST


async def test_a_waiting_fetch_hears_of_the_deletion_of_its_topic(
    scene: Any, wire: Any, make_fetch: Any
) -> None:
    await wire.create("t")
    reader = await scene.connect()
    reader.ask_later(make_fetch("t", 0, max_wait_ms=20_000), 11)
    await delete(wire, name="t")
    response = await reader.response()
    assert response.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_topic_named_twice_in_one_request_is_refused_and_others_are_made(wire: Any) -> None:
    topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in ("a", "b", "a")]
    response = await wire.ask(CreateTopicsRequest(topics=topics, timeout_ms=1000), 7)
    codes = {topic.name: topic.error_code for topic in response.topics}
    assert codes == {"a": ErrorCode.INVALID_REQUEST, "b": 0}


async def test_added_partitions_take_records_at_once(wire: Any) -> None:
    await wire.create("t")
    request = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name="t", count=3, assignments=None)], timeout_ms=1000
    )
    assert (await wire.ask(request, 3)).results[0].error_code == 0
    assert (await wire.produce("t", [b"x"], partition=2)).error_code == 0
    assert (await wire.ask(request, 3)).results[0].error_code == ErrorCode.INVALID_PARTITIONS


async def test_metadata_creates_a_topic_when_both_sides_allow_it(scene: Any) -> None:
    await scene.start(auto_create_topics_enable="true", num_partitions="3")
    wire = await scene.connect()
    request = MetadataRequest(topics=[MetadataRequestTopic(name="t")], allow_auto_topic_creation=False)
    topic = (await wire.ask(request, 9)).topics[0]
    assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    request = MetadataRequest(topics=[MetadataRequestTopic(name="t")], allow_auto_topic_creation=True)
    topic = (await wire.ask(request, 9)).topics[0]
    assert (topic.error_code, len(topic.partitions)) == (0, 3)
    assert (await wire.produce("t", [b"x"])).error_code == 0
    request = MetadataRequest(topics=[MetadataRequestTopic(name="bad name")], allow_auto_topic_creation=True)
    assert (await wire.ask(request, 9)).topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


async def test_no_topic_is_created_where_the_broker_forbids_it(scene: Any) -> None:
    await scene.start(auto_create_topics_enable="false")
    wire = await scene.connect()
    request = MetadataRequest(topics=[MetadataRequestTopic(name="t")], allow_auto_topic_creation=True)
    topic = (await wire.ask(request, 9)).topics[0]
    assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("version", range(14))
async def test_metadata_answers_in_every_version(wire: Any, version: int) -> None:
    created = await wire.create("t")
    request = MetadataRequest(topics=[] if version == 0 else None)
    response = await wire.ask(request, version)
    assert [topic.name for topic in response.topics] == ["t"]
    assert response.brokers[0].port > 0
    if version >= 10:
        assert response.topics[0].topic_id == created.topic_id
    if version >= 12:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=created.topic_id)])
        assert (await wire.ask(request, version)).topics[0].name == "t"


async def test_clients_get_the_address_that_they_used_or_the_advertised_one(scene: Any) -> None:
    await scene.start()
    wire = await scene.connect()
    broker = (await wire.ask(MetadataRequest(topics=None), 9)).brokers[0]
    assert (broker.host, broker.port) == ("127.0.0.1", scene.broker.port)
    await scene.stop()
    await scene.start(advertised_listeners="PLAINTEXT://kafka.example:19092")
    wire = await scene.connect()
    broker = (await wire.ask(MetadataRequest(topics=None), 9)).brokers[0]
    assert (broker.host, broker.port) == ("kafka.example", 19092)
    cluster = await wire.ask(DescribeClusterRequest(), 1)
    assert (cluster.brokers[0].host, cluster.controller_id) == ("kafka.example", 1)


async def test_offsets_are_found_by_time_and_by_kind(wire: Any, make_batch: Any, make_produce: Any) -> None:
    await wire.create("t")
    for start in (1000, 3000, 2000):
        await wire.ask(make_produce("t", make_batch([b"a", b"b"], timestamp=start)), 9)
    assert await offset_at(wire, "t", -2) == (0, 0, -1)
    assert await offset_at(wire, "t", -1) == (0, 6, -1)
    assert await offset_at(wire, "t", -3) == (0, 3, 3001)
    assert await offset_at(wire, "t", 1001) == (0, 1, 1001)
    assert await offset_at(wire, "t", 1002) == (0, 2, 3000)
    assert await offset_at(wire, "t", 9999) == (0, -1, -1)
    assert (await offset_at(wire, "t", -3, version=6))[0] == ErrorCode.UNSUPPORTED_VERSION
    assert (await offset_at(wire, "none", -1))[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_deleted_records_are_gone_for_readers(wire: Any) -> None:
    await wire.create("t")
    await wire.produce("t", [b"a", b"b", b"c"])

    async def delete_up_to(offset: int) -> tuple[int, int]:
        partition = DeleteRecordsPartition(partition_index=0, offset=offset)
        request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=[partition])])
        partition_data = (await wire.ask(request, 2)).topics[0].partitions[0]
        return partition_data.error_code, partition_data.low_watermark

    assert await delete_up_to(2) == (0, 2)
    assert (await wire.fetch("t", 1)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert await wire.values("t", 2) == [b"c"]
    assert await offset_at(wire, "t", -2) == (0, 2, -1)
    assert (await delete_up_to(9))[0] == ErrorCode.OFFSET_OUT_OF_RANGE
    assert await delete_up_to(-1) == (0, 3)


async def test_settings_change_one_by_one_and_are_checked_as_a_whole(wire: Any) -> None:
    await wire.create("t", retention_ms="1000")
    assert (
        await alter(wire, TOPIC, "t", ("retention.bytes", SET, "5"), ("cleanup.policy", APPEND, "compact"))
        == 0
    )
    configs = await config_of(wire, TOPIC, "t")
    assert (configs["retention.ms"].value, configs["retention.bytes"].value) == ("1000", "5")
    assert set(configs["cleanup.policy"].value.split(",")) == {"delete", "compact"}
    assert configs["retention.ms"].synonyms[0].name == "retention.ms"
    assert configs["retention.ms"].documentation
    assert (
        await alter(wire, TOPIC, "t", ("cleanup.policy", SUBTRACT, "compact"), ("retention.ms", DELETE, None))
        == 0
    )
    configs = await config_of(wire, TOPIC, "t")
    assert (configs["cleanup.policy"].value, configs["retention.ms"].value) == ("delete", "604800000")
    assert (
        await alter(wire, TOPIC, "t", ("retention.bytes", SET, "7"), ("no.such", SET, "1"))
        == ErrorCode.INVALID_CONFIG
    )
    assert (await config_of(wire, TOPIC, "t"))["retention.bytes"].value == "5"
    assert (
        await alter(wire, TOPIC, "none", ("retention.ms", SET, "1")) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    )
    assert await alter(wire, TOPIC, "t", ("retention.ms", APPEND, "1")) == ErrorCode.INVALID_CONFIG
    assert await alter(wire, TOPIC, "t", ("retention.ms", 9, "1")) == ErrorCode.INVALID_REQUEST


async def test_the_older_way_replaces_all_settings(wire: Any) -> None:
    await wire.create("t", retention_ms="1000")
    resource = ReplacedResource(
        resource_type=TOPIC, resource_name="t", configs=[ReplacedConfig(name="retention.bytes", value="9")]
    )
    response = await wire.ask(AlterConfigsRequest(resources=[resource]), 2)
    assert response.responses[0].error_code == 0
    configs = await config_of(wire, TOPIC, "t")
    assert (configs["retention.bytes"].value, configs["retention.ms"].value) == ("9", "604800000")


async def test_a_changed_topic_setting_takes_effect_and_survives_a_restart(scene: Any, wire: Any) -> None:
    await wire.create("t")
    await alter(wire, TOPIC, "t", ("max.message.bytes", SET, "100"))
    assert (await wire.produce("t", [b"x" * 200])).error_code == ErrorCode.MESSAGE_TOO_LARGE
    await scene.stop()
    await scene.start()
    wire = await scene.connect()
    assert (await wire.produce("t", [b"x" * 200])).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert (await wire.produce("t", [b"x"])).error_code == 0


async def test_a_dynamic_broker_setting_reaches_topics_that_do_not_set_it(wire: Any) -> None:
    await wire.create("inherits")
    await wire.create("own", max_message_bytes="5000")
    assert await alter(wire, BROKER, "1", ("message.max.bytes", SET, "100")) == 0
    assert (await wire.produce("inherits", [b"x" * 200])).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert (await wire.produce("own", [b"x" * 200])).error_code == 0
    assert await alter(wire, BROKER, "1", ("log.dirs", SET, "/elsewhere")) == ErrorCode.INVALID_REQUEST
    assert await alter(wire, BROKER, "7", ("message.max.bytes", SET, "1")) == ErrorCode.INVALID_REQUEST
    assert (await config_of(wire, BROKER, "1"))["message.max.bytes"].value == "100"


async def test_topics_are_described_page_by_page(wire: Any) -> None:
    await wire.create("a", partitions=3)
    await wire.create("b", partitions=2)
    seen: list[tuple[str, int]] = []
    cursor = None
    for _ in range(10):
        request = DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name="b"), TopicRequest(name="a")], response_partition_limit=2, cursor=cursor
        )
        page = await wire.ask(request, 0)
        seen += [
            (topic.name, partition.partition_index) for topic in page.topics for partition in topic.partitions
        ]
        if page.next_cursor is None:
            break
        cursor = Cursor(
            topic_name=page.next_cursor.topic_name, partition_index=page.next_cursor.partition_index
        )
    assert seen == [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("b", 1)]


async def test_log_directories_tell_their_partitions_and_space(scene: Any, wire: Any) -> None:
    await wire.create("t", partitions=2)
    await wire.produce("t", [b"x" * 1000])
    response = await wire.ask(DescribeLogDirsRequest(topics=None), 4)
    [directory] = response.results
    sizes = {
        partition.partition_index: partition.partition_size for partition in directory.topics[0].partitions
    }
    assert directory.log_dir == str(scene.directory / "data")
    assert sizes[0] > 1000
    assert sizes[1] == 0
    assert directory.usable_bytes > 0


async def test_producer_ids_are_fresh(wire: Any) -> None:
    ids = set()
    for _ in range(3):
        response = await wire.ask(InitProducerIdRequest(transactional_id=None), 4)
        assert (response.error_code, response.producer_epoch) == (0, 0)
        ids.add(response.producer_id)
    assert len(ids) == 3


async def test_the_end_of_an_epoch_is_where_the_next_one_began(scene: Any, wire: Any) -> None:
    await wire.create("t")
    await wire.produce("t", [b"a", b"b"])
    await scene.stop()
    broker = await scene.start()
    wire = await scene.connect()
    await wire.produce("t", [b"c"])
    latest = broker.context.image.topics["t"].partitions[0].leader_epoch

    async def end_of(epoch: int) -> tuple[int, int, int]:
        partition = OffsetForLeaderPartition(partition=0, leader_epoch=epoch)
        request = OffsetForLeaderEpochRequest(
            replica_id=-1, topics=[OffsetForLeaderTopic(topic="t", partitions=[partition])]
        )
        partition_data = (await wire.ask(request, 4)).topics[0].partitions[0]
        return partition_data.error_code, partition_data.leader_epoch, partition_data.end_offset

    assert await end_of(0) == (0, 0, 2)
    assert latest > 0
    assert await end_of(latest) == (0, latest, 3)
    assert await end_of(latest + 1) == (0, -1, -1)


async def test_api_versions_lists_what_is_served(wire: Any) -> None:
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1.0")
    response = await wire.ask(request, 3)
    ranges = {api_key.api_key: (api_key.min_version, api_key.max_version) for api_key in response.api_keys}
    assert (ranges[0], ranges[1], ranges[18], ranges[22]) == ((0, 13), (4, 18), (0, 5), (0, 5))
    bad = ApiVersionsRequest(client_software_name="-bad-", client_software_version="1.0")
    assert (await wire.ask(bad, 3)).error_code == ErrorCode.INVALID_REQUEST


async def test_no_keys_and_an_empty_list_of_keys_both_mean_all(wire: Any) -> None:
    await wire.create("t")
    counts = []
    for keys in (None, [], ["retention.ms", "no.such"]):
        resource = DescribeConfigsResource(resource_type=TOPIC, resource_name="t", configuration_keys=keys)
        response = await wire.ask(DescribeConfigsRequest(resources=[resource]), 4)
        counts.append(len(response.results[0].configs))
    assert counts[0] == counts[1] > 1
    assert counts[2] == 1


async def test_an_impossible_resource_is_distinguished_from_one_that_is_not_there(wire: Any) -> None:
    cases = {
        (TOPIC, "bad name"): ErrorCode.INVALID_TOPIC_EXCEPTION,
        (TOPIC, "none"): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        (BROKER, "x"): ErrorCode.INVALID_REQUEST,
        (99, "t"): ErrorCode.INVALID_REQUEST,
    }
    resources = [DescribeConfigsResource(resource_type=kind, resource_name=name) for kind, name in cases]
    response = await wire.ask(DescribeConfigsRequest(resources=resources), 4)
    assert [entry.error_code for entry in response.results] == list(cases.values())


async def test_a_resource_named_twice_is_refused_both_times_and_not_changed(wire: Any) -> None:
    await wire.create("t", retention_ms="5")
    entries = [
        AlterableConfig(name="retention.ms", config_operation=SET, value=value) for value in ("1", "2")
    ]
    resources = [
        AlterConfigsResource(resource_type=TOPIC, resource_name="t", configs=[entry]) for entry in entries
    ]
    response = await wire.ask(IncrementalAlterConfigsRequest(resources=resources), 1)
    assert [reply.error_code for reply in response.responses] == [ErrorCode.INVALID_REQUEST]
    replaced = [
        ReplacedResource(
            resource_type=TOPIC, resource_name="t", configs=[ReplacedConfig(name="retention.ms", value="1")]
        )
    ]
    response = await wire.ask(AlterConfigsRequest(resources=replaced * 2), 2)
    assert [last_response.error_code for last_response in response.responses] == [ErrorCode.INVALID_REQUEST]
    assert (await config_of(wire, TOPIC, "t"))["retention.ms"].value == "5"


async def test_a_setting_without_a_value_is_refused(wire: Any) -> None:
    await wire.create("t")
    resource = ReplacedResource(
        resource_type=TOPIC, resource_name="t", configs=[ReplacedConfig(name="retention.ms", value=None)]
    )
    response = await wire.ask(AlterConfigsRequest(resources=[resource]), 2)
    assert response.responses[0].error_code == ErrorCode.INVALID_REQUEST
    assert await alter(wire, TOPIC, "t", ("retention.ms", SET, None)) == ErrorCode.INVALID_REQUEST


async def test_settings_by_the_thousand_are_checked_in_a_moment(wire: Any) -> None:
    await wire.create("t")
    many = [(f"no.such.{number}", SET, "1") for number in range(20_000)]
    assert await alter(wire, TOPIC, "t", *many) == ErrorCode.INVALID_CONFIG


async def test_a_cursor_behind_a_topics_end_does_not_make_room_for_more_than_was_asked(wire: Any) -> None:
    await wire.create("a", partitions=2)
    await wire.create("b", partitions=9)
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name="a"), TopicRequest(name="b")],
        response_partition_limit=3,
        cursor=Cursor(topic_name="a", partition_index=100),
    )
    response = await wire.ask(request, 0)
    assert [len(topic.partitions) for topic in response.topics] == [0, 3]
    assert (response.next_cursor.topic_name, response.next_cursor.partition_index) == ("b", 3)
