"""Administration with kafka-python's and aiokafka's admin clients, at versions librdkafka does not speak."""

from __future__ import annotations

import asyncio
import itertools
import uuid
import warnings

import aiokafka
import pytest
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
from aiokafka.admin import NewPartitions as AioNewPartitions
from aiokafka.admin import NewTopic as AioNewTopic
from aiokafka.admin.config_resource import ConfigResource as AioResource
from aiokafka.admin.config_resource import ConfigResourceType as AioResourceType
from tests.interop import logins

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka
    from kafka import errors
    from kafka.admin import ConfigResource, KafkaAdminClient, OffsetSpec
    from kafka.protocol.api_key import ApiKey

_numbers = itertools.count()


@pytest.fixture
def admin(bootstrap):
    made = KafkaAdminClient(**logins.kafka_python(bootstrap))
    yield made
    made.close()


@pytest.fixture
def fresh():
    """A name that no topic has."""
    return f"admin-others-{next(_numbers)}"


def _value(admin, name, key):
    configs = admin.describe_configs([ConfigResource("TOPIC", name)], config_filter="all")
    return configs["topic"][name][key]["value"]


def test_kafka_python_creates_describes_and_deletes_topics(admin, fresh):
    made = admin.create_topics({fresh: {"num_partitions": 2}}, wait_for_metadata=True)["topics"][0]
    assert (made["name"], made["num_partitions"], made["replication_factor"]) == (fresh, 2, 1)
    assert made["configs"]["cleanup.policy"]["value"] == "delete"
    described = admin.describe_topics([fresh])[0]
    assert described["topic_id"] == made["topic_id"]
    assert [entry["partition_index"] for entry in described["partitions"]] == [0, 1]
    assert fresh in admin.list_topics()
    with pytest.raises(errors.TopicAlreadyExistsError):
        admin.create_topics({fresh: {"num_partitions": 2}})
    admin.delete_topics([fresh])
    with pytest.raises(errors.UnknownTopicOrPartitionError):
        admin.delete_topics([fresh])


def test_kafka_python_describes_topics_by_id_and_says_which_it_does_not_know(admin, topic, fresh):
    name = topic()
    known = admin.describe_topics([name])[0]
    assert admin.describe_topics([uuid.UUID(known["topic_id"])])[0]["name"] == name
    assert admin.describe_topics([fresh])[0]["error_code"] == errors.UnknownTopicOrPartitionError.errno


def test_kafka_python_deletes_topics_by_id(admin, topic, server):
    name = topic()
    identity = uuid.UUID(admin.describe_topics([name])[0]["topic_id"])
    admin.delete_topics([identity])
    server.eventually(lambda: name not in admin.list_topics())


