from __future__ import annotations

import random
import zlib
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.cluster.image import PartitionImage, TopicImage
from odradek.cluster.topic_documents import topic_data
from odradek.model.ids import BrokerId, LeaderEpoch
from odradek.registry import Check, Create, Delete, Put, RegistryError
from odradek.registry.zookeeper_steps import (
    COMPRESSED_FROM_BYTES,
    PACKET_BYTES_MAX,
    VALUE_BYTES_MAX,
    CommitPlan,
    ancestors,
    decode,
    encode,
)


@settings(deadline=None, max_examples=200)
@given(
    st.one_of(
        st.binary(max_size=40),
        st.builds(lambda operation, n: operation * n, st.binary(max_size=9), st.integers(0, 9_000)),
    )
)
def test_a_value_is_read_as_it_was_written(data: bytes) -> None:
    stored = encode(data)
    assert stored, "nothing at all means: no node"
    assert decode(stored, "/a") == data


def test_small_values_stay_readable_and_large_ones_are_compressed() -> None:
    assert encode(b'{"broker":1}') == b'{"broker":1}'
    assert len(encode(b"x" * COMPRESSED_FROM_BYTES)) < 200


def test_what_does_not_compress_is_left_alone() -> None:
    data = b"{" + random.Random(1).randbytes(COMPRESSED_FROM_BYTES)
    assert encode(data) == data


def test_nothing_at_all_is_no_node() -> None:
    assert decode(b"", "/a") is None


@pytest.mark.parametrize(
    "stored",
    [
        b"\x01",
        b"\x01junk",
        b"\x01" + zlib.compress(b"x" * 100)[:-5],
        b"\x01" + zlib.compress(bytes(VALUE_BYTES_MAX + 1)),
    ],
    ids=["empty", "junk", "torn", "bomb"],
)
def test_a_damaged_value_is_refused(stored: bytes) -> None:
    with pytest.raises(RegistryError, match="the znode of /a is damaged"):
        decode(stored, "/a")


def test_a_topic_of_ten_thousand_partitions_fits() -> None:
    chance = random.Random(7)
    partitions = []
    for _ in range(10_000):
        replicas = tuple(BrokerId(number) for number in chance.sample(range(1000), 3))
        partitions.append(
            PartitionImage(
                leader=replicas[0],
                leader_epoch=LeaderEpoch(chance.randrange(10_000)),
                replicas=replicas,
                isr=replicas,
            )
        )
    topic = TopicImage(name="wide", topic_id=UUID(int=1), partitions=tuple(partitions), configs={})
    assert len(encode(topic_data(topic))) < PACKET_BYTES_MAX // 2


def test_each_operation_is_a_step() -> None:
    operations = [
        Check(path="/epoch", version=3),
        Create(path="/a", data=b"1", ephemeral=True),
        Put(path="/b", data=b"2", version=0),
        Delete(path="/c", version=5),
    ]
    check, create, put, delete = CommitPlan(operations, {1: b"1", 2: b"2"}).steps()
    assert (check.data, check.version, check.creates, check.deletes) == (None, 3, False, False)
    assert (create.creates, create.ephemeral, create.data) == (True, True, b"1")
    assert (put.data, put.version) == (b"2", 0)
    assert (delete.deletes, delete.version) == (True, 5)


def test_missing_parents_are_made_first_and_in_the_same_commit() -> None:
    plan = CommitPlan([Check(path="/epoch", version=0), Create(path="/a/b/c", data=b"1")], {1: b"1"})
    plan.parents_are_missing(ancestors("/a/b/c"))
    assert [(step.path, step.creates) for step in plan.steps()] == [
        ("/a", True),
        ("/a/b", True),
        ("/epoch", False),
        ("/a/b/c", True),
    ]
    plan.parent_exists("/a")
    assert [step.path for step in plan.steps()] == ["/a/b", "/epoch", "/a/b/c"]


def test_a_node_is_made_at_a_mere_parent_by_writing_to_it() -> None:
    plan = CommitPlan([Create(path="/a", data=b"1")], {0: b"1"})
    plan.is_mere_parent(0, 4)
    (step,) = plan.steps()
    assert (step.creates, step.data, step.version) == (False, b"1", 4)
    assert plan.is_no_longer_mere_parent(0)
    assert plan.steps()[0].creates


def test_a_node_with_children_is_removed_by_emptying_it() -> None:
    plan = CommitPlan([Delete(path="/a", version=2)], {})
    plan.has_children(0)
    (step,) = plan.steps()
    assert (step.deletes, step.data, step.version) == (False, b"", 2)


def test_more_than_zookeeper_takes_at_once_is_refused_with_its_largest_part() -> None:
    sizes = {0: PACKET_BYTES_MAX // 2, 1: PACKET_BYTES_MAX // 2 + 1}
    operations = [Create(path=f"/topics/{number}", data=b"") for number in sizes]
    with pytest.raises(RegistryError, match="the largest part is /topics/1 with 524288 bytes"):
        CommitPlan(operations, {number: bytes(size) for number, size in sizes.items()}).steps()
