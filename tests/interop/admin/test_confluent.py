"""Administration with librdkafka's admin client: topics, partitions, settings, records, the cluster."""

from __future__ import annotations

import itertools

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    ResourceType,
)
from tests.interop import logins

SECONDS_MAX = 20
_numbers = itertools.count()


@pytest.fixture
def admin(bootstrap):
    return AdminClient({**logins.librdkafka(bootstrap), "log_level": 2})


@pytest.fixture
def fresh():
    """A name that no topic has."""
    return f"admin-confluent-{next(_numbers)}"


def _create(admin, new, **more):
    return admin.create_topics([new], **more)[new.topic].result(SECONDS_MAX)


def _code_of(refused):
    return refused.value.args[0].code()


def _partitions(admin, name):
    return len(admin.list_topics(name, timeout=SECONDS_MAX).topics[name].partitions)


def _settings(admin, name):
    resource = ConfigResource(ResourceType.TOPIC, name)
    return admin.describe_configs([resource])[resource].result(SECONDS_MAX)


def _alter(admin, name, *changes, **more):
    entries = [ConfigEntry(key, value, incremental_operation=kind) for kind, key, value in changes]
    resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries)
    return admin.incremental_alter_configs([resource], **more)[resource].result(SECONDS_MAX)


def test_a_topic_is_created_described_and_deleted(admin, fresh, server):
    _create(admin, NewTopic(fresh, 3, 1))
    server.eventually(lambda: fresh in admin.list_topics(timeout=SECONDS_MAX).topics)
    described = admin.describe_topics(ck.TopicCollection([fresh]))[fresh].result(SECONDS_MAX)
    assert (described.name, described.is_internal, len(described.partitions)) == (fresh, False, 3)
    assert [partition.id for partition in described.partitions] == [0, 1, 2]
    assert all(len(partition.replicas) == len(partition.isr) == 1 for partition in described.partitions)
    assert all(partition.leader is not None for partition in described.partitions)
    admin.delete_topics([fresh])[fresh].result(SECONDS_MAX)
    server.eventually(lambda: fresh not in admin.list_topics(timeout=SECONDS_MAX).topics)
    with pytest.raises(ck.KafkaException) as refused:
        admin.describe_topics(ck.TopicCollection([fresh]))[fresh].result(SECONDS_MAX)
    assert _code_of(refused) == ck.KafkaError.UNKNOWN_TOPIC_OR_PART


def test_a_topic_deleted_and_created_again_is_empty(admin, fresh, clients, row):
    for value in (b"old", b"new"):
        _create(admin, NewTopic(fresh, 1, 1))
        clients["confluent-kafka"].produce(fresh, [row(value=value)])
        results = clients["kafka-python"].consume(fresh, count=1)
        assert [(record.offset, record.value) for record in results] == [(0, value)]
        admin.delete_topics([fresh])[fresh].result(SECONDS_MAX)


def test_defaults_stand_in_for_partition_count_and_replication(admin, fresh):
    _create(admin, NewTopic(fresh, -1, -1))
    assert _partitions(admin, fresh) == 1


@pytest.mark.parametrize(
    ("new", "code"),
    [
        (NewTopic("with space", 1, 1), ck.KafkaError.TOPIC_EXCEPTION),
        (NewTopic("slash/es", 1, 1), ck.KafkaError.TOPIC_EXCEPTION),
        (NewTopic("..", 1, 1), ck.KafkaError.TOPIC_EXCEPTION),
        (NewTopic("x" * 250, 1, 1), ck.KafkaError.TOPIC_EXCEPTION),
        (NewTopic("three-copies", 1, 3), ck.KafkaError.INVALID_REPLICATION_FACTOR),
        (NewTopic("bad-value", 1, 1, config={"retention.ms": "soon"}), ck.KafkaError.INVALID_CONFIG),
        (NewTopic("bad-range", 1, 1, config={"max.message.bytes": "-5"}), ck.KafkaError.INVALID_CONFIG),
        (NewTopic("bad-choice", 1, 1, config={"compression.type": "rar"}), ck.KafkaError.INVALID_CONFIG),
        (NewTopic("bad-name", 1, 1, config={"no.such.setting": "1"}), ck.KafkaError.INVALID_CONFIG),
    ],
    ids=lambda value: value.topic[:20] if isinstance(value, NewTopic) else str(value),
)
def test_a_topic_that_cannot_be_is_refused_with_its_code(admin, new, code):
    with pytest.raises(ck.KafkaException) as refused:
        _create(admin, new)
    assert _code_of(refused) == code
    assert new.topic not in admin.list_topics(timeout=SECONDS_MAX).topics


