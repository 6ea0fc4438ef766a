"""Requests of one batch, and commits for one topic, get the same bytes in answer on the short way and on the general one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.kit.requests import batch_of, produce_request
from tests.kit.waiting import PATIENCE_S, until
from tests.kit.wire import Wire
from tests.scenarios.one_broker import Scene

from odradek.broker.handlers.data import produce
from odradek.broker.handlers.groups import offset_commit
from odradek.broker.requests.context import ApiHandler
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import ZERO_UUID
from odradek.protocol import APIS
from odradek.protocol.messages.data.produce import ProduceRequest
from odradek.protocol.messages.groups.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.protocol.messages.groups.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from odradek.records import Codec, engine
from odradek.replication.acknowledgements import Acknowledgements
from odradek.replication.leader_role import LeaderRole

pytestmark = pytest.mark.skipif(
    engine.compiled() is None, reason="without a compiler Produce has the general way alone"
)


class Ways:
    """Which requests went which way: the names of the handlers, in order."""

    def __init__(self) -> None:
        self.taken: list[str] = []


@pytest.fixture
def ways(monkeypatch: pytest.MonkeyPatch) -> Ways:
    """The broker of the test notes each request of these APIs that the short way serves, or leaves."""
    noted = Ways()
    for module, name in ((produce, "produce"), (offset_commit, "commit")):
        served: ApiHandler = module.SERVED

        def short(*arguments: Any, _served: ApiHandler = served, _name: str = name) -> Any:
            assert _served.short is not None
            reply = _served.short(*arguments)
            noted.taken.append(f"{_name}: {'short' if reply is not None else 'general'}")
            return reply

        monkeypatch.setattr(module, "SERVED", ApiHandler(served.api_key, served.handle, short=short))
    return noted


@pytest.fixture
async def pair(ways: Ways, scene: Scene) -> Wire:
    await scene.start(offsets_topic_num_partitions="1")
    wire = await scene.connect()
    await wire.create("t", 2)
    return wire


async def topic_id_of(scene: Scene, name: str) -> Any:
    assert scene.broker is not None
    return scene.broker.context.image.topics[name].topic_id


async def request_for(
    scene: Scene, version: int, name: str, records: Any, *, partition: int = 0, acks: int = -1, **how: int
) -> ProduceRequest:
    request = produce_request(name, records, partition=partition, acks=acks, **how)
    if version < 13:
        return request
    known = name in scene.broker.context.image.topics  # type: ignore[union-attr]
    topic = request.topic_data[0].replace(
        name="", topic_id=await topic_id_of(scene, name) if known else ZERO_UUID
    )
    return request.replace(topic_data=[topic])


@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.parametrize("version", list(APIS[0].versions))
async def test_one_batch_is_appended_and_answered_in_every_version(
    pair: Wire, scene: Scene, ways: Ways, version: int, acks: int
) -> None:
    first = await request_for(scene, version, "t", batch_of([b"a", b"b"]), acks=acks)
    second = await request_for(scene, version, "t", batch_of([b"c"], codec=Codec.GZIP), acks=acks)
    answers = [(await pair.ask(request, version)).responses[0] for request in (first, second)]
    assert ways.taken == ["produce: short", "produce: general"]
    short, general = (appended.partition_responses[0] for appended in answers)
    assert (short.base_offset, general.base_offset) == (0, 2)
    assert short == general.replace(base_offset=0)
    assert answers[0].replace(partition_responses=[]) == answers[1].replace(partition_responses=[])
    records: list[bytes | None] = await until(lambda: pair.values("t"), holds=lambda values: len(values) == 3)
    assert records == [b"a", b"b", b"c"]  # visible once they are durable


def _broken(records: bytearray) -> bytearray:
    records[-1] ^= 1
    return records


@pytest.mark.parametrize(
    ("topic", "partition", "records", "code"),
    [
        ("t", 9, batch_of([b"a"]), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("t", -1, batch_of([b"a"]), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("none", 0, batch_of([b"a"]), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("__consumer_offsets", 0, batch_of([b"a"]), ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("t", 0, _broken(batch_of([b"a"])), ErrorCode.CORRUPT_MESSAGE),
        ("t", 0, b"", ErrorCode.INVALID_RECORD),
        ("t", 0, batch_of([b"a"]) + batch_of([b"b"]), ErrorCode.INVALID_RECORD),
        (
            "t",
            0,
            batch_of([b"a"], producer_id=2**40, producer_epoch=0, base_sequence=5),
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ),
    ],
    ids=["partition", "negative", "topic", "internal", "crc", "empty", "two batches", "sequence"],
)
@pytest.mark.parametrize("version", [7, 9])
async def test_what_is_refused_is_refused_in_the_general_way_and_nothing_is_written(
    pair: Wire, ways: Ways, topic: str, partition: int, records: bytes, code: ErrorCode, version: int
) -> None:
    await pair.find_coordinator()
    ways.taken.clear()
    if code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
        start = batch_of([b"a"], producer_id=2**40, producer_epoch=0, base_sequence=0)
        await pair.ask(produce_request("t", start), version)
        ways.taken.clear()
    response = await pair.ask(produce_request(topic, records, partition=partition), version)
    [appended] = response.responses[0].partition_responses
    assert (appended.error_code, appended.base_offset) == (code, -1)
    assert ways.taken == ["produce: general"]
    written = [b"a"] if code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER else []
    assert await pair.values("t") == written


async def test_a_batch_that_comes_again_is_answered_as_before_and_not_written_twice(
    pair: Wire, ways: Ways
) -> None:
    records = batch_of([b"a"], producer_id=2**40, producer_epoch=0, base_sequence=0)
    answers = [await pair.ask(produce_request("t", bytearray(records)), 9) for _ in range(2)]
    assert answers[0] == answers[1]
    assert ways.taken == ["produce: short"] * 2
    assert await pair.values("t") == [b"a"]


async def test_a_batch_without_acknowledgement_takes_the_general_way(pair: Wire, ways: Ways) -> None:
    pair.ask_later(produce_request("t", batch_of([b"a"]), acks=0), 9)
    pair.expect_no_response()
    assert (await pair.produce("t", [b"b"])).base_offset == 1
    assert ways.taken == ["produce: general", "produce: short"]


async def test_a_batch_that_is_not_durable_in_time_is_refused_and_later_requests_are_served(
    pair: Wire, ways: Ways, monkeypatch: pytest.MonkeyPatch
) -> None:
    pending: list[asyncio.Future[None]] = []

    def never(_: Acknowledgements, last_offset: int) -> asyncio.Future[None]:
        pending.append(asyncio.get_running_loop().create_future())
        return pending[-1]

    with monkeypatch.context() as patch:
        patch.setattr(Acknowledgements, "wait", never)
        # What is durable when the time is up is acknowledged: here nothing is.
        patch.setattr(LeaderRole, "advance_high_watermark", lambda leader: None)
        response = await pair.ask(produce_request("t", batch_of([b"a"]), timeout_ms=10), 9)
    [appended] = response.responses[0].partition_responses
    assert (appended.error_code, appended.base_offset) == (ErrorCode.REQUEST_TIMED_OUT, -1)
    assert pending[0].cancelled()
    assert (await pair.produce("t", [b"b"])).base_offset == 1
    assert ways.taken == ["produce: short"] * 2


async def test_a_client_that_leaves_gives_up_its_wait(
    pair: Wire, scene: Scene, ways: Ways, monkeypatch: pytest.MonkeyPatch
) -> None:
    pending: asyncio.Future[asyncio.Future[None]] = asyncio.get_running_loop().create_future()

    def never(_: Acknowledgements, last_offset: int) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        pending.set_result(future)
        return future

    leaver = await scene.connect()
    with monkeypatch.context() as patch:
        patch.setattr(Acknowledgements, "wait", never)
        leaver.ask_later(produce_request("t", batch_of([b"a"]), timeout_ms=60_000), 9)
        acknowledgement = await pending
        leaver.abandon()
        scene.forget(leaver)
        async with asyncio.timeout(PATIENCE_S):
            with pytest.raises(asyncio.CancelledError):
                await acknowledgement
    assert (await pair.produce("t", [b"b"])).base_offset == 1


async def test_pipelined_batches_are_answered_in_order(pair: Wire, ways: Ways) -> None:
    for number in range(20):
        acks, codec = (-1, 1)[number % 2], (Codec.NONE, Codec.NONE, Codec.GZIP)[number % 3]
        pair.ask_later(produce_request("t", batch_of([b"%d" % number], codec=codec), acks=acks), 9)
    answers = [(await pair.response()).responses[0].partition_responses[0] for _ in range(20)]
    assert [appended.base_offset for appended in answers] == list(range(20))
    assert set(ways.taken) == {"produce: short", "produce: general"}


async def test_log_append_time_is_in_the_answer(pair: Wire, ways: Ways) -> None:
    await pair.create("stamped", message_timestamp_type="LogAppendTime")
    appended = await pair.produce("stamped", [b"a"])
    assert appended.log_append_time_ms > 1_700_000_000_000
    assert ways.taken == ["produce: short"]


def commit_request(
    partitions: list[int], *, topic: str = "t", topic_id: Any = ZERO_UUID, generation: int = -1
) -> OffsetCommitRequest:
    items = [
        OffsetCommitRequestPartition(
            partition_index=index, committed_offset=index + 5, committed_metadata="note"
        )
        for index in partitions
    ]
    return OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=generation,
        topics=[OffsetCommitRequestTopic(name=topic, topic_id=topic_id, partitions=items)],
    )


@pytest.mark.parametrize("version", list(APIS[8].versions))
async def test_a_commit_for_one_topic_is_written_and_answered_in_every_version(
    pair: Wire, scene: Scene, ways: Ways, version: int
) -> None:
    await pair.find_coordinator()
    by_id = version >= 10
    topic_id = await topic_id_of(scene, "t") if by_id else ZERO_UUID
    request = commit_request([0, 1], topic="" if by_id else "t", topic_id=topic_id)
    short = await pair.ask(request, version)
    [topic] = request.topics
    with_another = topic.replace(
        name="" if by_id else "none", topic_id=ZERO_UUID, partitions=topic.partitions[:1]
    )
    general = await pair.ask(request.replace(topics=[topic, with_another]), version)
    assert ways.taken == ["commit: short", "commit: general"]
    assert short.topics[0] == general.topics[0]
    assert [entry.error_code for entry in short.topics[0].partitions] == [0, 0]
    assert general.topics[1].partitions[0].error_code != 0
    wanted = OffsetFetchRequestTopic(name="t", partition_indexes=[0, 1])
    kept = await pair.ask(OffsetFetchRequest(group_id="g", topics=[wanted]), 7)
    assert [(entry.committed_offset, entry.metadata) for entry in kept.topics[0].partitions] == [
        (5, "note"),
        (6, "note"),
    ]


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (commit_request([0, 7]), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (commit_request([-1]), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (commit_request([0], topic="none"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
    ids=["a partition that does not exist", "a negative one", "a topic that does not exist"],
)
async def test_a_commit_for_what_does_not_exist_takes_the_general_way(
    pair: Wire, ways: Ways, request_: OffsetCommitRequest, code: ErrorCode
) -> None:
    await pair.find_coordinator()
    response = await pair.ask(request_, 7)
    assert response.topics[0].partitions[-1].error_code == code
    assert ways.taken == ["commit: general"]


@pytest.mark.parametrize("version", [7, 9])
async def test_a_commit_of_an_unknown_generation_is_refused_for_each_partition(
    pair: Wire, ways: Ways, version: int
) -> None:
    await pair.find_coordinator()
    response = await pair.ask(commit_request([0, 1], generation=4), version)
    code = ErrorCode.GROUP_ID_NOT_FOUND if version >= 9 else ErrorCode.ILLEGAL_GENERATION
    assert [entry.error_code for entry in response.topics[0].partitions] == [code, code]
    assert ways.taken == ["commit: short"]


async def test_metadata_that_is_too_long_is_refused_beside_offsets_that_are_kept(
    pair: Wire, ways: Ways
) -> None:
    await pair.find_coordinator()
    request = commit_request([0, 1])
    [topic] = request.topics
    items = [topic.partitions[0], topic.partitions[1].replace(committed_metadata="x" * 5000)]
    response = await pair.ask(request.replace(topics=[topic.replace(partitions=items)]), 7)
    codes = [entry.error_code for entry in response.topics[0].partitions]
    assert codes == [ErrorCode.NONE, ErrorCode.OFFSET_METADATA_TOO_LARGE]
    assert ways.taken == ["commit: short"]


async def test_a_leadership_that_ends_during_the_wait_is_answered_with_who_leads_now(
    pair: Wire, scene: Scene, ways: Ways, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ended(_: Acknowledgements, last_offset: int) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        future.set_exception(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "others lead it"))
        return future

    with monkeypatch.context() as patch:
        patch.setattr(Acknowledgements, "wait", ended)
        response = await pair.ask(produce_request("t", batch_of([b"a"])), 10)
    [refused] = response.responses[0].partition_responses
    assert (refused.error_code, refused.base_offset) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    assert scene.broker is not None
    led = scene.broker.context.image.topics["t"].partitions[0]
    assert (refused.current_leader.leader_id, refused.current_leader.leader_epoch) == (
        led.leader,
        led.leader_epoch,
    )
    assert [endpoint.node_id for endpoint in response.node_endpoints] == [led.leader]
    assert ways.taken == ["produce: short"]
