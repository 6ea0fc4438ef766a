"""TxnOffsetCommit over the wire: in every version, atomic with its transaction, refused to whom it is not due."""

from typing import Any
from uuid import UUID

import pytest
from tests.kit.requests import batch_of
from tests.kit.waiting import until
from tests.scenarios.transactions.transactional_producer import BUSY, CLASSIC, EPOCHS, TransactionalProducer

from odradek.model.errors import ErrorCode
from odradek.protocol.messages.groups.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.protocol.messages.groups.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from odradek.protocol.messages.metadata.find_coordinator import FindCoordinatorRequest
from odradek.protocol.messages.metadata.metadata import MetadataRequest, MetadataRequestTopic
from odradek.protocol.messages.transactions.add_offsets_to_txn import AddOffsetsToTxnRequest
from odradek.protocol.messages.transactions.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from odradek.records import split_batches

SMALL = {"transaction_state_log_num_partitions": "3", "offsets_topic_num_partitions": "3"}
ADDS_BY_ITSELF = 5
BY_ID = 6


class OffsetsProducer(TransactionalProducer):
    """It only sends offsets, in a chosen version."""

    def __init__(self, wire: Any, version: int, name: str = "x") -> None:
        super().__init__(wire, batch_of, name, EPOCHS if version >= ADDS_BY_ITSELF else CLASSIC)
        self.version = version

    async def add_offsets(self) -> None:
        """Adds the group's offsets, which newer clients leave to the broker."""
        if self.version < ADDS_BY_ITSELF:
            request = AddOffsetsToTxnRequest(
                transactional_id=self.name,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                group_id="g",
            )
            response = await self.until_timeout(lambda: self.wire.ask(request, 3))
            assert response.error_code == 0

    async def send_offset(
        self, offset: int, *, topic: str = "t", partition: int = 0, **changes: Any
    ) -> ErrorCode:
        request_partition = TxnOffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset
        )
        topic_id = await self.topic_id_of(topic)
        request = TxnOffsetCommitRequest(
            transactional_id=self.name,
            group_id="g",
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            topics=[
                TxnOffsetCommitRequestTopic(name=topic, topic_id=topic_id, partitions=[request_partition])
            ],
        ).replace(**changes)

        async def asked() -> ErrorCode:
            response = await self.wire.ask(request, self.version)
            return ErrorCode.of(response.topics[0].partitions[0].error_code)

        return await until(asked, holds=lambda code: code not in BUSY)

    async def topic_id_of(self, topic: str) -> UUID:
        """Returns what the cluster calls the topic; some other id for one that is not there."""
        asked = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        (described,) = (await self.wire.ask(asked, 12)).topics
        return UUID(int=77) if described.error_code else described.topic_id


async def fetch(wire: Any, *, stable: bool = False) -> tuple[int, int]:
    """The offset of t-0, and its error."""
    topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
    request = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id="g", topics=topics)], require_stable=stable
    )
    response = await wire.ask(request, 9)
    group = response.groups[0]
    if group.error_code:  # of the whole group: no topics then
        return -1, group.error_code
    (partition,) = group.topics[0].partitions
    return partition.committed_offset, partition.error_code


async def settled(wire: Any) -> int:
    """The offset once no transaction has a say any more."""
    offsets = await until(
        lambda: fetch(wire, stable=True), holds=lambda offsets: offsets[1] != ErrorCode.UNSTABLE_OFFSET_COMMIT
    )
    return offsets[0]


async def commit(wire: Any, offset: int) -> int:
    """Commits without a transaction."""
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topic = OffsetCommitRequestTopic(name="t", partitions=[partition])

    async def asked() -> int:
        response = await wire.ask(OffsetCommitRequest(group_id="g", topics=[topic]), 8)
        return int(response.topics[0].partitions[0].error_code)

    return await until(asked, holds=lambda code: code not in BUSY)


async def connected(scene: Any) -> Any:
    wire = await scene.connect()
    for key, kind in (("g", 0), ("x", 1)):
        request = FindCoordinatorRequest(key=key, key_type=kind)
        assert (await wire.ask(request, 2)).error_code == 0
    return wire


@pytest.fixture
async def ready(scene: Any) -> Any:
    await scene.start(**SMALL)
    wire = await connected(scene)
    await wire.create("t")
    return wire