def test_creating_twice_says_that_it_exists(admin, topic):
    with pytest.raises(ck.KafkaException) as refused:
        _create(admin, NewTopic(topic(), 1, 1))
    assert _code_of(refused) == ck.KafkaError.TOPIC_ALREADY_EXISTS


def test_names_that_differ_in_dot_and_underscore_collide(admin, fresh):
    _create(admin, NewTopic(f"{fresh}.a_b", 1, 1))
    with pytest.raises(ck.KafkaException) as refused:
        _create(admin, NewTopic(f"{fresh}_a.b", 1, 1))
    assert _code_of(refused) == ck.KafkaError.TOPIC_EXCEPTION


def test_validate_only_creates_nothing(admin, fresh):
    _create(admin, NewTopic(fresh, 2, 1), validate_only=True)
    assert fresh not in admin.list_topics(timeout=SECONDS_MAX).topics
    with pytest.raises(ck.KafkaException) as refused:
        _create(admin, NewTopic(fresh, 1, 9), validate_only=True)
    assert _code_of(refused) == ck.KafkaError.INVALID_REPLICATION_FACTOR


def test_deleting_what_is_not_there_says_so(admin, fresh):
    with pytest.raises(ck.KafkaException) as refused:
        admin.delete_topics([fresh])[fresh].result(SECONDS_MAX)
    assert _code_of(refused) == ck.KafkaError.UNKNOWN_TOPIC_OR_PART


def test_partitions_can_be_added_and_never_taken_away(admin, topic, clients, row):
    name = topic(partitions=2)
    admin.create_partitions([NewPartitions(name, 5)])[name].result(SECONDS_MAX)
    assert _partitions(admin, name) == 5
    clients["confluent-kafka"].produce(name, [row(value=b"in the last", partition=4)])
    assert clients["confluent-kafka"].consume(name, count=1, partition=4)[0].value == b"in the last"
    for count in (5, 3):
        with pytest.raises(ck.KafkaException) as refused:
            admin.create_partitions([NewPartitions(name, count)])[name].result(SECONDS_MAX)
        assert _code_of(refused) == ck.KafkaError.INVALID_PARTITIONS


def test_settings_show_value_default_and_where_they_come_from(admin, topic):
    config_values = _settings(admin, topic(**{"retention.ms": "123456"}))
    assert (config_values["retention.ms"].value, config_values["retention.ms"].is_default) == (
        "123456",
        False,
    )
    assert config_values["retention.ms"].source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    assert config_values["segment.bytes"].value == "1073741824"
    assert config_values["flush.ms"].source == ConfigSource.DEFAULT_CONFIG.value
    assert config_values["cleanup.policy"].value == "delete"
    assert config_values["max.message.bytes"].value == "1048588"
    assert not config_values["retention.ms"].is_read_only


@pytest.fixture
def shows(server, admin):
    """Asserts that a topic's setting reads as given."""

    def check(name, key, value):
        server.eventually(lambda: _settings(admin, name)[key].value == value)

    return check


def test_settings_change_one_by_one(admin, topic, shows):
    name = topic(**{"retention.ms": "1000000", "segment.bytes": "2000000"})
    _alter(admin, name, (AlterConfigOpType.SET, "max.message.bytes", "50000"))
    shows(name, "max.message.bytes", "50000")
    shows(name, "retention.ms", "1000000")
    shows(name, "segment.bytes", "2000000")
    _alter(admin, name, (AlterConfigOpType.DELETE, "retention.ms", None))
    shows(name, "retention.ms", "604800000")
    _alter(admin, name, (AlterConfigOpType.SET, "cleanup.policy", "compact"))
    _alter(admin, name, (AlterConfigOpType.APPEND, "cleanup.policy", "delete"))
    shows(name, "cleanup.policy", "compact,delete")
    _alter(admin, name, (AlterConfigOpType.SUBTRACT, "cleanup.policy", "compact"))
    shows(name, "cleanup.policy", "delete")


