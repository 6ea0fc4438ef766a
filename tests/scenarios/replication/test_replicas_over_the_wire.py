"""A leader, and a follower that the test plays over the wire; and what a broker says that only follows."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from tests.kit.waiting import until

from odradek.broker.fetch import delayed_fetch
from odradek.broker.handlers.data import fetch
from odradek.cluster.image import BrokerImage, PartitionImage
from odradek.model.errors import ErrorCode
from odradek.model.ids import BrokerId, LeaderEpoch
from odradek.protocol.messages.data.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from odradek.protocol.messages.data.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)
from odradek.protocol.messages.data.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from odradek.protocol.messages.data.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

ME, OTHER = BrokerId(1), BrokerId(2)
EPOCH = 77


class Stage:
    """Broker 1 with topic t, of which broker 2 has a replica as far as broker 1 knows."""

    def __init__(self, scene: Any, wire: Any) -> None:
        self.scene = scene
        self.wire = wire
        broker = scene.broker.context
        self.link = broker.cluster
        self.partition = broker.replicas.leader("t", 0)
        self.topic_id = self.partition.topic_id
        assert self.partition.state is not None
        self.state: PartitionImage = self.partition.state

    def _know(self, **fields: Any) -> PartitionImage:
        """What the image says about broker 2 and the partition."""
        image = self.link.image
        self.state = replace(
            self.state,
            replicas=(ME, OTHER, BrokerId(3)),
            partition_epoch=self.state.partition_epoch + 1,
            **fields,
        )
        other = BrokerImage(
            broker_id=OTHER,
            host="127.0.0.1",
            port=9,
            rack="far",
            epoch=EPOCH,
            endpoints={"PLAINTEXT": ("other", 1234)},
        )
        known = [broker for broker in image.brokers if broker.broker_id != OTHER]
        topic = replace(image.topics["t"], partitions=(self.state,))
        self.link.show(replace(image.with_topics([topic]), brokers=(*known, other)))
        return self.state

    def lead(self, *isr: BrokerId) -> None:
        state = self._know(isr=isr, leader=ME)
        self.partition.lead(state, {ME: 1, OTHER: EPOCH}, asyncio.get_running_loop().time())

    def follow(self) -> None:
        epoch = LeaderEpoch(self.state.leader_epoch + 1)
        self.partition.follow(self._know(isr=(OTHER,), leader=OTHER, leader_epoch=epoch))

    async def append(self, value: bytes) -> None:
        """A record that the leader has on its disk: an answer to acks=1 comes before that."""
        await self.wire.produce("t", [value], acks=1)
        await until(lambda: self.partition.log.flushed_offset >= self.partition.log.end_offset)

    def request(
        self,
        offset: int,
        *,
        replica: int = OTHER,
        epoch: int = EPOCH,
        leader_epoch: int | None = None,
        last_epoch: int = -1,
        start_offset: int = 0,
        wait_ms: int = 0,
        **fields: Any,
    ) -> FetchRequest:
        wanted = FetchPartition(
            partition=0,
            fetch_offset=offset,
            partition_max_bytes=1 << 20,
            current_leader_epoch=self.state.leader_epoch if leader_epoch is None else leader_epoch,
            last_fetched_epoch=last_epoch,
            log_start_offset=start_offset,
            **fields,
        )
        return FetchRequest(
            replica_state=ReplicaState(replica_id=replica, replica_epoch=epoch),
            max_wait_ms=wait_ms,
            min_bytes=1,
            topics=[FetchTopic(topic_id=self.topic_id, partitions=[wanted])],
        )

    async def fetch(self, offset: int, **options: Any) -> Any:
        response = await self.wire.ask(self.request(offset, **options), 18)
        return response.responses[0].partitions[0] if response.responses else response


class Ways:
    """Which of the two ways fetches took."""

    def __init__(self) -> None:
        self.is_short_closed = False
        self.short_count = 0


@pytest.fixture
def ways(monkeypatch: pytest.MonkeyPatch) -> Ways:
    ways, served = Ways(), fetch.SERVED

    def short(*arguments: Any) -> Any:
        assert served.short is not None
        reply = None if ways.is_short_closed else served.short(*arguments)
        ways.short_count += reply is not None
        return reply

    monkeypatch.setattr(fetch, "SERVED", replace(served, short=short))
    return ways


@pytest.fixture
async def stage(scene: Any, ways: Ways) -> AsyncIterator[Stage]:
    await scene.start(
        replica_selector_class="org.apache.kafka.common.replica.RackAwareReplicaSelector", broker_rack="near"
    )
    wire = await scene.connect()
    await wire.create("t")
    await wire.create("u")
    stage = Stage(scene, wire)
    alone = stage.link.image
    yield stage
    stage.link.show(alone)  # or it would wait for broker 2 to take over


async def test_acks_all_is_answered_when_the_follower_asks_for_what_comes_next(
    stage: Stage, make_produce: Any, make_batch: Any
) -> None:
    stage.lead(ME, OTHER)
    producer = await stage.scene.connect()
    producer.ask_later(make_produce("t", make_batch([b"x"])), 9)
    partition = await stage.fetch(0, wait_ms=10_000)
    assert (partition.error_code, partition.high_watermark) == (0, 0)
    assert len(partition.records) > 0, "a follower reads what is not committed yet"
    consumed = await stage.wire.fetch("t", 0)
    assert (consumed.high_watermark, consumed.records) == (0, b"")
    assert (await stage.fetch(1)).high_watermark in (0, 1)  # the leader's own flush may come last
    produced = await producer.response()
    assert produced.responses[0].partition_responses[0].error_code == 0
    assert (await stage.wire.fetch("t", 0)).high_watermark == 1
    [stages] = [
        dict(family.samples)
        for family in stage.scene.broker.context.requests.families()
        if family.name == "odradek_request_stage_seconds"
    ]
    fsync, replicated, handled, waited = (
        stages[f'request="Produce",stage="{name}"'] for name in ("fsync", "replicated", "handled", "waited")
    )
    assert fsync.count == replicated.count == 1
    # The wait begins with the append, while the request is still being handled.
    assert 0 < fsync.total + replicated.total <= handled.total + waited.total


async def test_a_follower_that_waits_hears_of_a_high_watermark_that_it_does_not_know(stage: Stage) -> None:
    stage.lead(ME, OTHER)
    assert (await stage.wire.produce("t", [b"x"], acks=1)).error_code == 0
    partition = await stage.fetch(1, wait_ms=10_000, high_watermark=0)
    assert partition.high_watermark == 1
    assert partition.records == b""


@pytest.mark.parametrize(
    ("replica", "epoch", "code"),
    [
        (OTHER, EPOCH - 1, ErrorCode.STALE_BROKER_EPOCH),
        (3, EPOCH, ErrorCode.STALE_BROKER_EPOCH),
        (OTHER, -1, ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        (ME, EPOCH, ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
    ],
)
async def test_who_is_no_broker_that_the_cluster_knows_reads_nothing(
    stage: Stage, replica: int, epoch: int, code: ErrorCode
) -> None:
    stage.lead(ME, OTHER)
    await stage.wire.produce("t", [b"x"], acks=1)
    refused = await stage.fetch(0, replica=replica, epoch=epoch)
    assert refused.error_code == code
    assert not hasattr(refused, "records")


@pytest.mark.parametrize(
    ("leader_epoch", "code"),
    [(None, ErrorCode.UNKNOWN_LEADER_EPOCH), (-1, ErrorCode.NOT_LEADER_OR_FOLLOWER)],
)
async def test_a_broker_without_a_replica_reads_nothing(
    stage: Stage, leader_epoch: int | None, code: ErrorCode
) -> None:
    stage.lead(ME, OTHER)
    stage.topic_id = stage.scene.broker.context.replicas.leader("u", 0).topic_id
    refused = await stage.fetch(0, leader_epoch=leader_epoch)
    assert (refused.error_code, refused.records) == (code, b"")


async def test_a_fetch_beyond_the_end_or_after_another_history_counts_for_nothing(stage: Stage) -> None:
    await stage.wire.produce("t", [b"x"], acks=1)
    stage.lead(ME, OTHER)
    assert (await stage.fetch(2)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    stage.state = replace(stage.state, leader_epoch=LeaderEpoch(stage.state.leader_epoch + 5))
    stage.lead(ME, OTHER)
    parted = await stage.fetch(1, last_epoch=stage.state.leader_epoch - 1)
    assert (parted.diverging_epoch.end_offset, parted.records) == (1, b"")
    assert stage.partition.leader().followers[OTHER].end_offset == -1


async def test_records_are_deleted_when_the_follower_says_so(stage: Stage) -> None:
    stage.lead(ME, OTHER)
    await stage.wire.produce("t", [b"x", b"y"], acks=1)
    assert (await stage.fetch(2, wait_ms=10_000, high_watermark=0)).high_watermark == 2
    wanted = DeleteRecordsPartition(partition_index=0, offset=1)
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name="t", partitions=[wanted])], timeout_ms=10_000
    )
    client = await stage.scene.connect()
    client.ask_later(request, 2)
    while (await stage.fetch(2)).log_start_offset != 1:
        pass
    await stage.fetch(2, start_offset=1)
    (partition,) = (await client.response()).topics[0].partitions
    assert (partition.error_code, partition.low_watermark) == (0, 1)


async def test_records_that_a_follower_keeps_are_not_deleted_in_time(stage: Stage) -> None:
    stage.lead(ME, OTHER)
    await stage.wire.produce("t", [b"x"], acks=1)
    await stage.fetch(1, wait_ms=10_000, high_watermark=0)
    wanted = DeleteRecordsPartition(partition_index=0, offset=-1)
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=[wanted])], timeout_ms=1)
    (partition,) = (await stage.wire.ask(request, 2)).topics[0].partitions
    assert partition.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert stage.partition.start_offset == 1


@pytest.mark.parametrize(("rack", "preferred"), [("far", OTHER), ("near", -1), ("elsewhere", -1), ("", -1)])
async def test_a_consumer_is_sent_to_a_replica_in_its_rack(stage: Stage, rack: str, preferred: int) -> None:
    stage.lead(ME, OTHER)
    await stage.wire.produce("t", [b"x"], acks=1)
    await stage.fetch(1, wait_ms=10_000, high_watermark=0)
    request = stage.request(0, replica=-1, epoch=-1).replace(rack_id=rack)
    data = (await stage.wire.ask(request, 18)).responses[0].partitions[0]
    assert data.preferred_read_replica == preferred
    assert (data.records == b"") == (preferred == OTHER)


# -- a broker that only follows


async def test_a_follower_says_who_leads(stage: Stage, make_produce: Any, make_batch: Any) -> None:
    stage.follow()
    response = await stage.wire.ask(make_produce("t", make_batch([b"x"])), 10)
    (refused,) = response.responses[0].partition_responses
    assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (refused.current_leader.leader_id, refused.current_leader.leader_epoch) == (
        OTHER,
        stage.state.leader_epoch,
    )
    (endpoint,) = response.node_endpoints
    assert (endpoint.node_id, endpoint.host, endpoint.port) == (OTHER, "other", 1234)
    fenced = await stage.wire.ask(
        stage.request(0, replica=-1, epoch=-1, leader_epoch=stage.state.leader_epoch - 1), 18
    )
    (data,) = fenced.responses[0].partitions
    assert data.error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert data.current_leader.leader_id == OTHER
    assert [node_endpoint.node_id for node_endpoint in fenced.node_endpoints] == [OTHER]


async def test_a_follower_serves_consumers_that_know_of_racks_below_its_high_watermark(
    stage: Stage, make_fetch: Any
) -> None:
    await stage.wire.produce("t", [b"x"])
    stage.follow()
    new = (await stage.wire.ask(make_fetch("t", 0), 11)).responses[0].partitions[0]
    old = (await stage.wire.ask(make_fetch("t", 0), 10)).responses[0].partitions[0]
    beyond = (await stage.wire.ask(make_fetch("t", 9), 11)).responses[0].partitions[0]
    assert (new.error_code, new.high_watermark, len(new.records) > 0) == (0, 1, True)
    assert old.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert beyond.error_code == ErrorCode.OFFSET_OUT_OF_RANGE, "the consumer goes back to the leader"
    follower = await stage.fetch(0)
    assert follower.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_a_follower_is_not_asked_about_offsets_and_epochs(stage: Stage) -> None:
    stage.follow()
    wanted = ListOffsetsPartition(partition_index=0, timestamp=-1)
    listed = await stage.wire.ask(
        ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[wanted])]), 7
    )
    assert listed.topics[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    asked = OffsetForLeaderPartition(partition=0, leader_epoch=0)
    epochs = await stage.wire.ask(
        OffsetForLeaderEpochRequest(
            replica_id=-1, topics=[OffsetForLeaderTopic(topic="t", partitions=[asked])]
        ),
        4,
    )
    assert epochs.topics[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize(
    ("version", "code"), [(4, ErrorCode.LEADER_NOT_AVAILABLE), (5, ErrorCode.OFFSET_NOT_AVAILABLE)]
)
async def test_a_new_leader_does_not_name_the_end_before_it_knows_how_far_it_is_committed(
    stage: Stage, version: int, code: ErrorCode
) -> None:
    stage.lead(ME, OTHER)
    await stage.wire.produce("t", [b"x"], acks=1)
    stage.state = replace(stage.state, leader_epoch=LeaderEpoch(stage.state.leader_epoch + 1))
    stage.lead(ME, OTHER)

    async def latest() -> Any:
        wanted = ListOffsetsPartition(partition_index=0, timestamp=-1)
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[wanted])])
        return (await stage.wire.ask(request, version)).topics[0].partitions[0]

    assert (await latest()).error_code == code
    await stage.fetch(1, wait_ms=10_000, high_watermark=0)
    partition = await latest()
    assert (partition.error_code, partition.offset) == (0, 1)


class Session:
    """A follower's session, over a connection of its own."""

    def __init__(self, stage: Stage, wire: Any) -> None:
        self.stage = stage
        self.wire = wire
        self.session_id = 0
        self.epoch = 0

    async def ask(
        self, offset: int | None = None, *, high_watermark: int = 0, again: bool = False, **options: Any
    ) -> list[Any]:
        """With an offset partition 0 of t is named; what the response says of partitions. `again`: it leaves the session and
        comes back."""
        request = self.stage.request(offset or 0, high_watermark=high_watermark, **options)
        if offset is None:
            request = request.replace(topics=[])
        if again:
            gone = ForgottenTopic(topic_id=self.stage.topic_id, partitions=[0])
            request = request.replace(forgotten_topics_data=[gone])
        request = request.replace(session_id=self.session_id, session_epoch=self.epoch)
        response = await self.wire.ask(request, 18)
        assert response.error_code == 0
        self.session_id, self.epoch = response.session_id, self.epoch + 1
        return [partition for topic in response.responses for partition in topic.partitions]

    async def wait(self, **options: Any) -> asyncio.Task[list[Any]]:
        """Ask, and return once the broker holds the request back."""
        asked = asyncio.get_running_loop().create_task(self.ask(**options))
        await until(lambda: self._state.epoch > self.epoch)
        assert not asked.done(), "answered at once"
        return asked

    async def has_all(self, end_offset: int) -> None:
        """Ask from there, and go on until the high watermark is there, too."""
        (response,) = await self.ask(end_offset)
        while response.high_watermark < end_offset:
            (response,) = await self.ask(wait_ms=600_000)

    @property
    def resting(self) -> int:
        return int(self._state.resting_count)

    @property
    def _state(self) -> Any:
        return self.stage.scene.broker.context.fetch_sessions.by_id()[self.session_id]


