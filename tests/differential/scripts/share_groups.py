"""Share groups (KIP-932): membership, acquiring and acknowledging records, sessions, offsets of groups, and what is refused."""

from typing import Any
from uuid import UUID

from tests.differential.asker import Asker
from tests.differential.requests import batch, make_topic, metadata, produce
from tests.differential.scripts.configs import GROUP, SET, change
from tests.differential.scripts.consumer_groups import has_partitions

from odradek.protocol.messages.groups.delete_groups import DeleteGroupsRequest
from odradek.protocol.messages.groups.list_groups import ListGroupsRequest
from odradek.protocol.messages.metadata.find_coordinator import FindCoordinatorRequest
from odradek.protocol.messages.share.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from odradek.protocol.messages.share.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from odradek.protocol.messages.share.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from odradek.protocol.messages.share.share_acknowledge import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from odradek.protocol.messages.share.share_fetch import AcknowledgementBatch as FetchAcknowledgement
from odradek.protocol.messages.share.share_fetch import FetchPartition, FetchTopic, ShareFetchRequest
from odradek.protocol.messages.share.share_group_describe import ShareGroupDescribeRequest
from odradek.protocol.messages.share.share_group_heartbeat import ShareGroupHeartbeatRequest

MEMBER, STRANGER = "AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg"
"""Members make their own ids, which have to be Kafka's UUIDs."""
GAP, ACCEPT, RELEASE, REJECT, RENEW = 0, 1, 2, 3, 4
SOME_ID = UUID(int=0xABCDEF)


def script(peer: Asker) -> None:
    peer.quietly(ShareGroupDescribeRequest(group_ids=[]))
    make_topic(peer, "sh-one")
    make_topic(peer, "sh-two")
    topic_id = peer.quietly(metadata("sh-one")).topics[0].topic_id
    find = FindCoordinatorRequest(key_type=0, coordinator_keys=["sh-group"])
    peer.until(lambda response: response.coordinators[0].error_code == 0, find)
    peer.until(lambda reply: reply.error_code not in (14, 16), beat("sh-none", STRANGER, 1))
    peer.quietly(change(GROUP, "sh-group", ("share.auto.offset.reset", SET, "earliest")))
    _wrong(peer)
    epoch = _joining(peer)
    _fetching(peer, topic_id)
    _offsets(peer, epoch)


def beat(group: str, member: str, epoch: int, *topics: str, **more: Any) -> ShareGroupHeartbeatRequest:
    names = list(topics) if topics or epoch == 0 else None
    values = {"subscribed_topic_names": names} | more
    return ShareGroupHeartbeatRequest(group_id=group, member_id=member, member_epoch=epoch, **values)


def describe(*groups: str) -> ShareGroupDescribeRequest:
    return ShareGroupDescribeRequest(group_ids=list(groups))


def _wrong(peer: Asker) -> None:
    peer.ask("a group without a name", beat("", MEMBER, 0, "sh-one"))
    peer.ask("a member without an id", beat("sh-none", "", 0, "sh-one"))
    peer.ask("an epoch that does not exist", beat("sh-none", MEMBER, -3, "sh-one"))
    peer.ask("joining without a subscription", beat("sh-none", MEMBER, 0, subscribed_topic_names=None))
    peer.ask("joining with an empty subscription", beat("sh-none", MEMBER, 0))
    peer.ask("joining with an empty rack", beat("sh-none", MEMBER, 0, "sh-one", rack_id=""))
    peer.ask("a heartbeat of what is not there", beat("sh-none", MEMBER, 1))
    peer.ask("leaving what is not there", beat("sh-none", MEMBER, -1))
    peer.ask("describing what is not there", describe("sh-none"))
    for length in (0, 1, 36, 37):
        named = {"group_id": "sh-none", "member_id": "m" * length}
        peer.ask(f"a session of a member with an id of {length}", fetch(0, None, **named), line=f"{length}")
        peer.ask(
            f"acknowledging with an id of {length}", ShareAcknowledgeRequest(**named, share_session_epoch=7)
        )
        peer.ask(f"a heartbeat with an id of {length}", beat("sh-none", "m" * length, 1))


