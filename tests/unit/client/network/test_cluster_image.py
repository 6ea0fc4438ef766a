"""What is known of the cluster, and how answers change it."""

from __future__ import annotations

from uuid import UUID

from odradek.client.network.metadata_snapshot import MetadataSnapshot
from odradek.client.settings.address import Address
from odradek.model.errors import ErrorCode
from odradek.model.ids import TopicPartition
from odradek.protocol.messages.metadata.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

TP = TopicPartition("t", 0)


def metadata(
    *leaders: tuple[int, int],
    name: str = "t",
    topic_id: int = 1,
    code: int = 0,
    brokers: tuple[int, ...] = (1, 2),
) -> MetadataResponse:
    """An answer about one topic: (leader, epoch) of each partition."""
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=n, host=f"b{n}", port=9000 + n) for n in brokers],
        controller_id=1,
        cluster_id="c",
        topics=[
            MetadataResponseTopic(
                error_code=code,
                name=name,
                topic_id=UUID(int=topic_id),
                partitions=[
                    MetadataResponsePartition(partition_index=number, leader_id=leader, leader_epoch=epoch)
                    for number, (leader, epoch) in enumerate(leaders)
                ],
            )
        ],
    )


def test_an_answer_names_brokers_and_leaders() -> None:
    image = MetadataSnapshot().merged(metadata((1, 0), (2, 5)))
    assert image.brokers == {1: Address("b1", 9001), 2: Address("b2", 9002)}
    assert [image.leader(TopicPartition("t", number)) for number in range(3)] == [1, 2, None]
    assert image.topic_id("t") == UUID(int=1)
    assert image.topic_name(UUID(int=1)) == "t"


def test_a_leader_without_an_address_is_no_leader_to_talk_to() -> None:
    assert MetadataSnapshot().merged(metadata((9, 0))).leader(TP) is None
    assert MetadataSnapshot().merged(metadata((-1, 0))).leader(TP) is None


def test_an_answer_from_a_broker_that_lags_does_not_bring_an_old_leader_back() -> None:
    image = MetadataSnapshot().merged(metadata((2, 7))).merged(metadata((1, 6)))
    assert image.leader(TP) == 2
    assert image.merged(metadata((1, 8))).leader(TP) == 1


def test_epochs_of_another_topic_of_the_same_name_do_not_count() -> None:
    image = MetadataSnapshot().merged(metadata((2, 7))).merged(metadata((1, 0), topic_id=2))
    assert (image.leader(TP), image.topic_id("t")) == (1, UUID(int=2))


def test_answers_without_epochs_are_believed_as_they_come() -> None:
    assert MetadataSnapshot().merged(metadata((2, -1))).merged(metadata((1, -1))).leader(TP) == 1


def test_topics_that_an_answer_does_not_mention_stay() -> None:
    image = MetadataSnapshot().merged(metadata((1, 0))).merged(metadata((2, 0), name="u"))
    assert set(image.topics) == {"t", "u"}


def test_a_topic_that_is_gone_is_forgotten_and_the_reason_kept_until_it_is_back() -> None:
    image = MetadataSnapshot().merged(metadata((1, 0))).merged(metadata(code=3))
    assert image.partition(TP) is None
    assert image.topic_errors == {"t": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert image.merged(metadata((1, 0))).topic_errors == {}


def test_a_topic_without_a_leader_for_the_moment_is_not_forgotten() -> None:
    image = MetadataSnapshot().merged(metadata((1, 0))).merged(metadata(code=5))
    assert image.partition(TP) is not None
    assert image.topic_errors == {"t": ErrorCode.LEADER_NOT_AVAILABLE}


def test_a_newer_leader_heard_in_passing_is_taken_over_with_its_address() -> None:
    image = MetadataSnapshot().merged(metadata((1, 4)))
    moved = image.with_leader(TP, 3, 5, {3: Address("b3", 9003)})
    assert (moved.leader(TP), moved.brokers[3]) == (3, Address("b3", 9003))
    assert image.with_leader(TP, 2, 4, {}) is image
    assert image.with_leader(TopicPartition("u", 0), 2, 9, {}) is image
