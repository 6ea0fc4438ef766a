"""Share groups (KIP-932) over the wire: members, records that are shared out one by one, and what a restart finds."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import pytest

from odradek.model.errors import ErrorCode
from odradek.protocol.messages.configs.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.protocol.messages.data.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from odradek.protocol.messages.groups.delete_groups import DeleteGroupsRequest
from odradek.protocol.messages.groups.list_groups import ListGroupsRequest
from odradek.protocol.messages.metadata.find_coordinator import FindCoordinatorRequest
from odradek.protocol.messages.metadata.metadata import MetadataRequest, MetadataRequestTopic
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
from odradek.protocol.messages.share.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeStateData,
    PartitionData,
)
from odradek.protocol.messages.share.share_acknowledge import AcknowledgementBatch as Said
from odradek.protocol.messages.share.share_acknowledge import (
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from odradek.protocol.messages.share.share_fetch import (
    AcknowledgementBatch,
    FetchPartition,
    FetchTopic,
    ShareFetchRequest,
)
from odradek.protocol.messages.share.share_group_describe import ShareGroupDescribeRequest
from odradek.protocol.messages.share.share_group_heartbeat import ShareGroupHeartbeatRequest
from odradek.protocol.messages.topics.delete_topics import DeleteTopicsRequest
from odradek.protocol.messages.transactions.end_txn import EndTxnRequest
from odradek.protocol.messages.transactions.init_producer_id import InitProducerIdRequest
from odradek.records import decode_batch, split_batches
from odradek.storage.segment import segment_reader
from odradek.testing.guarded_disk import GuardedFile

ANNE, BERT = "AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg"
ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4
SETTINGS = {"share_coordinator_state_topic_num_partitions": "2", "offsets_topic_num_partitions": "2"}
GROUP = 32


class Member:
    """A member of the group `g`, with a session over one partition of the topic `t`."""

    def __init__(self, wire: Any, member_id: str, topic_id: UUID, version: int = 2) -> None:
        self.wire = wire
        self.member_id = member_id
        self.topic_id = topic_id
        self.version = version
        self.epoch = 0

    async def fetch(
        self,
        *,
        said: list[tuple[int, int, list[int]]] | None = None,
        wait_ms: int = 5000,
        epoch: int | None = None,
        **more: Any,
    ) -> Any:
        batches = [
            AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=types)
            for first, last, types in said or []
        ]
        partition = FetchPartition(partition_index=0, acknowledgement_batches=batches)
        response = await self.wire.ask(
            ShareFetchRequest(
                group_id="g",
                member_id=self.member_id,
                share_session_epoch=self.epoch if epoch is None else epoch,
                max_wait_ms=wait_ms,
                min_bytes=1,
                topics=[FetchTopic(topic_id=self.topic_id, partitions=[partition])],
                **{"max_records": 500, "batch_size": 500} | more,
            ),
            self.version,
        )
        if response.error_code == 0 and epoch is None:
            self.epoch += 1
        return response

    async def acquired(self, **more: Any) -> list[tuple[int, int, int]]:
        """(first, last, delivery count) of what one fetch gives."""
        response = await self.fetch(**more)
        assert response.error_code == 0
        if not response.responses:
            return []
        (partition,) = response.responses[0].partitions
        assert (partition.error_code, partition.acknowledge_error_code) == (0, 0)
        return [
            (acquired.first_offset, acquired.last_offset, acquired.delivery_count)
            for acquired in partition.acquired_records
        ]

    async def say(self, first: int, last: int, *types: int, epoch: int | None = None, **more: Any) -> int:
        said = Said(first_offset=first, last_offset=last, acknowledge_types=list(types))
        partition = AcknowledgePartition(partition_index=0, acknowledgement_batches=[said])
        response = await self.wire.ask(
            ShareAcknowledgeRequest(
                group_id="g",
                member_id=self.member_id,
                share_session_epoch=self.epoch if epoch is None else epoch,
                topics=[AcknowledgeTopic(topic_id=self.topic_id, partitions=[partition])],
                **more,
            ),
            self.version,
        )
        if response.error_code:
            return int(response.error_code)
        self.epoch += 1
        return int(response.responses[0].partitions[0].error_code)


async def id_of(wire: Any, topic: str) -> UUID:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    topic_id: UUID = (await wire.ask(request, 12)).topics[0].topic_id
    return topic_id


async def set_of_group(wire: Any, **settings: str) -> None:
    configs = [
        AlterableConfig(name=key.replace("_", "."), config_operation=0, value=value)
        for key, value in settings.items()
    ]
    request = IncrementalAlterConfigsRequest(
        resources=[AlterConfigsResource(resource_type=GROUP, resource_name="g", configs=configs)],
        validate_only=False,
    )
    response = await wire.ask(request, 1)
    assert response.responses[0].error_code == 0


async def beat(wire: Any, member_id: str, epoch: int, *topics: str, group: str = "g") -> Any:
    request = ShareGroupHeartbeatRequest(
        group_id=group,
        member_id=member_id,
        member_epoch=epoch,
        subscribed_topic_names=list(topics) if topics else None,
    )
    find = FindCoordinatorRequest(key_type=0, coordinator_keys=[group])
    await wire.ask(find, 4)
    response = await wire.ask(request, 1)
    while response.error_code in (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,):
        response = await wire.ask(request, 1)
    return response


@pytest.fixture
async def wire(scene: Any) -> Any:
    """A broker with the topic `t`, whose group `g` reads it from its beginning."""
    await scene.start(**SETTINGS)
    wire = await scene.connect()
    await wire.create("t")
    await set_of_group(wire, share_auto_offset_reset="earliest", share_assignment_interval_ms="0")
    return wire


async def test_what_was_released_comes_again_and_what_was_accepted_does_not(wire: Any) -> None:
    anne = Member(wire, ANNE, await id_of(wire, "t"))
    await wire.produce("t", [b"a", b"b", b"c"])
    assert await anne.acquired() == [(0, 2, 1)]
    assert await anne.acquired(said=[(0, 2, [ACCEPT, RELEASE, REJECT])]) == [(1, 1, 2)]
    assert await anne.say(1, 1, ACCEPT) == 0
    assert await anne.acquired(wait_ms=0) == []


async def test_what_is_not_in_memory_is_brought_by_a_thread_and_acquired_once(
    scene: Any, wire: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk refuses to be waited for on the loop: `bring` there would fail the test. The state of the group, which is
    loaded when the broker starts again, is brought as well."""
    anne = Member(wire, ANNE, await id_of(wire, "t"))
    await wire.produce("t", [b"a", b"b", b"c"])
    assert await anne.acquired() == [(0, 2, 1)]
    assert await anne.say(0, 0, ACCEPT) == 0
    await scene.stop()
    brought: list[str] = []
    real = GuardedFile.bring

    def bring(self: GuardedFile, length: int, position: int) -> None:
        brought.append(self._path.split("/")[-2])
        real(self, length, position)

    monkeypatch.setattr(segment_reader, "RECENT_BYTES", 0)
    monkeypatch.setattr(GuardedFile, "is_at_hand", lambda self, length, position: False)
    monkeypatch.setattr(GuardedFile, "bring", bring)
    await scene.start(**SETTINGS)
    again = Member(await scene.connect(), ANNE, anne.topic_id)
    assert await again.acquired() == [(1, 2, 1)]
    assert "t-0" in brought
    assert any(name.startswith("__share_group_state-") for name in brought)


