"""What the controller tells a broker leads to the very image that it has."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.cluster.image import (
    NO_LEADER,
    BrokerImage,
    ClusterImage,
    FeatureLevels,
    PartitionImage,
    TopicImage,
)
from odradek.cluster.sync import BrokerReport, UpdateDoesNotFit, apply_update, delta, snapshot
from odradek.cluster.topic_documents import partition_from_json, topic_data, topic_from
from odradek.model.ids import BrokerId, LeaderEpoch

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
        resource_configs=draw(
            st.dictionaries(st.tuples(st.sampled_from([4, 32]), st.sampled_from(["1", "g"])), settings_of)
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
    for name, one in topic.items():
        assert topic_from(name, topic_data(one)) == one


def test_a_partition_of_a_registry_of_one_broker_is_still_read() -> None:
    assert partition_from_json({"leader": 1, "epoch": 7, "replicas": [1], "isr": [1]}) == PartitionImage(
        leader=BrokerId(1), leader_epoch=LeaderEpoch(7), replicas=(BrokerId(1),), isr=(BrokerId(1),)
    )


def test_a_delta_from_another_image_is_refused() -> None:
    one = ClusterImage(
        version=1, cluster_id="c", controller_id=BrokerId(1), brokers=(), topics={}, topics_by_id={}
    )
    two, three = replace(one, version=2), replace(one, version=3)
    with pytest.raises(UpdateDoesNotFit):
        apply_update(one, delta(two, three))
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
        is_leaving=True,
    )
    bare = replace(report, damaged=frozenset(), offline=frozenset(), is_leaving=False)
    assert bare.with_data(report.data()) == report
    assert report.with_data(b"") == bare