@pytest.fixture
async def session(stage: Stage) -> Session:
    return Session(stage, await stage.scene.connect())


async def test_what_a_follower_knows_all_about_rests_until_something_is_appended(
    stage: Stage, session: Session
) -> None:
    stage.lead(ME, OTHER)
    assert len(await session.ask(0)) == 1
    assert await session.ask(wait_ms=1) == []
    assert session.resting == 1
    assert await session.ask(wait_ms=1) == [], "it goes on resting"
    waiting = await session.wait(wait_ms=10_000)
    await stage.append(b"x")
    (partition,) = await waiting
    assert len(partition.records) > 0
    assert session.resting == 0


async def test_a_follower_hears_of_what_happened_between_two_fetches(stage: Stage, session: Session) -> None:
    stage.lead(ME, OTHER)
    await session.ask(0)
    await session.ask(wait_ms=1)
    await stage.append(b"x")
    (partition,) = await session.ask()
    assert len(partition.records) > 0


async def test_a_high_watermark_that_moves_wakes_what_rests(stage: Stage, session: Session) -> None:
    stage.lead(ME, OTHER, BrokerId(3))
    await stage.append(b"x")
    await session.ask(0)
    await session.ask(1)
    assert await session.ask(wait_ms=1) == []
    assert session.resting == 1
    waiting = await session.wait(wait_ms=10_000)
    stage.lead(ME, OTHER)
    (moved,) = await waiting
    assert (moved.high_watermark, moved.records) == (1, b"")