async def test_two_members_share_one_partition(scene: Any, wire: Any) -> None:
    topic_id = await id_of(wire, "t")
    anne, bert = Member(wire, ANNE, topic_id), Member(await scene.connect(), BERT, topic_id)
    for value in (b"a", b"b"):
        await wire.produce("t", [value])
    assert await anne.acquired(max_records=1) == [(0, 0, 1)]
    assert await bert.acquired(max_records=1) == [(1, 1, 1)]
    assert await bert.say(0, 0, ACCEPT) == ErrorCode.INVALID_RECORD_STATE
    assert await anne.say(0, 0, ACCEPT) == 0


async def test_a_fetch_waits_for_records_and_for_those_that_come_back(scene: Any, wire: Any) -> None:
    topic_id = await id_of(wire, "t")
    anne, bert = Member(await scene.connect(), ANNE, topic_id), Member(await scene.connect(), BERT, topic_id)
    assert await anne.acquired(wait_ms=0) == []
    anne.wire.ask_later(_plain(anne), 2)
    await wire.produce("t", [b"a"])
    assert (await anne.wire.response()).responses[0].partitions[0].acquired_records[0].delivery_count == 1
    anne.epoch += 1
    assert await bert.acquired(wait_ms=0) == []
    bert.wire.ask_later(_plain(bert), 2)
    assert await anne.say(0, 0, RELEASE) == 0
    assert (await bert.wire.response()).responses[0].partitions[0].acquired_records[0].delivery_count == 2


