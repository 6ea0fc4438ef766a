"""A program that uses every public method of the admin clients, with the type of each result: see `every_method.py`."""

from __future__ import annotations

from typing import assert_type

from odradek import Admin, AsyncAdmin, ConfigResource, NewTopic, TopicPartition
from odradek.client import (
    Acl,
    AclFilter,
    AclOperation,
    AclPattern,
    AclPermission,
    AclResourceType,
    Append,
    ClusterDescription,
    CommittedOffsets,
    ConfigEntry,
    CreatedTopic,
    FeatureDescription,
    GroupDescription,
    GroupListing,
    IssuedToken,
    LogDirDescription,
    NewPassword,
    OffsetAndTimestamp,
    OpenTransaction,
    ProducerDescription,
    QuorumDescription,
    QuotaEntity,
    ReassignmentDescription,
    ResourceType,
    Subtract,
    TopicDescription,
    TransactionDescription,
    TransactionIdentity,
    TransactionListing,
)

SERVERS = "127.0.0.1:9092"
PARTITION = TopicPartition("flights", 0)
ACL = Acl(
    AclPattern(AclResourceType.TOPIC, "flights"), "User:ann", "*", AclOperation.READ, AclPermission.ALLOW
)


def administering_topics(admin: Admin) -> None:
    assert_type(Admin.from_config({"bootstrap.servers": SERVERS}), Admin)
    assert_type(
        admin.create_topics(
            [NewTopic("flights", 3, configs={"retention.ms": "-1"}), "mails"], validate_only=True
        ),
        dict[str, CreatedTopic],
    )
    admin.create_partitions({"flights": 6})
    assert_type(admin.list_topics(internal=True), list[str])
    assert_type(admin.describe_topics(["flights"]), dict[str, TopicDescription])
    admin.delete_topics(["flights"])
    topic = ConfigResource.topic("flights")
    assert_type(
        admin.describe_configs([topic], documentation=True), dict[ConfigResource, dict[str, ConfigEntry]]
    )
    admin.alter_configs({topic: {"retention.ms": "1000", "cleanup.policy": Append("compact")}})
    admin.alter_configs({topic: {"retention.ms": None, "cleanup.policy": Subtract("compact")}})
    assert_type(admin.list_config_resources([ResourceType.GROUP]), list[ConfigResource])
    assert_type(admin.delete_records({PARTITION: 5}), dict[TopicPartition, int])
    assert_type(admin.list_offsets({PARTITION: 0}), dict[TopicPartition, OffsetAndTimestamp])
    assert_type(admin.elect_leaders([PARTITION], unclean=True), dict[TopicPartition, bool])
    admin.reassign_partitions({PARTITION: [1, 2], TopicPartition("mails", 0): None})
    assert_type(admin.list_reassignments(), dict[TopicPartition, ReassignmentDescription])
    admin.move_replicas(1, {PARTITION: "/disk2"})
    assert_type(admin.describe_log_dirs([1]), dict[int, tuple[LogDirDescription, ...]])


def administering_clusters(admin: Admin) -> None:
    assert_type(admin.describe_cluster(), ClusterDescription)
    assert_type(admin.describe_cluster_operations(), frozenset[AclOperation] | None)
    assert_type(admin.describe_quorum(), QuorumDescription)
    admin.unregister_broker(3)
    assert_type(admin.describe_features(), dict[str, FeatureDescription])
    admin.update_features({"streams.version": 1}, validate_only=True)
    ann = QuotaEntity(user="ann")
    assert_type(admin.describe_quotas(ann), dict[QuotaEntity, dict[str, float]])
    admin.alter_quotas({ann: {"producer_byte_rate": 1e6, "consumer_byte_rate": None}})
    assert_type(admin.describe_acls(AclFilter(name="flights")), list[Acl])
    admin.create_acls([ACL])
    assert_type(admin.delete_acls([AclFilter.only(ACL)]), list[Acl])
    assert_type(admin.describe_users(), dict[str, dict[str, int]])
    admin.alter_users({"ann": NewPassword(password="secret"), "bob": "SCRAM-SHA-512"})
    assert_type(admin.create_delegation_token(renewers=["User:bob"]), IssuedToken)
    assert_type(admin.renew_delegation_token(b"hmac", period_ms=1_000), int)
    admin.expire_delegation_token(b"hmac")
    assert_type(admin.describe_delegation_tokens(), list[IssuedToken])
    admin.close()


def administering_groups(admin: Admin, open_transaction: OpenTransaction) -> None:
    assert_type(admin.list_groups(states=["Stable"], types=["share"]), list[GroupListing])
    assert_type(admin.describe_groups(["board"]), dict[str, GroupDescription])
    admin.delete_groups(["board"])
    assert_type(admin.list_group_offsets("board", [PARTITION], require_stable=True), CommittedOffsets)
    admin.alter_group_offsets("board", {PARTITION: 4})
    admin.delete_group_offsets("board", [PARTITION])
    admin.remove_group_members("board", ["till-1"], reason="closed")
    admin.alter_share_group_offsets("mail", {PARTITION: 4})
    admin.delete_share_group_offsets("mail", ["mails"])
    assert_type(admin.list_transactions(states=["Ongoing"], pattern="t.*"), list[TransactionListing])
    assert_type(admin.describe_transactions(["tickets"]), dict[str, TransactionDescription])
    assert_type(admin.describe_producers([PARTITION]), dict[TopicPartition, tuple[ProducerDescription, ...]])
    admin.abort_transaction(open_transaction)
    fenced = admin.fence_producers(["tickets"])
    assert_type(fenced, dict[str, TransactionIdentity])
    admin.send_offsets_to_transaction(fenced["tickets"], "board", {PARTITION: 4})
    admin.end_transactions(fenced.values(), committed=False)
    assert_type(admin.identity_after_commit(fenced["tickets"]), TransactionIdentity | None)