async def test_what_is_appended_after_a_high_watermark_moved_does_not_wait_for_the_news_of_that(
    stage: Stage, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delayed_fetch, "MARK_DELAY_S", 600.0)
    stage.lead(ME, OTHER, BrokerId(3))
    await stage.append(b"x")
    await session.ask(0)
    await session.ask(1)
    assert await session.ask(wait_ms=1) == []
    waiting = await session.wait(wait_ms=600_000)
    stage.lead(ME, OTHER)
    assert session.resting == 0
    await stage.wire.produce("t", [b"y"], acks=1)
    (partition,) = await asyncio.wait_for(waiting, 60)
    assert (partition.high_watermark, len(partition.records) > 0) == (1, True)


async def test_a_new_follower_hears_soon_where_the_log_begins_and_once(
    stage: Stage, session: Session
) -> None:
    stage.lead(ME, OTHER)
    for value in (b"x", b"y"):
        await stage.append(value)
    await session.has_all(2)
    stage.partition.leader().delete_records(1)
    follows = {"wait_ms": 600_000, "high_watermark": 2}
    for start_offset in (0, -1):
        asked = session.ask(2, again=True, start_offset=start_offset, **follows)
        (partition,) = await asyncio.wait_for(asked, 60)
        assert (partition.log_start_offset, partition.records) == (1, b"")
        assert await session.ask(2, start_offset=start_offset, high_watermark=2, wait_ms=20) == [], (
            "it has heard of it"
        )