def _plain(member: Member) -> ShareFetchRequest:
    return ShareFetchRequest(
        group_id="g",
        member_id=member.member_id,
        share_session_epoch=member.epoch,
        max_wait_ms=20_000,
        min_bytes=1,
        max_records=10,
        batch_size=10,
        topics=[],
    )


async def test_a_restart_goes_on_where_it_was_acknowledged(scene: Any, wire: Any) -> None:
    anne = Member(wire, ANNE, await id_of(wire, "t"))
    await wire.produce("t", [b"a", b"b", b"c", b"d"])
    assert await anne.acquired() == [(0, 3, 1)]
    assert await anne.say(0, 2, ACCEPT, RELEASE, ACCEPT) == 0
    await scene.stop()
    await scene.start(**SETTINGS)
    again = Member(await scene.connect(), ANNE, anne.topic_id)
    assert await again.acquired() == [(1, 1, 2), (3, 3, 1)]


@pytest.mark.parametrize("moves", [False, True])
async def test_what_a_lost_connection_had_comes_back(scene: Any, wire: Any, moves: bool) -> None:
    topic_id = await id_of(wire, "t")
    anne, bert = Member(await scene.connect(), ANNE, topic_id), Member(wire, BERT, topic_id)
    await wire.produce("t", [b"a"])
    assert await anne.acquired() == [(0, 0, 1)]
    assert await bert.acquired(wait_ms=0) == []
    if moves:
        anne.wire = await scene.connect()
        assert await anne.acquired(wait_ms=0) == []
    await anne.wire.close()
    assert await bert.acquired() == [(0, 0, 2)]


async def test_locks_end_and_may_be_renewed(scene: Any) -> None:
    await scene.start(
        **SETTINGS,
        group_share_record_lock_duration_ms="1000",
        group_share_min_record_lock_duration_ms="1000",
    )
    wire = await scene.connect()
    await wire.create("t")
    await set_of_group(wire, share_auto_offset_reset="earliest")
    topic_id = await id_of(wire, "t")
    anne, bert = Member(wire, ANNE, topic_id), Member(await scene.connect(), BERT, topic_id)
    await wire.produce("t", [b"a"])
    assert await anne.acquired() == [(0, 0, 1)]
    assert await anne.say(0, 0, RENEW) == ErrorCode.INVALID_REQUEST
    assert await anne.say(0, 0, RENEW, is_renew_ack=True) == 0
    assert await bert.acquired(wait_ms=10_000) == [(0, 0, 2)]
    assert await anne.say(0, 0, ACCEPT) == ErrorCode.INVALID_RECORD_STATE


async def test_sessions_are_opened_followed_and_closed(wire: Any) -> None:
    anne = Member(wire, ANNE, await id_of(wire, "t"))
    assert (await anne.fetch(epoch=1)).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert await anne.acquired(wait_ms=0) == []
    assert (await anne.fetch(epoch=7)).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert await anne.say(0, 0, ACCEPT, epoch=0) == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    await wire.produce("t", [b"a"])
    assert await anne.acquired() == [(0, 0, 1)]
    assert (await anne.fetch(epoch=-1)).error_code == 0
    assert (await anne.fetch(epoch=-1)).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    anne.epoch = 0
    assert await anne.acquired() == [(0, 0, 2)]


async def test_a_group_begins_at_the_end_unless_it_says_otherwise(scene: Any) -> None:
    await scene.start(**SETTINGS)
    wire = await scene.connect()
    await wire.create("t")
    await wire.produce("t", [b"old"])
    anne = Member(wire, ANNE, await id_of(wire, "t"))
    assert await anne.acquired(wait_ms=0) == []
    assert await anne.acquired(wait_ms=100) == []
    await wire.produce("t", [b"new"])
    assert await anne.acquired() == [(1, 1, 1)]


