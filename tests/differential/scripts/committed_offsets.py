"""OffsetCommit, OffsetFetch, OffsetDelete: with and without a group's membership, and what is refused."""

from typing import Any
from uuid import UUID

from tests.differential.asker import Asker
from tests.differential.requests import make_topic, metadata
from tests.differential.scripts.groups import STRANGER, join, leave, sync

from odradek.protocol.messages.groups.delete_groups import DeleteGroupsRequest
from odradek.protocol.messages.groups.describe_groups import DescribeGroupsRequest
from odradek.protocol.messages.groups.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.protocol.messages.groups.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from odradek.protocol.messages.groups.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from odradek.protocol.messages.metadata.find_coordinator import FindCoordinatorRequest

SOME_ID = UUID(int=0xABCDEF)
BY_NAME = 9


def script(peer: Asker) -> None:
    make_topic(peer, "co-one", 3)
    find = FindCoordinatorRequest(key_type=0, coordinator_keys=["co-group", "co-member", "co-none"])
    peer.until(
        lambda response: not any(coordinator.error_code for coordinator in response.coordinators), find
    )
    peer.until(lambda reply: reply.groups[0].error_code not in (14, 16), fetch("co-group"), BY_NAME)
    _simple(peer)
    _fetching(peer)
    _members(peer)
    _deleting(peer)


def commit(
    group: str,
    *offsets: tuple[int, int],
    name: str = "co-one",
    generation: int = -1,
    member: str = "",
    **more: Any,
) -> OffsetCommitRequest:
    text = more.pop("text", "note")
    partitions = [
        OffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_metadata=text
        )
        for partition, offset in offsets
    ]
    topics = [
        OffsetCommitRequestTopic(name=name, topic_id=more.pop("topic_id", UUID(int=0)), partitions=partitions)
    ]
    return OffsetCommitRequest(
        group_id=group, generation_id_or_member_epoch=generation, member_id=member, topics=topics, **more
    )


def fetch(
    group: str, *partitions: int, name: str = "co-one", everything: bool = False, **more: Any
) -> OffsetFetchRequest:
    stable = more.pop("require_stable", False)
    topics = [
        OffsetFetchRequestTopics(
            name=name, topic_id=more.pop("topic_id", UUID(int=0)), partition_indexes=list(partitions)
        )
    ]
    wanted = OffsetFetchRequestGroup(group_id=group, topics=None if everything else topics, **more)
    return OffsetFetchRequest(groups=[wanted], require_stable=stable)


def _simple(peer: Asker) -> None:
    for version in (2, 3, 4, 5, 6, 7, 8, 9):
        peer.ask(f"committing, version {version}", commit("co-group", (0, version)), version)
    known = peer.quietly(metadata("co-one")).topics[0].topic_id
    peer.ask("committing by id", commit("co-group", (1, 10), topic_id=known))
    peer.ask("committing by an unknown id", commit("co-group", (1, 10), topic_id=SOME_ID))
    peer.ask("committing by no id", commit("co-group", (1, 10)))
    peer.ask("committing to an unknown partition", commit("co-group", (2, 1), (3, 1), (-1, 1)), BY_NAME)
    peer.ask("committing to an unknown topic", commit("co-group", (0, 1), name="co-none"), BY_NAME)
    peer.ask("committing an offset below zero", commit("co-group", (2, -1)), BY_NAME)
    peer.ask("committing without a text", commit("co-group", (2, 5), text=None), BY_NAME)
    peer.ask("committing a long text", commit("co-group", (2, 6), text="x" * 5000), BY_NAME)
    peer.ask("committing for a group without a name", commit("", (0, 1)), BY_NAME)
    peer.ask("committing nothing", commit("co-group"), BY_NAME)
    peer.ask(
        "committing for what is not there, in generation 1",
        commit("co-none", (0, 1), generation=1, member=STRANGER),
        BY_NAME,
    )
    peer.ask(
        "committing for what is not there, as a member", commit("co-none", (0, 1), member=STRANGER), BY_NAME
    )
    peer.ask(
        "committing in generation 1 without members",
        commit("co-group", (0, 1), generation=1, member=STRANGER),
        BY_NAME,
    )
    peer.ask("a group of offsets alone", DescribeGroupsRequest(groups=["co-group"]))