def test_a_changed_limit_holds_at_once(admin, topic, clients, row, shows):
    name = topic()
    clients["confluent-kafka"].produce(name, [row(value=b"x" * 20_000)])
    _alter(admin, name, (AlterConfigOpType.SET, "max.message.bytes", "10000"))
    shows(name, "max.message.bytes", "10000")
    with pytest.raises(Exception, match="error 10:"):
        clients["confluent-kafka"].produce(name, [row(value=b"x" * 20_000)])


@pytest.mark.parametrize(
    ("key", "value"), [("retention.ms", "soon"), ("no.such.setting", "1"), ("cleanup.policy", "burn")]
)
def test_a_setting_that_cannot_be_is_refused_and_nothing_changes(admin, topic, key, value):
    name = topic()
    good, bad = (AlterConfigOpType.SET, "segment.ms", "777777"), (AlterConfigOpType.SET, key, value)
    with pytest.raises(ck.KafkaException) as refused:
        _alter(admin, name, good, bad)
    assert _code_of(refused) == ck.KafkaError.INVALID_CONFIG
    assert _settings(admin, name)["segment.ms"].value == "604800000"


def test_validate_only_changes_nothing(admin, topic):
    name = topic()
    _alter(admin, name, (AlterConfigOpType.SET, "retention.ms", "5"), validate_only=True)
    assert _settings(admin, name)["retention.ms"].value == "604800000"


def test_settings_of_an_unknown_topic_are_refused(admin, fresh):
    with pytest.raises(ck.KafkaException) as refused:
        _settings(admin, fresh)
    assert _code_of(refused) == ck.KafkaError.UNKNOWN_TOPIC_OR_PART


def test_the_brokers_own_settings_can_be_read(admin):
    cluster = admin.describe_cluster().result(SECONDS_MAX)
    resource = ConfigResource(ResourceType.BROKER, str(cluster.nodes[0].id))
    described = admin.describe_configs([resource])[resource].result(SECONDS_MAX)
    assert described["num.partitions"].value == "1"
    assert described["auto.create.topics.enable"].value == "true"
    assert described["message.max.bytes"].value == "1048588"


def test_deleted_records_are_gone_and_the_rest_stays(admin, topic, clients, row):
    name = topic()
    clients["confluent-kafka"].produce(name, [row(value=b"%d" % n) for n in range(10)])
    place = ck.TopicPartition(name, 0, 6)
    assert admin.delete_records([place])[place].result(SECONDS_MAX).low_watermark == 6
    results = clients["confluent-kafka"].consume(name, count=4, start=None)
    assert [(record.offset, record.value) for record in results] == [(n, b"%d" % n) for n in range(6, 10)]
    beyond = ck.TopicPartition(name, 0, 11)
    with pytest.raises(ck.KafkaException) as refused:
        admin.delete_records([beyond])[beyond].result(SECONDS_MAX)
    assert _code_of(refused) == ck.KafkaError.OFFSET_OUT_OF_RANGE
    everything = ck.TopicPartition(name, 0, ck.OFFSET_END)
    assert admin.delete_records([everything])[everything].result(SECONDS_MAX).low_watermark == 10
    clients["confluent-kafka"].produce(name, [row(value=b"later")])
    assert [record.offset for record in clients["confluent-kafka"].consume(name, count=1, start=None)] == [10]


def test_the_cluster_describes_itself(admin, server):
    described = admin.describe_cluster().result(SECONDS_MAX)
    assert len(described.cluster_id) == 22
    assert [(node.host, node.port) for node in described.nodes] == [server.address]
    assert described.controller.id == described.nodes[0].id
    assert admin.list_topics(timeout=SECONDS_MAX).cluster_id == described.cluster_id


def test_producing_to_a_new_name_creates_the_topic(admin, clients, row, fresh):
    clients["confluent-kafka"].produce(fresh, [row(value=b"first")])
    assert clients["confluent-kafka"].consume(fresh, count=1)[0].value == b"first"
    assert _partitions(admin, fresh) == 1
