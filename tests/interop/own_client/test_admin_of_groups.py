"""Our admin client: groups, their offsets, elections, features."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.interop import logins

from odradek import (
    Admin,
    Consumer,
    ErrorCode,
    KafkaError,
    OffsetAndMetadata,
    PartialFailureError,
    TopicPartition,
)

SECONDS = 20.0
MakeTopic = Callable[..., str]


@pytest.fixture
def admin(bootstrap: str) -> Iterator[Admin]:
    with Admin(**logins.ours(bootstrap)) as made:
        yield made


@contextmanager
def a_member(bootstrap: str, group: str, topic: str, **options: Any) -> Iterator[Consumer]:
    """A consumer in the group, once it has partitions."""
    with Consumer(**logins.ours(bootstrap), group_id=group, client_id="billing", **options) as consumer:
        consumer.subscribe([topic])
        deadline = time.monotonic() + SECONDS
        while not consumer.assignment():
            assert time.monotonic() < deadline
            consumer.poll(0.1)
        yield consumer


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({"group_protocol": "classic"}, "classic"),
        ({"group_protocol": "consumer"}, "consumer"),
        ({}, "consumer"),
    ],
    ids=["classic", "consumer", "default"],
)
def test_a_group_is_described_with_its_members(
    admin: Admin, bootstrap: str, topic: MakeTopic, options: Any, kind: str
) -> None:
    name = topic(partitions=2)
    group = f"described-{name}"
    with a_member(bootstrap, group, name, **options) as consumer:
        deadline = time.monotonic() + SECONDS
        while (group_description := admin.describe_groups([group])[group]).state != "Stable":
            assert time.monotonic() < deadline
            consumer.poll(0.1)
        assert (group_description.type, group_description.protocol_type, group_description.active) == (
            kind,
            "consumer",
            True,
        )
        [member] = group_description.members
        assert (member.member_id, member.client_id) == (consumer.group_metadata().member_id, "billing")
        assert member.assignment == (TopicPartition(name, 0), TopicPartition(name, 1))
        assert group in {
            group_listing.group_id for group_listing in admin.list_groups(types=[kind], states=["Stable"])
        }
    group_description = admin.describe_groups([group])[group]
    assert (group_description.state, group_description.members, group_description.active) == (
        "Empty",
        (),
        False,
    )


def test_groups_that_are_not_there_and_groups_that_are_busy(
    admin: Admin, bootstrap: str, topic: MakeTopic
) -> None:
    name = topic()
    group = f"busy-{name}"
    only = TopicPartition(name, 0)
    with a_member(bootstrap, group, name):
        with pytest.raises(PartialFailureError) as caught:
            admin.describe_groups([group, "unknown-group"])
        assert caught.value.errors["unknown-group"].code is ErrorCode.GROUP_ID_NOT_FOUND
        with pytest.raises(KafkaError, match="has members"):
            admin.alter_group_offsets(group, {only: 1})
        with pytest.raises(KafkaError, match="stop them first"):
            admin.delete_groups([group])
        with pytest.raises(KafkaError) as refused:
            admin.delete_group_offsets(group, [only])
        assert refused.value.code is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    admin.delete_groups([group])
    with pytest.raises(KafkaError, match="there is no such group"):
        admin.describe_groups([group])


def test_offsets_are_set_listed_and_forgotten(admin: Admin, topic: MakeTopic) -> None:
    name = topic(partitions=2)
    group = f"offsets-{name}"
    first, second = TopicPartition(name, 0), TopicPartition(name, 1)
    admin.alter_group_offsets(group, {first: OffsetAndMetadata(3, "note"), second: 4})
    assert admin.list_group_offsets(group) == {
        first: OffsetAndMetadata(3, "note"),
        second: OffsetAndMetadata(4),
    }
    admin.delete_group_offsets(group, [first])
    assert admin.list_group_offsets(group, [first, second]) == {first: None, second: OffsetAndMetadata(4)}


def test_static_members_are_removed_by_their_instance_ids(
    admin: Admin, bootstrap: str, topic: MakeTopic
) -> None:
    name = topic(partitions=2)
    group = f"removed-{name}"
    with a_member(bootstrap, group, name, group_instance_id="till-1"):
        with pytest.raises(KafkaError, match="no such member") as unknown:
            admin.remove_group_members(group, ["till-2"])
        assert unknown.value.code is ErrorCode.UNKNOWN_MEMBER_ID
        assert len(admin.describe_groups([group])[group].members) == 1
        admin.remove_group_members(group, ["till-1"], reason="the till is closed")
        assert admin.describe_groups([group])[group].members == ()
    with pytest.raises(KafkaError) as unknown:
        admin.remove_group_members(f"never-{name}", ["till-1"])
    assert unknown.value.code is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("instance_id", [None, "till-1"])
def test_all_members_are_removed_and_an_empty_group_has_none_to_remove(
    admin: Admin, bootstrap: str, topic: MakeTopic, protocol: str, instance_id: str | None
) -> None:
    name = topic(partitions=2)
    group = f"all-removed-{name}"
    options: dict[str, Any] = {} if instance_id is None else {"group_instance_id": instance_id}
    with a_member(bootstrap, group, name, group_protocol=protocol, **options) as consumer:
        member_id = consumer.group_metadata().member_id
        before = admin.describe_groups([group])[group]
        assert [member.member_id for member in before.members] == [member_id]
        admin.remove_group_members(group)
        after = admin.describe_groups([group])[
            group
        ]  # a consumer may have joined again meanwhile, under its old id
        assert member_id not in {member.member_id for member in after.members} or (after.epoch or 0) > (
            before.epoch or 0
        )
    admin.remove_group_members(group)
    assert admin.describe_groups([group])[group].members == ()
    with pytest.raises(KafkaError, match="there is no such group"):
        admin.remove_group_members(f"never-{name}")


def test_an_election_that_is_not_needed_is_no_error(admin: Admin, topic: MakeTopic) -> None:
    only = TopicPartition(topic(), 0)
    assert admin.elect_leaders([only]) == {only: False}
    with pytest.raises(KafkaError):
        admin.elect_leaders([TopicPartition(only.topic, 7)], timeout_s=2)


def test_features_have_levels(admin: Admin) -> None:
    feature = admin.describe_features()["transaction.version"]
    low, high = feature.supported
    assert low <= feature.finalized <= high
    admin.update_features({"transaction.version": feature.finalized}, validate_only=True)
    with pytest.raises(KafkaError):
        admin.update_features({"transaction.version": 99}, validate_only=True)