async def administering_topics_later(admin: AsyncAdmin) -> None:
    assert_type(AsyncAdmin.from_config({"bootstrap.servers": SERVERS}), AsyncAdmin)
    await admin.start()
    assert_type(
        await admin.create_topics(
            [NewTopic("flights", 3, configs={"retention.ms": "-1"}), "mails"], validate_only=True
        ),
        dict[str, CreatedTopic],
    )
    await admin.create_partitions({"flights": 6})
    assert_type(await admin.list_topics(internal=True), list[str])
    assert_type(await admin.describe_topics(["flights"]), dict[str, TopicDescription])
    await admin.delete_topics(["flights"])
    topic = ConfigResource.topic("flights")
    assert_type(
        await admin.describe_configs([topic], documentation=True),
        dict[ConfigResource, dict[str, ConfigEntry]],
    )
    await admin.alter_configs({topic: {"retention.ms": "1000", "cleanup.policy": Append("compact")}})
    await admin.alter_configs({topic: {"retention.ms": None, "cleanup.policy": Subtract("compact")}})
    assert_type(await admin.list_config_resources([ResourceType.GROUP]), list[ConfigResource])
    assert_type(await admin.delete_records({PARTITION: 5}), dict[TopicPartition, int])
    assert_type(await admin.list_offsets({PARTITION: 0}), dict[TopicPartition, OffsetAndTimestamp])
    assert_type(await admin.elect_leaders([PARTITION], unclean=True), dict[TopicPartition, bool])
    await admin.reassign_partitions({PARTITION: [1, 2], TopicPartition("mails", 0): None})
    assert_type(await admin.list_reassignments(), dict[TopicPartition, ReassignmentDescription])
    await admin.move_replicas(1, {PARTITION: "/disk2"})
    assert_type(await admin.describe_log_dirs([1]), dict[int, tuple[LogDirDescription, ...]])


async def administering_clusters_later(admin: AsyncAdmin) -> None:
    assert_type(await admin.describe_cluster(), ClusterDescription)
    assert_type(await admin.describe_cluster_operations(), frozenset[AclOperation] | None)
    assert_type(await admin.describe_quorum(), QuorumDescription)
    await admin.unregister_broker(3)
    assert_type(await admin.describe_features(), dict[str, FeatureDescription])
    await admin.update_features({"streams.version": 1}, validate_only=True)
    ann = QuotaEntity(user="ann")
    assert_type(await admin.describe_quotas(ann), dict[QuotaEntity, dict[str, float]])
    await admin.alter_quotas({ann: {"producer_byte_rate": 1e6, "consumer_byte_rate": None}})
    assert_type(await admin.describe_acls(AclFilter(name="flights")), list[Acl])
    await admin.create_acls([ACL])
    assert_type(await admin.delete_acls([AclFilter.only(ACL)]), list[Acl])
    assert_type(await admin.describe_users(), dict[str, dict[str, int]])
    await admin.alter_users({"ann": NewPassword(password="secret"), "bob": "SCRAM-SHA-512"})
    assert_type(await admin.create_delegation_token(renewers=["User:bob"]), IssuedToken)
    assert_type(await admin.renew_delegation_token(b"hmac", period_ms=1_000), int)
    await admin.expire_delegation_token(b"hmac")
    assert_type(await admin.describe_delegation_tokens(), list[IssuedToken])
    await admin.close()


async def administering_groups_later(admin: AsyncAdmin, open_transaction: OpenTransaction) -> None:
    assert_type(await admin.list_groups(states=["Stable"], types=["share"]), list[GroupListing])
    assert_type(await admin.describe_groups(["board"]), dict[str, GroupDescription])
    await admin.delete_groups(["board"])
    assert_type(await admin.list_group_offsets("board", [PARTITION], require_stable=True), CommittedOffsets)
    await admin.alter_group_offsets("board", {PARTITION: 4})
    await admin.delete_group_offsets("board", [PARTITION])
    await admin.remove_group_members("board", ["till-1"], reason="closed")
    await admin.alter_share_group_offsets("mail", {PARTITION: 4})
    await admin.delete_share_group_offsets("mail", ["mails"])
    assert_type(await admin.list_transactions(states=["Ongoing"], pattern="t.*"), list[TransactionListing])
    assert_type(await admin.describe_transactions(["tickets"]), dict[str, TransactionDescription])
    assert_type(
        await admin.describe_producers([PARTITION]), dict[TopicPartition, tuple[ProducerDescription, ...]]
    )
    await admin.abort_transaction(open_transaction)
    fenced = await admin.fence_producers(["tickets"])
    assert_type(fenced, dict[str, TransactionIdentity])
    await admin.send_offsets_to_transaction(fenced["tickets"], "board", {PARTITION: 4})
    await admin.end_transactions(fenced.values(), committed=False)
    assert_type(await admin.identity_after_commit(fenced["tickets"]), TransactionIdentity | None)
