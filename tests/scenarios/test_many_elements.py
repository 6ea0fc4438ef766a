"""Requests whose arrays are as large as they may be, or larger, for every API that is served: no one else waits for them.

What is measured is processor time of the event loop's thread, or steps, so that a busy machine does not fail a test.
"""

import asyncio
import gc
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from uuid import uuid4

import pytest
from tests.hostile.frames import Shape, depth_of, filled
from tests.kit.frames import read_frame
from tests.kit.heap import put_aside
from tests.kit.waiting import until
from tests.kit.wire import request_frame
from tests.scenarios.groups.test_share_groups import ANNE, Member, id_of, set_of_group
from tests.scenarios.loop_steps import HELD_STEPS_MAX, LoopSteps

from odradek.broker.collector import keep_collections_small
from odradek.broker.handlers import Handlers
from odradek.broker.metrics.collection import MetricsCollection
from odradek.broker.share.state_store import shard_key
from odradek.groups.shard.formats import GroupMetadataValue, group_key, group_value, offset_key, offset_value
from odradek.groups.share.state_formats import SharePartitionKey
from odradek.model.errors import ErrorCode
from odradek.protocol import APIS
from odradek.protocol.messages.configs.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from odradek.protocol.messages.data.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from odradek.protocol.messages.groups.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from odradek.protocol.messages.groups.list_groups import ListGroupsRequest
from odradek.protocol.messages.metadata.find_coordinator import FindCoordinatorRequest
from odradek.protocol.messages.metadata.metadata import MetadataRequest, MetadataRequestTopic
from odradek.protocol.messages.quotas.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from odradek.protocol.messages.quotas.describe_client_quotas import DescribeClientQuotasRequest
from odradek.protocol.messages.share.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeStateData,
    PartitionData,
)
from odradek.protocol.messages.share.share_fetch import FetchPartition, FetchTopic, ShareFetchRequest
from odradek.protocol.messages.topics.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.protocol.messages.topics.delete_topics import DeleteTopicsRequest
from odradek.protocol.messages.topics.elect_leaders import ElectLeadersRequest, TopicPartitions
from odradek.protocol.messages.transactions.list_transactions import ListTransactionsRequest
from odradek.shards import Moment, Outcome, Shards, StoredRecord
from odradek.transactions.formats import encode_key, encode_value
from odradek.transactions.state import Transaction, TransactionState, TransactionVersion

ELEMENT_COUNT = 20_000
ANSWER_SECONDS = 10
HOLD_SECONDS_MAX = 0.1
"""Far above what a turn and a step take, for a busy machine makes a processor slower, too. Served in one go, most of these
requests take longer, and some several seconds."""
TRIES = 3
"""What holds up the loop does so each time; a busy machine takes processor time from a callback now and then."""


@dataclass
class Holds:
    """The longest callbacks of the loop."""

    seconds_max: float = 0.0
    by_whom: list[tuple[float, str]] = field(default_factory=list)


@pytest.fixture
def holds(monkeypatch: pytest.MonkeyPatch) -> Callable[[], AbstractContextManager[Holds]]:
    """What measures them."""
    return partial(measured, monkeypatch)


@contextmanager
def measured(monkeypatch: pytest.MonkeyPatch) -> Iterator[Holds]:
    holds = Holds()
    run = asyncio.Handle._run

    def timed(handle: asyncio.Handle) -> None:
        started = time.thread_time()
        run(handle)
        seconds = time.thread_time() - started
        if seconds > HOLD_SECONDS_MAX / 5:
            holds.by_whom.append((seconds, repr(handle)[:300]))
            holds.seconds_max = max(holds.seconds_max, seconds)

    with monkeypatch.context() as patch:
        patch.setattr(asyncio.Handle, "_run", timed)
        yield holds


@pytest.fixture(autouse=True)
def what_stays_is_put_aside() -> None:
    """What other tests left behind is not looked at: a broker is a process of its own."""
    put_aside()


@contextmanager
def collected_before() -> Iterator[None]:
    gc.collect()
    try:
        yield
    finally:
        keep_collections_small(False)