async def test_a_new_follower_that_knows_where_the_log_begins_waits_for_records(
    stage: Stage, session: Session
) -> None:
    stage.lead(ME, OTHER)
    for value in (b"x", b"y"):
        await stage.append(value)
    await session.has_all(2)
    stage.partition.leader().delete_records(1)
    waiting = await session.wait(offset=2, again=True, start_offset=1, high_watermark=2, wait_ms=600_000)
    await stage.wire.produce("t", [b"z"], acks=1)
    (partition,) = await asyncio.wait_for(waiting, 60)
    assert len(partition.records) > 0


async def test_the_end_of_a_role_wakes_what_rests(stage: Stage, session: Session) -> None:
    stage.lead(ME, OTHER)
    await session.ask(0)
    await session.ask(wait_ms=1)
    assert session.resting == 1
    waiting = await session.wait(wait_ms=10_000)
    stage.follow()
    (partition,) = await waiting
    assert partition.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert session.resting == 0


@pytest.fixture(params=["short", "general"])
def way(request: pytest.FixtureRequest, ways: Ways) -> int:
    """How many of the fetches that the short way serves take it."""
    ways.is_short_closed = request.param == "general"
    return int(not ways.is_short_closed)


@pytest.fixture
def late_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A high watermark that moved is no reason to answer before time is up."""
    monkeypatch.setattr(delayed_fetch, "MARK_DELAY_S", 600.0)


@pytest.mark.usefixtures("late_marks")
async def test_both_ways_send_what_is_appended(stage: Stage, session: Session, ways: Ways, way: int) -> None:
    stage.lead(ME, OTHER)
    await stage.append(b"x")
    (first,) = await session.ask(0)
    waiting = await session.wait(offset=1, wait_ms=600_000)
    assert stage.partition.high_watermark == 1, "the question is the acknowledgement"
    await stage.append(b"y")
    (partition,) = await asyncio.wait_for(waiting, 60)
    assert partition == first.replace(high_watermark=1, last_stable_offset=1, records=partition.records)
    assert len(partition.records) == len(first.records) > 0
    assert ways.short_count == way
    await stage.append(b"z")
    (again,) = await session.ask(1, high_watermark=1)
    assert bytes(again.records[: len(partition.records)]) == partition.records, "what is asked for twice"
    assert len(again.records) == 2 * len(partition.records)
    assert await session.ask(3, high_watermark=1, wait_ms=1), "its high watermark is news"
    assert stage.partition.high_watermark == 3
    assert await session.ask(wait_ms=1) == [], "it has heard of it"


async def test_both_ways_send_a_high_watermark_that_moves(
    stage: Stage, session: Session, ways: Ways, way: int
) -> None:
    stage.lead(ME, OTHER, BrokerId(3))
    await stage.append(b"x")
    await session.ask(0)
    waiting = await session.wait(offset=1, wait_ms=600_000)
    stage.lead(ME, OTHER)
    (moved,) = await asyncio.wait_for(waiting, 60)
    assert (moved.high_watermark, moved.records) == (1, b"")
    assert ways.short_count == way


async def test_both_ways_end_a_wait_in_which_nothing_happens(
    stage: Stage, session: Session, ways: Ways, way: int
) -> None:
    stage.lead(ME, OTHER, BrokerId(3))
    await stage.append(b"x")
    await session.ask(0)
    assert await session.ask(1, wait_ms=1) == []
    waiting = await session.wait(offset=1, wait_ms=600_000)
    session.wire.ask_later(FetchRequest(session_epoch=-1), 18)
    assert await asyncio.wait_for(waiting, 60) == []
    await session.wire.response()
    assert ways.short_count == 2 * way


@pytest.mark.usefixtures("late_marks")
async def test_both_ways_report_a_role_that_ends_during_the_wait(
    stage: Stage, session: Session, ways: Ways, way: int
) -> None:
    stage.lead(ME, OTHER)
    await stage.append(b"x")
    await session.ask(0)
    waiting = await session.wait(offset=1, wait_ms=600_000)
    stage.follow()
    (ended,) = await asyncio.wait_for(waiting, 60)
    assert ended.error_code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
    assert ways.short_count == way


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"leader_epoch": 99}, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ({"offset": 2}, ErrorCode.OFFSET_OUT_OF_RANGE),
        ({"last_epoch": 5}, ErrorCode.OFFSET_OUT_OF_RANGE),
    ],
)
async def test_what_is_refused_has_the_general_way_and_changes_nothing(
    stage: Stage, session: Session, ways: Ways, fields: dict[str, int], code: ErrorCode
) -> None:
    stage.lead(ME, OTHER)
    await stage.append(b"x")
    await session.ask(0)
    options: dict[str, Any] = {"offset": 1, "wait_ms": 600_000, **fields}
    (refused,) = await session.ask(**options)
    assert refused.error_code == code
    assert (stage.partition.high_watermark, ways.short_count) == (0, 0)
    (answered,) = await session.ask(1, wait_ms=600_000)
    assert (answered.error_code, answered.high_watermark, ways.short_count) == (0, 1, 1)
