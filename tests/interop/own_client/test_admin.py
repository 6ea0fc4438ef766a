"""Our own admin client, end to end."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from tests.interop import logins
from tests.kit.waiting import wait_until_led

from odradek import (
    Admin,
    ConfigResource,
    ErrorCode,
    KafkaError,
    NewTopic,
    PartialFailureError,
    Producer,
    TopicPartition,
)
from odradek.client import EARLIEST, LATEST, MAX_TIMESTAMP

_numbers = itertools.count()


@pytest.fixture
def admin(bootstrap: str) -> Iterator[Admin]:
    with Admin(**logins.ours(bootstrap)) as made:
        yield made


@pytest.fixture
def name() -> str:
    return f"own-admin-{next(_numbers)}"


def test_a_topic_lives_and_dies(admin: Admin, name: str) -> None:
    created = admin.create_topics([NewTopic(name, 3, configs={"retention.ms": "600000"})])[name]
    assert (created.partitions, created.replication_factor) == (3, 1)
    wait_until_led(admin, name, 3)
    assert name in admin.list_topics()
    described = admin.describe_topics([name])[name]
    assert described.topic_id == created.topic_id
    admin.create_partitions({name: 5})
    wait_until_led(admin, name, 5)
    admin.delete_topics([name])
    for _ in range(500):
        if name not in admin.list_topics():
            break
    with pytest.raises(KafkaError) as caught:
        admin.delete_topics([name])
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_what_cannot_be_created_is_distinguished_from_what_was(admin: Admin, name: str) -> None:
    with pytest.raises(PartialFailureError) as caught:
        admin.create_topics([NewTopic(name), NewTopic("b@d"), NewTopic(f"{name}-far", 1, 30)])
    assert {topic: error.code.name for topic, error in caught.value.errors.items()} == {
        "b@d": "INVALID_TOPIC_EXCEPTION",
        f"{name}-far": "INVALID_REPLICATION_FACTOR",
    }
    assert list(caught.value.results) == [name]
    with pytest.raises(KafkaError) as again:
        admin.create_topics([name])
    assert again.value.code is ErrorCode.TOPIC_ALREADY_EXISTS


def test_validate_only_creates_nothing(admin: Admin, name: str) -> None:
    admin.create_topics([NewTopic(name, 2)], validate_only=True)
    assert name not in admin.list_topics()


def test_settings_change_and_go_back(admin: Admin, name: str) -> None:
    topic = ConfigResource.topic(name)
    admin.create_topics([name])
    wait_until_led(admin, name, 1)

    def value(key: str) -> tuple[str | None, bool]:
        entry = admin.describe_configs([topic])[topic][key]
        return entry.value, entry.is_default

    def becomes(key: str, expected: tuple[str | None, bool]) -> bool:
        return any(value(key) == expected for _ in range(200))

    assert value("retention.ms") == ("604800000", True)
    admin.alter_configs({topic: {"retention.ms": "1000000", "cleanup.policy": "compact"}})
    assert becomes("retention.ms", ("1000000", False))
    assert becomes("cleanup.policy", ("compact", False))
    admin.alter_configs({topic: {"retention.ms": None}})
    assert becomes("retention.ms", ("604800000", True))
    with pytest.raises(KafkaError) as caught:
        admin.alter_configs({topic: {"retention.ms": "soon"}})
    assert caught.value.code is ErrorCode.INVALID_CONFIG


def test_offsets_are_listed_and_records_deleted(admin: Admin, bootstrap: str, name: str) -> None:
    admin.create_topics([name])
    wait_until_led(admin, name, 1)
    tp = TopicPartition(name, 0)
    with Producer(**logins.ours(bootstrap)) as producer:
        for n, timestamp in enumerate((1_000, 5_000, 3_000)):
            producer.send(name, b"%d" % n, timestamp_ms=timestamp)
    assert admin.list_offsets({tp: LATEST})[tp].offset == 3
    assert admin.list_offsets({tp: EARLIEST})[tp].offset == 0
    newest = admin.list_offsets({tp: MAX_TIMESTAMP})[tp]
    assert (newest.offset, newest.timestamp_ms) == (1, 5_000)
    assert admin.list_offsets({tp: 99_000})[tp].offset == -1
    assert admin.delete_records({tp: 2}) == {tp: 2}
    assert admin.list_offsets({tp: EARLIEST})[tp].offset == 2
    with pytest.raises(KafkaError) as caught:
        admin.delete_records({tp: 99})
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_the_cluster_and_its_directories_are_described(admin: Admin, bootstrap: str, name: str) -> None:
    admin.create_topics([name])
    wait_until_led(admin, name, 1)
    cluster = admin.describe_cluster()
    (broker,) = cluster.brokers
    assert f"{broker.host}:{broker.port}" == bootstrap
    assert cluster.cluster_id
    (directory,) = admin.describe_log_dirs()[broker.broker_id]
    assert directory.error is None
    assert TopicPartition(name, 0) in directory.replicas


def test_the_quorum_has_a_leader_among_its_voters(admin: Admin) -> None:
    description = admin.describe_quorum()
    voters = {voter.replica_id: voter for voter in description.voters}
    assert description.leader_id in voters
    assert voters[description.leader_id].log_end_offset >= description.high_watermark >= 0
    assert description.leader_id in description.nodes


def test_a_broker_that_runs_and_one_that_never_was_are_not_unregistered(admin: Admin) -> None:
    with pytest.raises(KafkaError) as refused:
        admin.unregister_broker(999)
    assert refused.value.code is ErrorCode.BROKER_ID_NOT_REGISTERED