@pytest.mark.parametrize("version", [1, 2])
async def test_the_records_come_in_every_version(wire: Any, version: int) -> None:
    anne = Member(wire, ANNE, await id_of(wire, "t"), version)
    await wire.produce("t", [b"a", b"b"])
    response = await anne.fetch()
    (partition,) = response.responses[0].partitions
    records = [
        r.value for header, batch in split_batches(partition.records) for r in decode_batch(batch, header)
    ]
    assert records == [b"a", b"b"]
    assert response.acquisition_lock_timeout_ms == 30_000
    assert await anne.say(0, 1, ACCEPT) == 0


async def test_members_of_a_group_get_all_partitions_between_them(wire: Any) -> None:
    await wire.create("u", 4)
    joined = await beat(wire, ANNE, 0, "u")
    assert (joined.error_code, joined.assignment.topic_partitions) == (0, []), "others may be about to join"
    first = await beat(wire, ANNE, joined.member_epoch)
    assert [sorted(partition.partitions) for partition in first.assignment.topic_partitions] == [[0, 1, 2, 3]]
    stranger = await beat(wire, BERT, 3)
    assert stranger.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert (await beat(wire, ANNE, first.member_epoch + 9)).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert (await beat(wire, ANNE, -1)).member_epoch == -1


@pytest.mark.parametrize("length", [1, 36])
async def test_members_may_have_ids_of_any_length_up_to_that_of_a_uuid_with_dashes(
    wire: Any, length: int
) -> None:
    member_id = "m" * length
    await wire.produce("t", [b"a"])
    joined = await beat(wire, member_id, 0, "t")
    assert (await beat(wire, member_id, joined.member_epoch)).error_code == 0
    member = Member(wire, member_id, await id_of(wire, "t"))
    assert await member.acquired() == [(0, 0, 1)]
    assert await member.say(0, 0, ACCEPT) == 0


@pytest.mark.parametrize("member_id", ["", "m" * 37])
async def test_no_request_of_a_member_without_an_id_or_with_a_longer_one_is_served(
    wire: Any, member_id: str
) -> None:
    assert (await beat(wire, member_id, 0, "t")).error_code == ErrorCode.INVALID_REQUEST
    session = {"group_id": "g", "member_id": member_id}
    fetched = await wire.ask(ShareFetchRequest(**session, share_session_epoch=0), 1)
    acknowledged = await wire.ask(ShareAcknowledgeRequest(**session, share_session_epoch=1), 1)
    assert (fetched.error_code, acknowledged.error_code) == (ErrorCode.INVALID_REQUEST,) * 2


async def test_a_group_is_described_listed_and_deleted(wire: Any) -> None:
    await wire.produce("t", [b"a", b"b"])
    topic_id = await id_of(wire, "t")
    joined = await beat(wire, ANNE, 0, "t")
    joined = await beat(wire, ANNE, joined.member_epoch)
    described = (await wire.ask(ShareGroupDescribeRequest(group_ids=["g"]), 1)).groups[0]
    assert (described.error_code, described.group_state, described.assignor_name) == (0, "Stable", "simple")
    (member,) = described.members
    assert (member.member_id, member.member_epoch) == (ANNE, joined.member_epoch)
    assert [partition.topic_id for partition in member.assignment.topic_partitions] == [topic_id]
    listed = await wire.ask(ListGroupsRequest(types_filter=["share"]), 5)
    assert [(group.group_id, group.protocol_type, group.group_type) for group in listed.groups] == [
        ("g", "share", "share")
    ]
    anne = Member(wire, ANNE, topic_id)
    assert await anne.acquired() == [(0, 1, 1)]
    assert await anne.say(0, 1, ACCEPT) == 0
    assert await delete_group(wire) == ErrorCode.NON_EMPTY_GROUP
    assert (await beat(wire, ANNE, -1)).error_code == 0
    assert await delete_group(wire) == 0
    assert await start_offset(wire) == -1
    anne.epoch = 0
    assert await anne.acquired() == [(0, 1, 1)], "the group is a new one"


async def delete_group(wire: Any) -> int:
    response = await wire.ask(DeleteGroupsRequest(groups_names=["g"]), 2)
    return int(response.results[0].error_code)