def _joining(peer: Asker) -> int:
    joined = peer.ask("joining", beat("sh-group", MEMBER, 0, "sh-one"), only=_without_epoch)
    epoch = joined.member_epoch
    if not has_partitions(joined):
        epoch = peer.until(has_partitions, beat("sh-group", MEMBER, epoch)).member_epoch
    peer.ask("nothing new", beat("sh-group", MEMBER, epoch), only=_without_epoch)
    other = beat("sh-group", MEMBER, epoch, "sh-two")
    epoch = peer.ask("subscribing to another topic", other, only=_without_epoch).member_epoch
    epoch = peer.until(has_partitions, beat("sh-group", MEMBER, epoch)).member_epoch
    back = beat("sh-group", MEMBER, epoch, "sh-one")
    epoch = peer.ask(
        "subscribing to the first again, too soon for a target", back, only=_without_epoch
    ).member_epoch
    epoch = peer.until(has_partitions, beat("sh-group", MEMBER, epoch)).member_epoch
    peer.ask("an epoch too high", beat("sh-group", MEMBER, epoch + 5))
    peer.ask("a stranger's heartbeat", beat("sh-group", STRANGER, 1))
    peer.ask("described", describe("sh-group"), only=_without_epochs)
    peer.ask("listed", ListGroupsRequest(types_filter=["share"]), only=_mine)
    peer.ask("deleting a group in use", DeleteGroupsRequest(groups_names=["sh-group"]))
    return int(epoch)


def _without_epoch(response: Any) -> Any:
    return response.replace(member_epoch=0)


def _without_epochs(response: Any) -> Any:
    group = response.groups[0]
    members = [member.replace(member_epoch=0) for member in group.members]
    return response.replace(groups=[group.replace(group_epoch=0, assignment_epoch=0, members=members)])


def _mine(response: Any) -> Any:
    return response.replace(groups=[group for group in response.groups if group.group_id == "sh-group"])


def fetch(
    epoch: int, topic_id: UUID | None, *, said: tuple[int, int, list[int]] | None = None, **more: Any
) -> ShareFetchRequest:
    """`said` acknowledges: first offset, last offset, types."""
    acknowledged = []
    if said:
        first, last, types = said
        acknowledged = [FetchAcknowledgement(first_offset=first, last_offset=last, acknowledge_types=types)]
    topics = []
    if topic_id is not None:
        partition = FetchPartition(
            partition_index=more.pop("partition", 0), acknowledgement_batches=acknowledged
        )
        topics = [FetchTopic(topic_id=topic_id, partitions=[partition])]
    values = {
        "group_id": "sh-group",
        "member_id": MEMBER,
        "max_wait_ms": 100,
        "min_bytes": 1,
        "max_records": 100,
    }
    values |= {"batch_size": 100, "topics": topics} | more
    return ShareFetchRequest(share_session_epoch=epoch, **values)


def acknowledge(
    epoch: int, topic_id: UUID, first: int, last: int, *types: int, **more: Any
) -> ShareAcknowledgeRequest:
    said = AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=list(types))
    partition = AcknowledgePartition(partition_index=0, acknowledgement_batches=[said])
    values = {"group_id": "sh-group", "member_id": MEMBER} | more
    topics = [AcknowledgeTopic(topic_id=topic_id, partitions=[partition])]
    return ShareAcknowledgeRequest(share_session_epoch=epoch, topics=topics, **values)