def with_arrays() -> list[Any]:
    cases = []
    for key in Handlers():
        api = APIS[key]
        version = api.latest_stable
        depth = depth_of(api.request, version)
        shapes = [shape for shape in Shape if depth > (1 if shape is Shape.DEEP else 0)]
        cases += [pytest.param(api.name, version, shape, id=f"{api.name}-{shape.value}") for shape in shapes]
    return cases


@pytest.mark.parametrize(("name", "version", "shape"), with_arrays())
async def test_a_request_of_many_elements_holds_no_one_up(
    scene: Any, holds: Callable[[], AbstractContextManager[Holds]], name: str, version: int, shape: Shape
) -> None:
    broker = await scene.start()
    broker.turns.on_busy = keep_collections_small
    api = next(api for api in APIS.values() if api.name == name)
    small, large = (
        request_frame(filled(api.request, version, count, shape), version) for count in (1, ELEMENT_COUNT)
    )
    await _exchange(broker.port, small)  # imports what serves this API
    for _ in range(TRIES):
        with collected_before(), holds() as held:
            await _exchange(broker.port, large)
        if held.seconds_max < HOLD_SECONDS_MAX:
            return
    pytest.fail(str(sorted(held.by_whom, reverse=True)[:3]))


async def _exchange(port: int, frame: bytes, seconds: float = ANSWER_SECONDS) -> bytes:
    """The answer; nothing when the broker hangs up, or lets a member wait for its group."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(frame)
    try:
        return await read_frame(reader, seconds=seconds)
    except (TimeoutError, ConnectionError, asyncio.IncompleteReadError):
        return b""
    finally:
        writer.close()


@pytest.mark.parametrize(("count", "validate_only"), [(80_000, True), (40_000, False)])
async def test_quotas_for_many_clients_hold_no_one_up(
    scene: Any, loop_steps: LoopSteps, count: int, validate_only: bool
) -> None:
    broker = await scene.start()
    small, large = (_quotas_for(entities, validate_only=validate_only) for entities in (1, count))
    await _exchange(broker.port, small)
    with loop_steps.counted():
        assert await _exchange(broker.port, large, seconds=60)
    assert loop_steps.most < HELD_STEPS_MAX, loop_steps.longest


async def test_a_description_of_the_quotas_of_many_clients_holds_no_one_up(
    scene: Any, loop_steps: LoopSteps
) -> None:
    broker = await scene.start()
    assert await _exchange(broker.port, _quotas_for(20_000, validate_only=False), seconds=60)
    frame = request_frame(DescribeClientQuotasRequest(components=[], strict=False), 1)
    with loop_steps.counted():
        assert len(await _exchange(broker.port, frame, seconds=60)) > 20_000 * 30
    assert loop_steps.most < HELD_STEPS_MAX, loop_steps.longest


def _quotas_for(client_count: int, *, validate_only: bool) -> bytes:
    entries = [
        EntryData(
            entity=[EntityData(entity_type="client-id", entity_name=f"c{number}")],
            ops=[OpData(key="producer_byte_rate", value=1e9, remove=False)],
        )
        for number in range(client_count)
    ]
    return request_frame(AlterClientQuotasRequest(entries=entries, validate_only=validate_only), 1)


LISTED_COUNT = 100_000
NO_MEMBERS = GroupMetadataValue(
    protocol_type="consumer", generation=1, protocol=None, leader=None, current_state_timestamp=0, members=[]
)


async def test_a_list_of_many_groups_holds_no_one_up(scene: Any, loop_steps: LoopSteps) -> None:
    broker = await scene.start(offsets_topic_num_partitions="1")
    wire = await scene.connect()
    await wire.find_coordinator()
    value = group_value(NO_MEMBERS)
    await _replayed(
        broker.context.groups.shards,
        (StoredRecord(group_key(f"g{number}"), value, number, 0) for number in range(LISTED_COUNT)),
    )
    with loop_steps.counted():
        response = await wire.ask(ListGroupsRequest(), 5)
    assert len(response.groups) == LISTED_COUNT
    assert loop_steps.most < HELD_STEPS_MAX, loop_steps.longest


SCRAPED_GROUPS = 10_000
WIDE_GROUPS, WIDE_PARTITIONS = 50, 200


async def test_a_scrape_of_many_groups_holds_no_one_up(scene: Any, loop_steps: LoopSteps) -> None:
    """Ten thousand groups of one partition, and fifty of two hundred: each has its lag, and none holds the loop."""
    broker = await scene.start(offsets_topic_num_partitions="1")
    wire = await scene.connect()
    await wire.find_coordinator()
    narrow, wide = await wire.create("narrow"), await wire.create("wide", partitions=WIDE_PARTITIONS)
    await wire.produce("narrow", [b"a", b"b", b"c"])
    places = [(f"g{number}", "narrow", narrow.topic_id, 0) for number in range(SCRAPED_GROUPS)]
    places += [
        (f"wide{number}", "wide", wide.topic_id, index)
        for number in range(WIDE_GROUPS)
        for index in range(WIDE_PARTITIONS)
    ]
    await _replayed(
        broker.context.groups.shards,
        (
            StoredRecord(
                offset_key(group, topic, index),
                offset_value(offset=1, commit_timestamp=0, topic_id=topic_id),
                number,
                0,
            )
            for number, (group, topic, topic_id, index) in enumerate(places)
        ),
    )
    collection = MetricsCollection(broker)
    with loop_steps.counted():
        families = await asyncio.create_task(collection.collected())
    lags = {family.name: family.samples for family in families}["kafka_consumergroup_lag"]
    assert len(lags) == len(places)
    assert sum(1 for lag in lags if lag[1] == 2) == SCRAPED_GROUPS
    assert loop_steps.most < HELD_STEPS_MAX, loop_steps.longest


async def test_a_list_of_many_transactions_holds_no_one_up(scene: Any, loop_steps: LoopSteps) -> None:
    broker = await scene.start(transaction_state_log_num_partitions="1")
    wire = await scene.connect()
    find = FindCoordinatorRequest(key_type=1, coordinator_keys=["x"])
    await wire.ask(find, 4)
    await until(
        lambda: wire.ask(ListTransactionsRequest(), 2),
        holds=lambda response: not response.error_code,
    )
    value = encode_value(ENDED, TransactionVersion.EPOCH_FOR_EACH)
    await _replayed(
        broker.context.kinds.transactions.shards,
        (StoredRecord(encode_key(f"x{number}"), value, number, 0) for number in range(LISTED_COUNT)),
    )
    with loop_steps.counted():
        response = await wire.ask(ListTransactionsRequest(), 2)
    assert len(response.transaction_states) == LISTED_COUNT
    assert loop_steps.most < HELD_STEPS_MAX, loop_steps.longest


ENDED = Transaction(
    producer_id=1,
    producer_epoch=1,
    state=TransactionState.COMPLETE_COMMIT,
    timeout_ms=1000,
    updated_ms=2**42,
    started_ms=1,
    partitions=frozenset(),
    client_version=TransactionVersion.EPOCH_FOR_EACH,
)


async def _replayed(shards: Shards[Any], records: Iterable[StoredRecord]) -> None:
    """Replays the records as if the only shard had them in its log."""
    ((_, shard),) = shards

    def replay(machine: Any, now: Moment) -> Outcome[None]:
        for record in records:
            machine.replay(record)
        return Outcome(None)

    await shard.execute(replay)


async def test_topics_of_more_partitions_than_one_request_may_add_are_all_refused(scene: Any) -> None:
    await scene.start()
    wire = await scene.connect()
    wanted = [
        CreatableTopic(name=f"t{number}", num_partitions=101, replication_factor=1) for number in range(100)
    ]
    for validate_only in (True, False):
        request = CreateTopicsRequest(topics=wanted, timeout_ms=1000, validate_only=validate_only)
        made = await wire.ask(request, 7)
        assert {topic.error_code for topic in made.topics} == {ErrorCode.POLICY_VIOLATION}
        assert "10000" in made.topics[0].error_message
    listed = await wire.ask(MetadataRequest(topics=None), 12)
    assert not listed.topics


async def test_a_request_of_too_many_elements_is_refused_with_the_setting_that_says_so(scene: Any) -> None:
    await scene.start(max_request_elements="1000")
    wire = await scene.connect()
    response = await wire.ask(filled(APIS[19].request, 7, 1, Shape.EQUAL), 7)
    assert len(response.topics) == 1
    wanted = [TopicPartitions(topic="t", partitions=list(range(1001)))]
    response = await wire.ask(ElectLeadersRequest(election_type=0, topic_partitions=wanted), 2)
    assert response.error_code == ErrorCode.INVALID_REQUEST
    request = ConsumerGroupHeartbeatRequest(subscribed_topic_names=[""] * 1001)
    response = await wire.ask(request, 1)
    assert response.error_code == ErrorCode.INVALID_REQUEST
    assert "max.request.elements=1000" in response.error_message


async def test_a_request_of_too_many_elements_without_a_place_for_an_error_ends_its_connection(
    scene: Any,
) -> None:
    await scene.start(max_request_elements="1000")
    wire = await scene.connect()
    wire.ask_later(filled(APIS[32].request, 4, 1001, Shape.EQUAL), 4)
    assert await wire.closed_by_broker()


async def test_what_describe_configs_names_again_and_again_is_described_once(scene: Any) -> None:
    await scene.start()
    wire = await scene.connect()
    broker = DescribeConfigsResource(resource_type=4, resource_name="1", configuration_keys=None)
    response = await wire.ask(DescribeConfigsRequest(resources=[broker] * 2500), 4)
    assert [entry.resource_name for entry in response.results] == ["1"]


async def test_a_large_answer_is_the_same_as_many_small_ones(scene: Any) -> None:
    await scene.start()
    wire = await scene.connect()
    await wire.create("t", partitions=3)
    names = [MetadataRequestTopic(name=name) for name in ("t", *(f"n{number}" for number in range(3000)))]
    request = MetadataRequest(topics=names, allow_auto_topic_creation=False)
    response = await wire.ask(request, 9)
    assert [(topic.name, topic.error_code, len(topic.partitions)) for topic in response.topics] == [
        ("t", 0, 3),
        *((f"n{number}", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0) for number in range(3000)),
    ]


async def test_the_settings_of_many_new_topics_are_returned_as_far_as_the_answer_has_room(scene: Any) -> None:
    await scene.start(max_request_elements="1000")
    wire = await scene.connect()
    topics = [
        CreatableTopic(name=f"n{number}", num_partitions=1, replication_factor=1) for number in range(100)
    ]
    request = CreateTopicsRequest(topics=topics, timeout_ms=1000, validate_only=True)
    response = await wire.ask(request, 7)
    assert {(topic.error_code, topic.num_partitions) for topic in response.topics} == {(ErrorCode.NONE, 1)}
    answers = [topic for topic in response.topics if topic.configs is not None]
    assert answers == response.topics[: len(answers)]
    assert (
        1000 - len(answers[0].configs)
        < sum(len(answered_request.configs) for answered_request in answers)
        <= 1000
    )
    assert {answered.topic_config_error_code for answered in answers} == {ErrorCode.NONE}
    rest = response.topics[len(answers) :]
    assert {reply.topic_config_error_code for reply in rest} == {ErrorCode.INVALID_REQUEST}


@pytest.mark.parametrize("count", [2, 3000])
async def test_a_partition_whose_offset_is_asked_for_twice_is_refused_in_short_and_long_requests(
    scene: Any, count: int
) -> None:
    await scene.start()
    wire = await scene.connect()
    await wire.create("t", partitions=2)
    await wire.produce("t", [b"a", b"b"], partition=1)
    first = [ListOffsetsPartition(partition_index=0, timestamp=-1)] * (count - 1)
    other = ListOffsetsPartition(partition_index=1, timestamp=-1)
    topics = [
        ListOffsetsTopic(name="t", partitions=first),
        ListOffsetsTopic(name="t", partitions=[other, first[0]]),
    ]
    response = await wire.ask(ListOffsetsRequest(replica_id=-1, topics=topics), 8)
    answers = [
        [
            (partition.partition_index, partition.error_code, partition.offset)
            for partition in topic.partitions
        ]
        for topic in response.topics
    ]
    refused = (0, ErrorCode.INVALID_REQUEST, -1)
    assert answers == [[refused], [(1, ErrorCode.NONE, 2), refused]]


async def test_what_is_asked_behind_a_long_request_does_not_overtake_it(scene: Any) -> None:
    await scene.start()
    wire = await scene.connect()
    await wire.create("t")
    wire.ask_later(DeleteTopicsRequest(topic_names=[*(f"n{i}" for i in range(3000)), "t"], timeout_ms=1), 5)
    wire.ask_later(
        CreateTopicsRequest(
            topics=[CreatableTopic(name="t", num_partitions=1, replication_factor=1)], timeout_ms=1000
        ),
        7,
    )
    deleted, created = await wire.response(), await wire.response()
    assert deleted.responses[-1].error_code == ErrorCode.NONE
    assert created.topics[0].error_code == ErrorCode.NONE


async def test_more_acknowledgements_than_a_member_can_have_records_are_refused_unseen(scene: Any) -> None:
    await scene.start()
    wire = await scene.connect()
    await wire.create("t")
    await set_of_group(wire, share_auto_offset_reset="earliest")
    await wire.produce("t", [b"a"])
    anne = Member(wire, ANNE, await id_of(wire, "t"))
    assert await anne.acquired() == [(0, 0, 1)]
    response = await anne.fetch(said=[(0, 0, [1])] * 10_001, wait_ms=0)
    (partition,) = response.responses[0].partitions
    assert partition.acknowledge_error_code == ErrorCode.INVALID_REQUEST
    assert "10001 acknowledgement batches" in partition.acknowledge_error_message
    assert await anne.say(0, 0, 1) == ErrorCode.NONE


async def test_a_lost_connection_with_many_share_sessions_holds_no_one_up(
    scene: Any, loop_steps: LoopSteps
) -> None:
    await scene.start(share_coordinator_state_topic_num_partitions="1")
    wire, crowded = await scene.connect(), await scene.connect()
    topic_id = (await wire.create("t", partitions=100)).topic_id
    await set_of_group(wire, share_auto_offset_reset="earliest")
    await wire.produce("t", [b"a"])
    anne = Member(crowded, ANNE, topic_id)
    assert await anne.acquired() == [(0, 0, 1)]
    partitions = [FetchPartition(partition_index=index) for index in range(100)]
    opening = ShareFetchRequest(
        group_id="g", max_records=1, topics=[FetchTopic(topic_id=topic_id, partitions=partitions)]
    )
    for number in range(400):
        request = opening.replace(member_id=f"{number:022}", share_session_epoch=0)
        assert (await crowded.ask(request, 2)).error_code == ErrorCode.NONE
    bert = Member(wire, "bert", topic_id)
    assert await bert.acquired(wait_ms=0) == []
    with loop_steps.counted():
        await crowded.close()
        scene.forget(crowded)
        assert await bert.acquired() == [(0, 0, 2)]
    assert loop_steps.most < HELD_STEPS_MAX, loop_steps.longest


_LOADING = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


async def test_no_state_is_kept_for_partitions_that_do_not_exist(scene: Any) -> None:
    """A share group's state outlives requests: a request may not fill memory with partitions of its own invention."""
    await scene.start()
    wire = await scene.connect()
    created = await wire.create("t", partitions=1)
    key = shard_key(SharePartitionKey("g", created.topic_id, 0))
    await wire.ask(FindCoordinatorRequest(key_type=2, coordinator_keys=[key]), 6)
    data = [
        InitializeStateData(
            topic_id=topic_id, partitions=[PartitionData(partition=number) for number in numbers]
        )
        for topic_id, numbers in ((created.topic_id, (0, 1, -1)), (uuid4(), (0,)))
    ]
    request = InitializeShareGroupStateRequest(group_id="g", topics=data)
    for _ in range(500):  # until the shard is loaded
        response = await wire.ask(request, 0)
        if response.results[0].partitions[0].error_code not in _LOADING:
            break
        await asyncio.sleep(0.02)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    codes = [[partition.error_code for partition in topic.partitions] for topic in response.results]
    assert codes == [[ErrorCode.NONE, unknown, unknown], [unknown]]
