"""Offsets that go in larger numbers than one batch holds, and with topics that went while no one looked."""

from functools import partial
from uuid import UUID

import pytest
from tests.unit.groups.group_bench import GroupBench

from odradek.config.broker import BrokerConfig
from odradek.groups.offsets.committing import Commit, CommitRequest, commit
from odradek.groups.offsets.fetching import fetch
from odradek.groups.offsets.removing import delete_group, delete_topics, groups_with_offsets
from odradek.groups.shard.kinds import Committer
from odradek.groups.shard.machine import RECORD_OVERHEAD_BYTES
from odradek.groups.shard.settings import GroupSettings
from odradek.shards import NewRecord

MANY = 2_500
BATCH_BYTES_MAX = 200_000


def weight(batch: list[NewRecord]) -> int:
    return sum(len(record.key) + RECORD_OVERHEAD_BYTES for record in batch)


def commit_many(bench: GroupBench, group_id: str, count: int, topic: str = "t") -> None:
    topic_id = bench.machine.dependencies.topics.topic_id(topic) or UUID(int=0)
    commits = [Commit(topic=topic, partition=n, offset=1, topic_id=topic_id) for n in range(count)]
    request = CommitRequest(group_id=group_id, committer=Committer(), commits=commits)
    bench.execute(partial(commit, request=request))


def test_a_group_with_many_offsets_is_deleted_in_parts() -> None:
    bench = GroupBench(batch_bytes_max=BATCH_BYTES_MAX)
    commit_many(bench, "g", MANY)
    bench.batches.clear()
    while not bench.execute(partial(delete_group, group_id="g")):
        pass
    assert len(bench.batches) > 1
    assert max(map(weight, bench.batches)) <= BATCH_BYTES_MAX
    assert bench.machine.groups == {}
    assert list(bench.machine.offsets.groups()) == []


def test_the_offsets_of_a_deleted_topic_go_in_parts_from_every_group() -> None:
    bench = GroupBench(batch_bytes_max=BATCH_BYTES_MAX)
    for number in range(1_200):
        commit_many(bench, f"g{number}", 3)
    commit_many(bench, "large", MANY)
    bench.batches.clear()
    left = bench.execute(groups_with_offsets)
    while left:
        left = bench.execute(partial(delete_topics, topics=frozenset({"t"}), group_ids=left))
    assert max(map(weight, bench.batches)) <= BATCH_BYTES_MAX
    assert list(bench.machine.offsets.groups()) == []


def test_many_offsets_expire_in_parts() -> None:
    settings = GroupSettings(offsets_retention_ms=100_000, offsets_retention_check_interval_ms=1_000)
    bench = GroupBench(settings, batch_bytes_max=BATCH_BYTES_MAX)
    commit_many(bench, "g", MANY)
    bench.batches.clear()
    bench.advance(110_000)
    assert max(map(weight, bench.batches)) <= BATCH_BYTES_MAX
    assert bench.machine.groups == {}


def test_offsets_of_a_topic_that_went_unseen_are_cleaned_up() -> None:
    bench = GroupBench(
        GroupSettings(offsets_retention_check_interval_ms=1_000), topics={"t": 9, "u": 9, "again": 9}
    )
    for topic in ("t", "u", "again"):
        commit_many(bench, "g", 1, topic)
    bench.topics.delete("u")
    bench.topics.delete("again")
    bench.topics.create("again", 9)
    bench.restart()
    bench.advance(2_500)
    assert set(bench.machine.offsets.of("g")) == {("t", 0)}


def test_what_was_committed_for_a_topic_is_not_found_for_the_next_one_of_its_name() -> None:
    bench = GroupBench(topics={"t": 9, "u": 9})
    commit_many(bench, "g", 1, "t")
    commit_many(bench, "g", 1, "u")
    bench.topics.delete("t")
    bench.topics.create("t", 9)

    def fetched(wanted: dict[tuple[str, int], UUID] | None) -> dict[tuple[str, int], int]:
        operation = partial(
            fetch, group_id="g", member_id=None, member_epoch=-1, wanted=wanted, require_stable=False
        )
        return {place: record.offset for place, record in bench.execute(operation).items()}

    assert fetched(None) == {("u", 0): 1}
    assert fetched({("t", 0): UUID(int=0), ("u", 0): UUID(int=0)}) == {("t", 0): -1, ("u", 0): 1}


def test_groups_with_long_names_expire_in_batches_that_fit() -> None:
    settings = GroupSettings(offsets_retention_ms=100_000, offsets_retention_check_interval_ms=1_000)
    bench = GroupBench(settings, batch_bytes_max=BATCH_BYTES_MAX)
    for number in range(40):
        commit_many(bench, f"{number}".rjust(30_000, "g"), 1)
    bench.batches.clear()
    bench.advance(110_000)
    assert max(map(weight, bench.batches)) <= BATCH_BYTES_MAX
    assert bench.machine.groups == {}


def test_offsets_may_be_kept_for_longer_than_a_timestamp_reaches() -> None:
    bench = GroupBench(GroupSettings(offsets_retention_ms=1_000, offsets_retention_check_interval_ms=1_000))
    topic_id = bench.machine.dependencies.topics.topic_id("t") or UUID(int=0)
    for partition, retention_ms in enumerate((2**63 - 1, -(2**63), 5_000)):
        offset_commit = Commit(topic="t", partition=partition, offset=1, topic_id=topic_id)
        request = CommitRequest(
            group_id="g", committer=Committer(), commits=[offset_commit], retention_ms=retention_ms
        )
        bench.execute(partial(commit, request=request))
    bench.advance(10_000)
    assert set(bench.machine.offsets.of("g")) == {("t", 0)}


@pytest.mark.parametrize(
    ("prefixes", "kept"),
    [
        (("__odradek_sink.",), {"__odradek_sink.s"}),
        (("__odradek_sink.", "k"), {"__odradek_sink.s", "k"}),
        ((), set()),
    ],
)
def test_groups_that_are_exempt_keep_their_offsets(prefixes: tuple[str, ...], kept: set[str]) -> None:
    settings = GroupSettings(
        offsets_retention_ms=100_000,
        offsets_retention_check_interval_ms=1_000,
        offsets_retention_exempt_prefixes=prefixes,
    )
    bench = GroupBench(settings)
    for name in ("__odradek_sink.s", "__odradek_sinks", "k"):
        commit_many(bench, name, 3)
    bench.advance(1_000_000)
    assert set(bench.machine.offsets.groups()) == kept


def test_exempt_groups_forget_a_topic_that_was_deleted() -> None:
    bench = GroupBench(GroupSettings(offsets_retention_exempt_prefixes=("g",)))
    commit_many(bench, "g", 1)
    while left := bench.execute(partial(delete_topics, topics=frozenset({"t"}), group_ids=["g"])):
        assert left == ["g"]
    assert list(bench.machine.offsets.groups()) == []


def test_the_sinks_decisions_are_exempt_by_default() -> None:
    assert GroupSettings.of(BrokerConfig()).offsets_retention_exempt_prefixes == ("__odradek_sink.",)