def _fetching(peer: Asker, topic_id: UUID) -> None:
    for value in ("a", "b", "c"):
        peer.quietly(produce("sh-one", batch(value, value * 2)), 12)
    peer.ask("fetching without a session", fetch(1, topic_id))
    peer.ask("closing no session", fetch(-1, None))
    epoch = 0
    response = peer.quietly(fetch(epoch, topic_id))
    epoch = 1
    for _ in range(100):
        if response.responses and response.responses[0].partitions[0].acquired_records:
            break
        response = peer.quietly(fetch(epoch, topic_id))
        epoch += 1
    peer.note("acquiring", fetch(epoch, topic_id), response)
    peer.ask("while all is acquired", fetch(epoch, None))
    peer.ask("an epoch that was", fetch(epoch, None))
    epoch += 1
    peer.ask("accepting one", acknowledge(epoch, topic_id, 0, 0, ACCEPT))
    peer.ask("accepting it again", acknowledge(epoch + 1, topic_id, 0, 0, ACCEPT))
    peer.ask("releasing one", acknowledge(epoch + 2, topic_id, 1, 1, RELEASE))
    peer.ask("rejecting two", acknowledge(epoch + 3, topic_id, 2, 3, REJECT))
    peer.ask("an unknown type", acknowledge(epoch + 4, topic_id, 4, 4, 9))
    peer.ask("too few types", acknowledge(epoch + 5, topic_id, 4, 5, ACCEPT, ACCEPT, ACCEPT))
    peer.ask("a batch that goes backwards", acknowledge(epoch + 6, topic_id, 5, 4, ACCEPT))
    peer.ask("what was never acquired", acknowledge(epoch + 7, topic_id, 90, 91, ACCEPT))
    peer.ask("an unknown topic", acknowledge(epoch + 8, SOME_ID, 0, 0, ACCEPT))
    peer.ask("a stranger acknowledges", acknowledge(1, topic_id, 4, 4, ACCEPT, member_id=STRANGER))
    peer.ask("acknowledging to open a session", acknowledge(0, topic_id, 4, 4, ACCEPT))
    peer.ask("what was released comes again", fetch(epoch + 9, topic_id))
    peer.ask("closing the session gives the rest back", fetch(-1, None))


def _offsets(peer: Asker, epoch: int) -> None:
    def offsets(group: str, *topics: str) -> DescribeShareGroupOffsetsRequest:
        wanted = [DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=[0]) for name in topics]
        return DescribeShareGroupOffsetsRequest(
            groups=[DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=wanted or None)]
        )

    def alter(group: str, offset: int, name: str = "sh-one") -> AlterShareGroupOffsetsRequest:
        partitions = [AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=offset)]
        return AlterShareGroupOffsetsRequest(
            group_id=group,
            topics=[AlterShareGroupOffsetsRequestTopic(topic_name=name, partitions=partitions)],
        )

    def delete(group: str, name: str = "sh-one") -> DeleteShareGroupOffsetsRequest:
        return DeleteShareGroupOffsetsRequest(
            group_id=group, topics=[DeleteShareGroupOffsetsRequestTopic(topic_name=name)]
        )

    peer.ask("altering offsets of a group in use", alter("sh-group", 1))
    peer.ask("deleting offsets of a group in use", delete("sh-group"))
    peer.ask("leaving", beat("sh-group", MEMBER, -1))
    peer.ask("described when it is empty", describe("sh-group"), only=_without_epochs)
    peer.ask("offsets of what is not there", offsets("sh-none", "sh-one"))
    peer.ask("offsets of an unknown topic", offsets("sh-group", "sh-no"))
    peer.ask("altering offsets", alter("sh-group", 3))
    peer.ask("altered offsets", offsets("sh-group", "sh-one"))
    peer.ask("all offsets", offsets("sh-group"), 0)
    peer.ask("altering an unknown topic's", alter("sh-group", 3, "sh-no"))
    peer.ask("altering offsets of what is not there", alter("sh-none", 3))
    peer.ask("deleting an unknown topic's offsets", delete("sh-group", "sh-no"))
    peer.ask("deleting offsets", delete("sh-group"))
    peer.ask("deleting offsets of what is not there", delete("sh-none"))
    peer.ask("deleting the group", DeleteGroupsRequest(groups_names=["sh-group"]))
    peer.ask("after it was deleted", describe("sh-group"))