def _fetching(peer: Asker) -> None:
    for version in (1, 2, 3, 4, 5, 6, 7):
        topics = [OffsetFetchRequestTopic(name="co-one", partition_indexes=[0, 1, 2, 7])]
        peer.ask(
            f"fetching, version {version}", OffsetFetchRequest(group_id="co-group", topics=topics), version
        )
    for version in (2, 7):
        peer.ask(
            f"fetching all, version {version}", OffsetFetchRequest(group_id="co-group", topics=None), version
        )
        peer.ask(
            f"fetching what is not there, version {version}",
            OffsetFetchRequest(group_id="co-none", topics=None),
            version,
        )
    for version in (8, 9):
        peer.ask(f"fetching, version {version}", fetch("co-group", 0, 1, 2, 7), version)
        peer.ask(f"fetching all, version {version}", fetch("co-group", everything=True), version)
    known = peer.quietly(metadata("co-one")).topics[0].topic_id
    peer.ask("fetching by id", fetch("co-group", 0, 1, topic_id=known))
    peer.ask("fetching by an unknown id", fetch("co-group", 0, topic_id=SOME_ID))
    peer.ask("fetching all by id", fetch("co-group", everything=True))
    peer.ask("fetching what is stable", fetch("co-group", 0, require_stable=True), BY_NAME)
    peer.ask("fetching an unknown topic", fetch("co-group", 0, name="co-none"), BY_NAME)
    peer.ask("fetching for what is not there", fetch("co-none", 0), BY_NAME)
    peer.ask("fetching for a group without a name", fetch("", 0), BY_NAME)
    peer.ask("fetching as a stranger", fetch("co-group", 0, member_id=STRANGER, member_epoch=3), BY_NAME)
    two = OffsetFetchRequest(groups=[*fetch("co-group", 0).groups, *fetch("co-none", 0).groups])
    peer.ask("fetching for two groups", two, BY_NAME)


def _members(peer: Asker) -> None:
    member = peer.quietly(join("co-member")).member_id
    peer.quietly(join("co-member", member))

    def ask(step: str, offset: int, generation: int = 1, member: str = member, **more: Any) -> None:
        wanted = commit("co-member", (0, offset), generation=generation, member=member, **more)
        peer.ask(step, wanted, BY_NAME)

    ask("committing before the sync", 1)
    peer.quietly(sync("co-member", 1, member, shares={member: b"x"}))
    ask("committing as a member", 4)
    for generation in (0, 2):
        ask(f"committing in generation {generation}", 5, generation)
    ask("committing as a stranger", 6, member=STRANGER)
    ask("committing without membership", 7, -1, "")
    ask("committing with a static name that is unknown", 8, group_instance_id="st")
    peer.ask("what was committed", fetch("co-member", 0), BY_NAME)
    peer.quietly(leave("co-member", member))
    ask("committing when all have left", 9, -1, "")
    ask("committing after leaving", 9)


def _deleting(peer: Asker) -> None:
    def delete(group: str, *partitions: int, name: str = "co-one") -> OffsetDeleteRequest:
        wanted = [OffsetDeleteRequestPartition(partition_index=partition) for partition in partitions]
        return OffsetDeleteRequest(
            group_id=group, topics=[OffsetDeleteRequestTopic(name=name, partitions=wanted)]
        )

    peer.ask("deleting an offset", delete("co-group", 0, 7))
    peer.ask("deleting an offset that is not there", delete("co-group", 0))
    peer.ask("deleting an unknown topic's", delete("co-group", 0, name="co-none"))
    peer.ask("deleting for what is not there", delete("co-none", 0))
    peer.ask("deleting for a group without a name", delete("", 0))
    peer.ask("what is left", fetch("co-group", everything=True), BY_NAME)
    peer.ask(
        "deleting the group, and the one without a name", DeleteGroupsRequest(groups_names=["co-group", ""])
    )
    peer.ask("what is left of the group", fetch("co-group", 0, 1), BY_NAME)