async def start_offset(wire: Any, version: int = 1) -> int:
    asked = DescribeShareGroupOffsetsRequestGroup(
        group_id="g", topics=[DescribeShareGroupOffsetsRequestTopic(topic_name="t", partitions=[0])]
    )
    request = DescribeShareGroupOffsetsRequest(groups=[asked])
    response = await wire.ask(request, version)
    (partition,) = response.groups[0].topics[0].partitions
    assert partition.error_code == 0
    return int(partition.start_offset)


@pytest.mark.parametrize("version", [0, 1])
async def test_offsets_are_shown_in_every_version_set_and_deleted(wire: Any, version: int) -> None:
    await wire.produce("t", [b"a", b"b", b"c"])
    anne = Member(wire, ANNE, await id_of(wire, "t"))
    await beat(wire, ANNE, 0, "t")
    assert await start_offset(wire, version) == -1
    assert await anne.acquired() == [(0, 2, 1)]
    assert await anne.say(0, 0, ACCEPT) == 0
    assert await start_offset(wire, version) == 1
    assert (await alter(wire, 2)).error_code == ErrorCode.NON_EMPTY_GROUP
    await beat(wire, ANNE, -1)
    assert (await alter(wire, 2)).responses[0].partitions[0].error_code == 0
    assert await start_offset(wire, version) == 2
    assert await anne.acquired() == [(2, 2, 1)]
    request = DeleteShareGroupOffsetsRequest(
        group_id="g", topics=[DeleteShareGroupOffsetsRequestTopic(topic_name="t")]
    )
    assert (await wire.ask(request, 0)).responses[0].error_code == 0
    assert await start_offset(wire, version) == -1


async def test_a_group_never_begins_at_an_offset_whose_lag_is_no_number(wire: Any) -> None:
    await wire.produce("t", [b"a"])
    topic_id = await id_of(wire, "t")
    anne = Member(wire, ANNE, topic_id)
    await beat(wire, ANNE, 0, "t")
    assert await anne.acquired() == [(0, 0, 1)]
    begun = PartitionData(partition=0, state_epoch=7, start_offset=-(2**63))
    state = InitializeStateData(topic_id=topic_id, partitions=[begun])
    request = InitializeShareGroupStateRequest(group_id="g", topics=[state])
    response = await wire.ask(request, 0)
    assert response.results[0].partitions[0].error_code == ErrorCode.INVALID_REQUEST
    assert await start_offset(wire) == 0


async def alter(wire: Any, offset: int) -> Any:
    partition = AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=offset)
    request = AlterShareGroupOffsetsRequest(
        group_id="g", topics=[AlterShareGroupOffsetsRequestTopic(topic_name="t", partitions=[partition])]
    )
    return await wire.ask(request, 0)


async def test_a_partition_that_is_named_many_times_is_written_once(wire: Any) -> None:
    await wire.produce("t", [b"a"])
    await beat(wire, ANNE, 0, "t")
    await beat(wire, ANNE, -1)
    partitions = [
        AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=offset)
        for offset in range(1000)
    ]
    topics = [AlterShareGroupOffsetsRequestTopic(topic_name="t", partitions=partitions)] * 3
    request = AlterShareGroupOffsetsRequest(group_id="g", topics=topics)
    response = await wire.ask(request, 0)
    (topic,) = response.responses
    assert [(partition.partition_index, partition.error_code) for partition in topic.partitions] == [(0, 0)]
    assert await start_offset(wire, 1) == 999


async def test_readers_of_committed_records_get_no_aborted_ones_and_wait_for_the_open(
    scene: Any, wire: Any, make_batch: Any, make_produce: Any
) -> None:
    await set_of_group(wire, share_isolation_level="read_committed")
    find = FindCoordinatorRequest(key_type=1, coordinator_keys=["tx"])
    await wire.ask(find, 4)
    request = InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=60_000)
    producer = await wire.ask(request, 5)
    while producer.error_code:
        producer = await wire.ask(request, 5)
    anne = Member(await scene.connect(), ANNE, await id_of(wire, "t"))
    await wire.produce("t", [b"plain"])
    assert await anne.acquired() == [(0, 0, 1)]
    for sequence, committed in enumerate([False, True]):
        batch = make_batch(
            [b"x"],
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch + sequence,
            base_sequence=0,
            transactional=True,
        )
        produced = make_produce("t", batch).replace(transactional_id="tx")
        response = await wire.ask(produced, 12)
        assert response.responses[0].partition_responses[0].error_code == 0
        assert await anne.acquired(wait_ms=0) == []
        ended = EndTxnRequest(
            transactional_id="tx",
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch + sequence,
            committed=committed,
        )
        assert (await wire.ask(ended, 5)).error_code == 0
    records: list[tuple[int, int, int]] = []
    while not records:
        records = await anne.acquired()
    assert records == [(3, 3, 1)], "1 was aborted, 2 and 4 are markers"