def test_kafka_python_describes_partitions_page_by_page(admin, topic):
    name = topic(partitions=5)
    seen, cursor = [], None
    while True:
        page = admin.describe_topic_partitions([name], response_partition_limit=2, cursor=cursor)
        seen += [entry["partition_index"] for entry in page["topics"][0]["partitions"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert seen == [0, 1, 2, 3, 4]


def test_kafka_python_adds_partitions(admin, topic):
    name = topic(partitions=1)
    admin.create_partitions({name: 3})
    assert len(admin.describe_topics([name])[0]["partitions"]) == 3
    with pytest.raises(errors.InvalidPartitionsError):
        admin.create_partitions({name: 2})


@pytest.mark.parametrize("incremental", [True, False])
def test_kafka_python_alters_and_resets_settings(admin, topic, server, incremental):
    name = topic()
    change = ConfigResource("TOPIC", name, {"retention.ms": "4242"})
    assert admin.alter_configs([change], incremental=incremental) == {"topic": {name: "OK"}}
    server.eventually(lambda: _value(admin, name, "retention.ms") == "4242")
    admin.reset_configs([ConfigResource("TOPIC", name, ["retention.ms"])], incremental=incremental)
    server.eventually(lambda: _value(admin, name, "retention.ms") == "604800000")


def test_kafka_python_deletes_records(admin, topic, clients, row):
    name = topic()
    clients["kafka-python"].produce(name, [row(value=b"%d" % n) for n in range(8)])
    place = kafka.TopicPartition(name, 0)
    assert admin.delete_records({place: 5})[place]["low_watermark"] == 5
    partition_offsets = admin.list_partition_offsets({place: OffsetSpec.EARLIEST})
    assert partition_offsets[place].offset == 5


def test_kafka_python_sees_sizes_in_log_directories(admin, topic, clients, row):
    name = topic(partitions=2)
    clients["kafka-python"].produce(name, [row(value=b"x" * 5000)])
    directories = admin.describe_log_dirs([name])[0]["log_dirs"]
    sizes = {
        partition["partition_index"]: partition["partition_size"]
        for directory in directories
        for entry in directory["topics"]
        if entry["name"] == name
        for partition in entry["partitions"]
    }
    assert sizes[1] == 0
    assert 5000 < sizes[0] < 6000


def test_kafka_python_describes_the_cluster_and_its_versions(admin, server):
    cluster = admin.describe_cluster()
    assert [(entry["host"], entry["port"]) for entry in cluster["brokers"]] == [server.address]
    assert cluster["controller_id"] == cluster["brokers"][0]["broker_id"]
    # admin.api_versions() fails where a broker, Kafka 4.4's too, has keys that kafka-python does not know
    versions = admin.get_broker_version_data(cluster["brokers"][0]["broker_id"]).api_versions
    assert versions[ApiKey.Produce] == (0, 13)  # 0 to 2 are refused, but librdkafka wants to see them
    assert versions[ApiKey.Fetch] == (4, 18)
    assert versions[ApiKey.Metadata] == (0, 13)
    assert versions[ApiKey.ApiVersions] == (0, 5)


def test_aiokafka_creates_grows_alters_trims_and_deletes(bootstrap, fresh, clients, row):
    async def run():
        admin = AIOKafkaAdminClient(**logins.aiokafka(bootstrap))
        await admin.start()
        try:
            await admin.create_topics([AioNewTopic(fresh, 1, 1)])
            grown = await admin.create_partitions({fresh: AioNewPartitions(3)})
            assert grown.topic_errors[0][1] == 0
            assert len((await admin.describe_topics([fresh]))[0]["partitions"]) == 3
            assert fresh in await admin.list_topics()
            resource = AioResource(AioResourceType.TOPIC, fresh, {"retention.ms": "4242"})
            assert (await admin.alter_configs([resource]))[0].resources[0][0] == 0
            asked = AioResource(AioResourceType.TOPIC, fresh, {"retention.ms": None})
            described = await admin.describe_configs([asked])
            assert described[0].resources[0][4][0][:2] == ("retention.ms", "4242")
            rows = [row(value=b"%d" % n) for n in range(4)]
            await asyncio.to_thread(clients["aiokafka"].produce, fresh, rows)
            place = aiokafka.TopicPartition(fresh, 0)
            assert await admin.delete_records({place: RecordsToDelete(before_offset=3)}) == {place: 3}
            deleted = await admin.delete_topics([fresh])
            assert [tuple(topic) for topic in deleted.topic_error_codes] == [(fresh, 0)]
        finally:
            await admin.close()

    asyncio.run(run())


def test_aiokafka_describes_the_cluster(bootstrap, server):
    async def run():
        admin = AIOKafkaAdminClient(**logins.aiokafka(bootstrap))
        await admin.start()
        try:
            return await admin.describe_cluster()
        finally:
            await admin.close()

    run_result = asyncio.run(run())
    assert [(entry["host"], entry["port"]) for entry in run_result["brokers"]] == [server.address]


def test_kcat_lists_brokers_topics_and_partitions(clients, topic, server):
    name = topic(partitions=3)
    text = clients["kcat"].run("-L", "-t", name).decode()
    assert "at {}:{}".format(*server.address) in text
    assert f'topic "{name}" with 3 partitions' in text
    assert text.count("leader ") == 3