@pytest.mark.parametrize("version", range(7))
async def test_offsets_count_once_their_transaction_commits_in_every_version(
    ready: Any, version: int
) -> None:
    assert await commit(ready, 3) == 0
    producer = OffsetsProducer(ready, version)
    assert await producer.init() is ErrorCode.NONE
    await producer.add_offsets()
    assert await producer.send_offset(7) is ErrorCode.NONE
    assert await fetch(ready) == (3, 0)
    assert await fetch(ready, stable=True) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    assert await producer.end(commit=True) is ErrorCode.NONE
    assert await settled(ready) == 7
    await producer.add_offsets()
    assert await producer.send_offset(9) is ErrorCode.NONE
    assert await producer.end(commit=False) is ErrorCode.NONE
    assert await settled(ready) == 7


@pytest.mark.parametrize("version", range(5))
async def test_offsets_that_were_not_added_to_the_transaction_are_refused(ready: Any, version: int) -> None:
    assert await commit(ready, 3) == 0
    producer = OffsetsProducer(ready, version)
    assert await producer.init() is ErrorCode.NONE
    refused = await producer.send_offset(7)
    assert refused in {ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTION_ABORTABLE}
    assert await settled(ready) == 3


@pytest.mark.parametrize("version", [3, 5])
async def test_a_zombie_is_fenced_and_harms_no_one(ready: Any, version: int) -> None:
    older, newer = OffsetsProducer(ready, version), OffsetsProducer(ready, version)
    assert await older.init() is ErrorCode.NONE
    await older.add_offsets()
    assert await older.send_offset(5) is ErrorCode.NONE
    assert await newer.init() is ErrorCode.NONE
    assert await settled(ready) == -1
    assert await older.send_offset(6) is ErrorCode.INVALID_PRODUCER_EPOCH
    await newer.add_offsets()
    assert await newer.send_offset(7) is ErrorCode.NONE
    assert await older.send_offset(6) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert await newer.end(commit=True) is ErrorCode.NONE
    assert await settled(ready) == 7


@pytest.mark.parametrize("version", [3, 4, 5, 6])
async def test_members_that_were_sent_away_commit_nothing(ready: Any, version: int) -> None:
    producer = OffsetsProducer(ready, version)
    assert await producer.init() is ErrorCode.NONE
    await producer.add_offsets()
    stale = await producer.send_offset(5, generation_id_or_member_epoch=4, member_id="unknown")
    assert stale is (ErrorCode.ILLEGAL_GENERATION if version < BY_ID else ErrorCode.GROUP_ID_NOT_FOUND)
    assert await producer.end(commit=True) is ErrorCode.NONE
    assert await settled(ready) == -1


@pytest.mark.parametrize("version", [3, 6])
async def test_offsets_for_missing_topics_are_refused(ready: Any, version: int) -> None:
    producer = OffsetsProducer(ready, version)
    assert await producer.init() is ErrorCode.NONE
    await producer.add_offsets()
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if version < BY_ID else ErrorCode.UNKNOWN_TOPIC_ID
    assert await producer.send_offset(5, topic="missing") is unknown
    assert await producer.send_offset(5, partition=7) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("committed", [True, False])
async def test_a_transaction_goes_on_after_a_restart(ready: Any, scene: Any, committed: bool) -> None:
    assert await commit(ready, 3) == 0
    producer = OffsetsProducer(ready, 3)
    assert await producer.init() is ErrorCode.NONE
    await producer.add_offsets()
    assert await producer.send_offset(7) is ErrorCode.NONE
    await scene.stop()
    await scene.start(**SMALL)
    wire = producer.wire = await connected(scene)
    offsets = await until(
        lambda: fetch(wire, stable=True), holds=lambda offsets: offsets != (-1, 0) and offsets[1] not in BUSY
    )
    assert offsets[1] == ErrorCode.UNSTABLE_OFFSET_COMMIT
    assert await producer.end(commit=committed) is ErrorCode.NONE
    assert await settled(wire) == (7 if committed else 3)


@pytest.mark.parametrize("version", [4, ADDS_BY_ITSELF])
async def test_many_offsets_of_a_transaction_are_one_batch(ready: Any, version: int) -> None:
    producer = OffsetsProducer(ready, version)
    assert await producer.init() is ErrorCode.NONE
    await producer.add_offsets()
    partitions = [
        TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=number) for number in range(1500)
    ]
    topics = [TxnOffsetCommitRequestTopic(name="t", partitions=partitions)]
    assert await producer.send_offset(0, topics=topics) == 0
    assert await producer.end(commit=True) is ErrorCode.NONE
    assert await settled(ready) == 1499
    batches = [
        header.record_count
        for partition in range(3)
        for header, _ in split_batches(
            (await ready.fetch("__consumer_offsets", 0, partition=partition)).records
        )
        if not header.is_control
    ]
    assert batches == [1500]