async def test_a_topic_that_is_deleted_and_made_again_is_read_from_its_beginning(wire: Any) -> None:
    await wire.produce("t", [b"a", b"b"])
    anne = Member(wire, ANNE, await id_of(wire, "t"))
    assert await anne.acquired() == [(0, 1, 1)]
    assert await anne.say(0, 1, ACCEPT) == 0
    await wire.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=5000), 5)
    response = await anne.fetch()
    assert response.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    await wire.create("t")
    await wire.produce("t", [b"c"])
    again = Member(wire, ANNE, await id_of(wire, "t"))
    assert await again.acquired() == [(0, 0, 1)]


async def test_state_that_no_restart_needs_is_deleted(scene: Any) -> None:
    await scene.start(
        **SETTINGS | {"share_coordinator_state_topic_num_partitions": "1"},
        share_coordinator_snapshot_update_records_per_snapshot="2",
    )
    wire = await scene.connect()
    await wire.create("t")
    await set_of_group(wire, share_auto_offset_reset="earliest")
    anne = Member(wire, ANNE, await id_of(wire, "t"))
    await wire.produce("t", [b"a"] * 6)
    assert await anne.acquired() == [(0, 5, 1)]
    for offset in range(5):
        assert await anne.say(offset, offset, ACCEPT) == 0
    broker = scene.broker.context
    await broker.shares.prune()
    assert broker.replicas.leader("__share_group_state", 0).start_offset >= 4
    await scene.stop()
    await scene.start(**SETTINGS)
    again = Member(await scene.connect(), ANNE, anne.topic_id)
    assert await again.acquired() == [(5, 5, 1)]


async def test_a_fetch_is_limited_in_records_exactly_or_by_batches(wire: Any) -> None:
    for _ in range(2):
        await wire.produce("t", [b"a", b"b", b"c"])
    anne = Member(wire, ANNE, await id_of(wire, "t"))
    assert await anne.acquired(max_records=2, share_acquire_mode=1) == [(0, 1, 1)]
    assert await anne.acquired(max_records=2, batch_size=1) == [(2, 2, 1), (3, 5, 1)]


async def test_what_was_delivered_too_often_is_given_up(wire: Any) -> None:
    await set_of_group(wire, share_delivery_count_limit="2")
    await wire.produce("t", [b"a"])
    anne = Member(wire, ANNE, await id_of(wire, "t"))
    assert await anne.acquired() == [(0, 0, 1)]
    assert await anne.acquired(said=[(0, 0, [RELEASE])]) == [(0, 0, 2)]
    assert await anne.acquired(said=[(0, 0, [RELEASE])], wait_ms=0) == []
    assert await start_offset(wire) == 1


async def test_records_that_the_log_deleted_are_passed_over(wire: Any) -> None:
    await wire.produce("t", [b"a", b"b", b"c"])
    anne = Member(wire, ANNE, await id_of(wire, "t"))
    assert await anne.acquired(max_records=1, share_acquire_mode=1) == [(0, 0, 1)]
    partition = DeleteRecordsPartition(partition_index=0, offset=2)
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name="t", partitions=[partition])], timeout_ms=5000
    )
    await wire.ask(request, 2)
    assert await anne.acquired() == [(2, 2, 1)]


async def test_a_broker_that_stops_answers_its_waiters(scene: Any, wire: Any) -> None:
    anne = Member(wire, ANNE, await id_of(wire, "t"))
    assert await anne.acquired(wait_ms=100) == []
    wire.ask_later(_plain(anne).replace(max_wait_ms=600_000), 2)
    other = await scene.connect()
    await id_of(other, "t")  # a round trip: the fetch has arrived before it
    stopping = asyncio.ensure_future(scene.broker.stop())
    response = await wire.response()
    assert response.responses[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    await stopping
