"""Much of what is legal: many topics in one request, metadata of many partitions, a large group, produces that wait."""

from __future__ import annotations

import time
from functools import partial
from typing import Final
from uuid import UUID

from tests.hostile.attack import TARGET_TOPIC, Attack, Stage, create_topic, in_parallel
from tests.hostile.attacks.connections import produce_frame
from tests.hostile.figures import MEBIBYTE
from tests.kit.wire import BlockingWire, parse_address

from odradek.protocol.messages.groups.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from odradek.protocol.messages.metadata.metadata import MetadataRequest, MetadataRequestTopic
from odradek.protocol.messages.topics.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.protocol.messages.topics.delete_topics import DeleteTopicsRequest, DeleteTopicState

_WIDE_TOPICS: Final = 20
_GROUP_TOPIC: Final = "crowded"


def _many_topics(stage: Stage) -> None:
    """One request makes them, one deletes them."""
    names = [f"made-{number}" for number in range(stage.scale.count(1000, 100))]
    topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=-1) for name in names]
    with stage.connect() as peer:
        began = time.monotonic()
        made = peer.ask(CreateTopicsRequest(topics=topics, timeout_ms=30_000), 7)
        stage.notes["made"] = sum(topic.error_code == 0 for topic in made.topics)
        stage.notes["made_in_s"] = round(time.monotonic() - began, 2)
        began = time.monotonic()
        states = [DeleteTopicState(name=name) for name in names]
        deleted = peer.ask(DeleteTopicsRequest(topics=states, timeout_ms=30_000), 6)
        stage.notes["deleted"] = sum(topic.error_code == 0 for topic in deleted.responses)
        stage.notes["deleted_in_s"] = round(time.monotonic() - began, 2)


def _prepare_partitions(stage: Stage) -> None:
    for number in range(_WIDE_TOPICS):
        create_topic(
            stage.connect(), f"wide-{number}", partitions=stage.scale.count(500, 20), copies=1, settings={}
        )


def _ask_for_all(stage: Stage) -> None:
    """Clients that ask for the metadata of everything, side by side."""
    rounds = stage.scale.count(8, 3)
    asking = [partial(_ask_again, stage, rounds) for _ in range(8)]
    stage.must(in_parallel(asking, 120.0) == 0, "metadata of everything is not answered")


def _ask_again(stage: Stage, rounds: int) -> None:
    with stage.connect() as peer:
        for _ in range(rounds):
            response = peer.ask(MetadataRequest(topics=None, allow_auto_topic_creation=False), 12)
            assert len(response.topics) >= _WIDE_TOPICS, f"{len(response.topics)} topics"


def _prepare_group(stage: Stage) -> None:
    for number in range(stage.scale.count(8, 2)):
        create_topic(
            stage.connect(), f"{_GROUP_TOPIC}-{number}", partitions=stage.scale.count(500, 50), copies=1
        )


def _join_in_crowds(stage: Stage) -> None:
    """A KIP-848 group of many members over many partitions: each member that joins has the group assigned again."""
    topics = [f"{_GROUP_TOPIC}-{number}" for number in range(stage.scale.count(8, 2))]
    with stage.connect() as peer:
        for number in range(stage.scale.count(200, 30)):
            response = peer.ask(
                ConsumerGroupHeartbeatRequest(
                    group_id=_GROUP_TOPIC,
                    member_id=str(UUID(int=number + 1)),
                    member_epoch=0,
                    rebalance_timeout_ms=30_000,
                    subscribed_topic_names=topics,
                    server_assignor="uniform",
                    topic_partitions=[],
                ),
                1,
            )
            assert response.error_code == 0, response


def _produce_and_wait(stage: Stage) -> None:
    """acks=all while two followers stand still: what waits must not hold its records in memory."""
    with stage.connect() as peer:
        asked = MetadataRequest(
            topics=[MetadataRequestTopic(name=TARGET_TOPIC)], allow_auto_topic_creation=False
        )
        partitions = peer.ask(asked, 8).topics[0].partitions
    place = min(partitions, key=lambda partition: partition.partition_index)
    leader = stage.fleet.broker(place.leader_id)
    followers = [broker for broker in stage.fleet.brokers if broker is not leader]
    frame = produce_frame(TARGET_TOPIC, 900_000, partition=place.partition_index)
    peers = [BlockingWire(parse_address(leader.address)) for _ in range(stage.scale.count(60, 20))]
    try:
        for broker in followers:
            broker.pause()
        for peer in peers:
            for _ in range(5):
                peer.send(frame)
        time.sleep(stage.scale.count(5, 2))
    finally:
        for broker in followers:
            broker.resume()
        for peer in peers:
            peer.abandon()


ATTACKS: Final = (
    Attack(
        name="many topics in one request",
        brokers_in_short=(1,),
        claim="a thousand topics are made and deleted while others are served",
        run=_many_topics,
        brokers=(1, 3),
    ),
    Attack(
        name="metadata of everything",
        claim="clients that ask for all partitions at once hold up no one",
        run=_ask_for_all,
        prepare=_prepare_partitions,
        grown_bytes_max=400 * MEBIBYTE,
    ),
    Attack(
        name="a crowd joins a group",
        claim="the assignment of a large group holds up no one",
        run=_join_in_crowds,
        prepare=_prepare_group,
    ),
    Attack(
        name="produces that wait for followers",
        claim="records that are in the log are not kept in memory until they are acknowledged",
        run=_produce_and_wait,
        brokers=(3,),
        grown_bytes_max=96 * MEBIBYTE,
        is_bystander_judged=False,
        settings={"broker.session.timeout.ms": "30000"},
    ),
)
