"""Metadata and DescribeTopicPartitions: what exists, what does not, what comes into being by being asked for."""

from uuid import UUID

from tests.differential.asker import Asker
from tests.differential.requests import make_topic, metadata, wait_until_led

from odradek.protocol.messages.metadata.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from odradek.protocol.messages.metadata.metadata import MetadataRequest, MetadataRequestTopic

SOME_ID = UUID(int=0xABCDEF)
BAD_NAMES = {
    "empty": "",
    "a dot": ".",
    "two dots": "..",
    "250 long": "x" * 250,
    "a space": "a b",
    "a slash": "a/b",
}


def script(peer: Asker) -> None:
    make_topic(peer, "md-one", 3)
    make_topic(peer, "md-two")
    _names(peer)
    _ids(peer)
    _creating(peer)
    _describing(peer)


def _names(peer: Asker) -> None:
    for version in (0, 1, 4, 5, 7, 8, 9, 10, 12, 13):
        peer.ask(f"two topics, version {version}", metadata("md-two", "md-one", creating=True), version)
    peer.ask("an unknown topic", metadata("md-none"))
    peer.ask(
        "an unknown topic, version 1",
        metadata("md-new-1", creating=True),
        1,
        only=lambda topic: topic.topics[0].name,
    )
    wait_until_led(peer, "md-new-1")
    peer.ask("the same topic twice", metadata("md-two", "md-two"))
    peer.ask("no topics", MetadataRequest(topics=[]))
    peer.ask("all topics", MetadataRequest(topics=None), only=_mine)
    peer.ask("no topics in version 0 means all", MetadataRequest(topics=[]), 0, only=_mine)
    for what, name in BAD_NAMES.items():
        peer.ask(f"a name that is bad: {what}", metadata(name))
        peer.ask(f"creating a name that is bad: {what}", metadata(name, creating=True))
    peer.ask("authorized operations", metadata("md-two", include_topic_authorized_operations=True))
    peer.ask(
        "the cluster's authorized operations",
        metadata("md-two", include_cluster_authorized_operations=True),
        10,
    )


def _ids(peer: Asker) -> None:
    known = peer.quietly(metadata("md-one")).topics[0].topic_id

    def by_id(*ids: UUID, name: str | None = None) -> MetadataRequest:
        return MetadataRequest(
            topics=[MetadataRequestTopic(topic_id=topic_id, name=name) for topic_id in ids]
        )

    peer.ask("by id", by_id(known))
    peer.ask("by id, version 10", by_id(known), 10)
    peer.ask("by an unknown id", by_id(SOME_ID))
    peer.ask("by a known and an unknown id", by_id(known, SOME_ID))
    peer.ask("by id and name", by_id(known, name="md-one"))
    peer.ask("by id and another name", by_id(known, name="md-two"))
    peer.ask("neither id nor name", by_id(UUID(int=0)))


def _creating(peer: Asker) -> None:
    peer.ask(
        "created by asking",
        metadata("md-new", creating=True),
        only=lambda topic: topic.topics[0].replace(error_code=0, partitions=[], topic_id=UUID(int=0)),
    )
    wait_until_led(peer, "md-new")
    peer.ask("what asking created", metadata("md-new"))
    peer.ask("an internal topic, not created by asking", metadata("__share_group_state"))


def _describing(peer: Asker) -> None:
    def describe(
        *names: str, limit: int = 2000, cursor: Cursor | None = None
    ) -> DescribeTopicPartitionsRequest:
        topics = [TopicRequest(name=name) for name in names]
        return DescribeTopicPartitionsRequest(topics=topics, response_partition_limit=limit, cursor=cursor)

    peer.ask("partitions", describe("md-one", "md-two"))
    peer.ask("partitions of an unknown topic", describe("md-none", "md-two"))
    peer.ask("partitions of a bad name", describe("a b"))
    peer.ask("partitions, two at most", describe("md-one", "md-two", limit=2))
    peer.ask("partitions, none at most", describe("md-one", limit=0))
    after = Cursor(topic_name="md-one", partition_index=2)
    peer.ask("partitions after a cursor", describe("md-one", "md-two", cursor=after))
    peer.ask(
        "partitions after a cursor past the end",
        describe("md-one", cursor=Cursor(topic_name="md-one", partition_index=9)),
    )
    peer.ask(
        "partitions after a cursor that was deleted",
        describe("md-one", "md-two", cursor=Cursor(topic_name="md-p", partition_index=0)),
    )
    peer.ask(
        "partitions before partition 0",
        describe("md-one", cursor=Cursor(topic_name="md-one", partition_index=-1)),
    )


def _mine(response: object) -> object:
    return response.replace(topics=[topic for topic in response.topics if topic.name.startswith("md-")])
