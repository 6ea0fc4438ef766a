"""What the controller tells a broker leads to the very image that it has."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.cluster import sync
from odradek.cluster.availability import LogEnd
from odradek.cluster.image import (
    NO_LEADER,
    NO_QUOTAS,
    NO_RESOURCE_CONFIGS,
    BrokerImage,
    ClusterImage,
    FeatureLevels,
    PartitionImage,
    TopicImage,
)
from odradek.cluster.sync import BrokerReport, UpdateDoesNotFit
from odradek.cluster.sync_pieces import TURN, at_once, in_turns, members
from odradek.cluster.topic_documents import partition_from_json, topic_data, topic_from
from odradek.model.ids import BrokerId, LeaderEpoch
from odradek.security.sasl.users import NO_USERS, ScramCredential, ScramUsers


def snapshot(image: ClusterImage) -> bytes:
    return at_once(sync.snapshot(image))


def delta(before: ClusterImage, after: ClusterImage) -> bytes:
    return at_once(sync.delta(before, after))


def apply_update(image: ClusterImage | None, payload: bytes) -> ClusterImage:
    return at_once(sync.apply_update(image, payload))


ids = st.integers(1, 6).map(BrokerId)
groups = st.lists(ids, max_size=4, unique=True).map(tuple)
partitions = st.builds(
    PartitionImage,
    leader=st.one_of(ids, st.just(NO_LEADER)),
    leader_epoch=st.integers(0, 2**31 - 1).map(LeaderEpoch),
    replicas=groups,
    isr=groups,
    partition_epoch=st.integers(0, 2**31 - 1),
    adding=groups,
    removing=groups,
    eligible=groups,
    last_known_leader=st.one_of(ids, st.just(NO_LEADER)),
    recovering=st.booleans(),
)
settings_of = st.dictionaries(st.sampled_from(["retention.ms", "a", "b"]), st.text(max_size=5), max_size=2)
brokers = st.builds(
    BrokerImage,
    broker_id=ids,
    host=st.text(max_size=5),
    port=st.integers(0, 65535),
    rack=st.one_of(st.none(), st.text(max_size=3)),
    epoch=st.integers(-1, 2**63 - 1),
    endpoints=st.dictionaries(
        st.text(max_size=3), st.tuples(st.text(max_size=3), st.integers(0, 65535)), max_size=2
    ),
    is_leaving=st.booleans(),
    is_cordoned=st.booleans(),
    control_plane=st.one_of(st.none(), st.text(max_size=3)),
)


@st.composite
def topics(draw: st.DrawFn) -> dict[str, TopicImage]:
    names = draw(st.lists(st.sampled_from(["t", "u", "v", "w"]), unique=True))
    return {
        name: TopicImage(
            name=name,
            topic_id=UUID(int=draw(st.integers(1, 2)) * 100 + ord(name)),
            partitions=tuple(draw(st.lists(partitions, min_size=1, max_size=3))),
            configs=draw(settings_of),
        )
        for name in names
    }


CREDENTIAL = ScramCredential(salt=b"s", stored_key=b"k", server_key=b"v", iterations=4096)
entities = st.tuples(st.tuples(st.sampled_from(["user", "client-id"]), st.none() | st.text(max_size=3)))


@st.composite
def images(draw: st.DrawFn) -> ClusterImage:
    image = ClusterImage(
        version=draw(st.integers(1, 1000)),
        cluster_id="c",
        controller_id=draw(ids),
        brokers=tuple(draw(st.lists(brokers, max_size=3))),
        topics={},
        topics_by_id={},
        broker_configs=draw(settings_of),
        resource_configs=NO_RESOURCE_CONFIGS.with_changes(
            draw(
                st.dictionaries(st.tuples(st.sampled_from([4, 32]), st.sampled_from(["1", "g"])), settings_of)
            )
        ),
        client_quotas=NO_QUOTAS.with_changes(
            draw(st.dictionaries(entities, st.just({"producer_byte_rate": 5.0})))
        ),
        scram_users=ScramUsers(
            seed=draw(st.sampled_from(["", "s"])),
            users=NO_USERS.with_changes(
                draw(st.dictionaries(st.text(max_size=3), st.just({"m": CREDENTIAL})))
            ),
        ),
        features=FeatureLevels(
            epoch=draw(st.integers(0, 3)), levels=draw(st.dictionaries(st.just("f"), st.integers(0, 2)))
        ),
        controller_epoch=3,
    )
    version = image.version
    return replace(image.with_only_topics(draw(topics())), version=version)


@settings(deadline=None, max_examples=25)
@given(image=images())
def test_a_snapshot_leads_to_the_same_image(image: ClusterImage) -> None:
    assert apply_update(None, snapshot(image)) == image


@settings(deadline=None, max_examples=40)
@given(before=images(), after=images())
def test_a_delta_leads_from_one_image_to_the_other(before: ClusterImage, after: ClusterImage) -> None:
    assert apply_update(before, delta(before, after)) == after


def test_older_brokers_can_read_an_image_without_control_planes() -> None:
    """They take a broker for a list of eight things."""
    without = BrokerImage(broker_id=BrokerId(1), host="h", port=9092)
    image = ClusterImage(
        version=1, cluster_id="c", controller_id=BrokerId(1), brokers=(without,), topics={}, topics_by_id={}
    )
    assert json.loads(snapshot(image))["brokers"] == [[1, -1, "h", 9092, None, {}, False, False]]


@settings(deadline=None, max_examples=20)
@given(image=images(), other=images())
def test_what_stays_the_same_is_the_same_object(image: ClusterImage, other: ClusterImage) -> None:
    kept = replace(image, version=image.version + 1, brokers=other.brokers)
    for update in (delta(image, kept), snapshot(kept)):
        after = apply_update(image, update)
        assert all(after.topics[name] is topic for name, topic in image.topics.items())


@settings(deadline=None, max_examples=40)
@given(topic=topics())
def test_a_topic_reads_back_from_the_registry(topic: dict[str, TopicImage]) -> None:
    for name, value in topic.items():
        assert topic_from(name, topic_data(value)) == value


def test_a_partition_of_a_registry_of_one_broker_is_still_read() -> None:
    assert partition_from_json({"leader": 1, "epoch": 7, "replicas": [1], "isr": [1]}) == PartitionImage(
        leader=BrokerId(1), leader_epoch=LeaderEpoch(7), replicas=(BrokerId(1),), isr=(BrokerId(1),)
    )


def test_a_delta_from_another_image_is_refused() -> None:
    image = ClusterImage(
        version=1, cluster_id="c", controller_id=BrokerId(1), brokers=(), topics={}, topics_by_id={}
    )
    two, three = replace(image, version=2), replace(image, version=3)
    with pytest.raises(UpdateDoesNotFit):
        apply_update(image, delta(two, three))
    with pytest.raises(UpdateDoesNotFit):
        apply_update(None, delta(two, three))
    with pytest.raises(UpdateDoesNotFit):
        apply_update(replace(two, controller_epoch=9), delta(two, three))


def test_a_report_reads_back_and_an_empty_one_says_nothing() -> None:
    report = BrokerReport(
        broker_id=BrokerId(1),
        broker_epoch=5,
        controller_epoch=2,
        version=9,
        damaged=frozenset([(UUID(int=1), 0), (UUID(int=2), 3)]),
        offline=frozenset([(UUID(int=3), 1)]),
        uncertain={(UUID(int=1), 0): LogEnd(leader_epoch=3, offset=17)},
        is_leaving=True,
    )
    bare = replace(report, damaged=frozenset(), offline=frozenset(), uncertain={}, is_leaving=False)
    assert bare.with_data(report.data()) == report
    assert report.with_data(b"") == bare


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@settings(deadline=None, max_examples=60)
@given(
    value=st.dictionaries(st.text(max_size=3), json_values, max_size=4),
    topics=st.dictionaries(st.text(max_size=3), json_values, max_size=3),
    indent=st.sampled_from([None, 1]),
)
def test_members_are_those_that_the_whole_would_give(
    value: dict[str, Any], topics: dict[str, Any], indent: int | None
) -> None:
    value["topics"] = topics
    read: dict[str, Any] = {"topics": {}}
    for key, member in members(json.dumps(value, indent=indent), apart=["topics"]):
        if key == "topics":
            read["topics"][member[0]] = member[1]
        else:
            read[key] = member
    assert read == value


@pytest.mark.parametrize("text", ["", "[]", "{", '{"a"}', '{"a":1', '{"a":1,}', '{"a":1} x', '{"topics":[]}'])
def test_what_is_no_object_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"Expecting|Extra|Unterminated"):
        list(members(text, apart=["topics"]))


@pytest.mark.parametrize("topic_count", [1, 40])
async def test_others_are_served_while_a_large_image_is_written_and_read(topic_count: int) -> None:
    """Also where all partitions are of one topic."""
    partition = PartitionImage(
        leader=BrokerId(1), leader_epoch=LeaderEpoch(7), replicas=(BrokerId(1),), isr=(BrokerId(1),)
    )
    partition_count = 20 * TURN // topic_count
    names = [f"t{number}" for number in range(topic_count)]
    empty = ClusterImage(
        version=1, cluster_id="c", controller_id=BrokerId(1), brokers=(), topics={}, topics_by_id={}
    )
    image = empty.with_only_topics(
        {
            name: TopicImage(
                name=name,
                topic_id=UUID(int=number + 1),
                partitions=(partition,) * partition_count,
                configs={},
            )
            for number, name in enumerate(names)
        }
    )
    payload, rounds = await _rounds_during(in_turns(sync.snapshot(image)))
    assert rounds >= 20
    read, rounds = await _rounds_during(in_turns(sync.apply_update(None, payload)))
    assert rounds >= 20
    assert read == image


async def _rounds_during(work: Coroutine[Any, Any, Any]) -> tuple[Any, int]:
    """What it returned, and how often others had the loop meanwhile."""
    task, rounds = asyncio.ensure_future(work), 0
    while not task.done():
        await asyncio.sleep(0)
        rounds += 1
    return task.result(), rounds
