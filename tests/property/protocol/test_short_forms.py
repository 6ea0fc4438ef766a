"""The short readers and writers of small requests do what the general codec does, or leave the request to it."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.broker.handlers.group_answers import encode_assigned, encode_joined
from odradek.model.ids import ZERO_UUID
from odradek.protocol import APIS, MalformedMessage, TooManyElements, decode, encode, encode_response
from odradek.protocol.messages.data.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from odradek.protocol.messages.groups.join_group import JoinGroupResponse, JoinGroupResponseMember
from odradek.protocol.messages.groups.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from odradek.protocol.messages.groups.sync_group import SyncGroupResponse
from odradek.protocol.single_batch import SingleBatch, encode_appended, read_single_batch
from odradek.protocol.small_commits import (
    PARTITIONS_MAX,
    SmallCommit,
    SmallOffset,
    encode_committed,
    read_small_commit,
)

PRODUCE_BY_ID, COMMIT_BY_ID = 13, 10
PRODUCE_VERSIONS = st.sampled_from(list(APIS[0].versions))
COMMIT_VERSIONS = st.sampled_from(list(APIS[8].versions))

names = st.text(max_size=6) | st.sampled_from(["x" * 125, "y" * 126, "z" * 127, "é" * 64])
numbers16 = st.integers(-(2**15), 2**15 - 1)
numbers32 = st.integers(-(2**31), 2**31 - 1)
numbers64 = st.integers(-(2**63), 2**63 - 1)
record_bytes = st.binary(max_size=8) | st.sampled_from([b"r" * 126, b"r" * 127, b"r" * 128, b"r" * 16_384])
damages = st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=3)


@st.composite
def produced(draw: st.DrawFn) -> tuple[int, ProduceRequest]:
    """A Produce request; most have one batch."""
    version = draw(PRODUCE_VERSIONS)
    few = st.sampled_from([1, 1, 1, 1, 0, 2])
    topics = []
    for _ in range(draw(few)):
        data = [
            PartitionProduceData(index=draw(numbers32), records=draw(st.none() | record_bytes))
            for _ in range(draw(few))
        ]
        topic = TopicProduceData(partition_data=data)
        by_id = version >= PRODUCE_BY_ID
        topics.append(topic.replace(topic_id=draw(st.uuids())) if by_id else topic.replace(name=draw(names)))
    request = ProduceRequest(
        transactional_id=draw(st.sampled_from([None, None, None, "", "x"])),
        acks=draw(numbers16),
        timeout_ms=draw(numbers32),
        topic_data=topics,
    )
    return version, request


@st.composite
def committed(draw: st.DrawFn) -> tuple[int, OffsetCommitRequest]:
    """An OffsetCommit request; most are for one topic."""
    version = draw(COMMIT_VERSIONS)
    topics = []
    for _ in range(draw(st.sampled_from([1, 1, 1, 1, 0, 2]))):
        count = draw(st.sampled_from([1, 1, 2, 0, PARTITIONS_MAX, PARTITIONS_MAX + 1]))
        metadata = draw(st.none() | names)
        partitions = [
            OffsetCommitRequestPartition(
                partition_index=draw(numbers32) if number < 2 else number,
                committed_offset=draw(numbers64) if number < 2 else number,
                committed_leader_epoch=draw(numbers32) if version >= 6 and number < 2 else -1,
                committed_metadata=metadata,
            )
            for number in range(count)
        ]
        topic = OffsetCommitRequestTopic(partitions=partitions)
        by_id = version >= COMMIT_BY_ID
        topics.append(topic.replace(topic_id=draw(st.uuids())) if by_id else topic.replace(name=draw(names)))
    request = OffsetCommitRequest(
        group_id=draw(names),
        generation_id_or_member_epoch=draw(numbers32),
        member_id=draw(names),
        group_instance_id=draw(st.none() | names) if version >= 7 else None,
        retention_time_ms=draw(numbers64) if 2 <= version <= 4 else -1,
        topics=topics,
    )
    return version, request


def _general(message: Any, version: int, data: bytes) -> Any:
    """The message and the end of what it takes of the bytes; None for bytes that are no such message."""
    try:
        return decode(message, version, memoryview(data))
    except (MalformedMessage, TooManyElements):
        return None


def _short_produce(version: int, data: bytes) -> SingleBatch | None:
    """The short reader's result, for a frame whose header takes three bytes."""
    return read_single_batch(memoryview(b"abc" + data), 3, version)


def _same_produce(version: int, short: SingleBatch, data: bytes) -> bool:
    general = _general(ProduceRequest, version, data)
    if general is None:
        return False
    request, end = general
    [topic] = request.topic_data
    [partition] = topic.partition_data
    same = SingleBatch(
        acks=request.acks,
        timeout_ms=request.timeout_ms,
        topic=topic.topic_id if version >= PRODUCE_BY_ID else topic.name,
        partition=partition.index,
        records=partition.records,
    )
    return bool(request.transactional_id is None and end == len(data) and same == short)


def _same_commit(version: int, short: SmallCommit, data: bytes) -> bool:
    general = _general(OffsetCommitRequest, version, data)
    if general is None:
        return False
    request, end = general
    [topic] = request.topics
    same = SmallCommit(
        group_id=request.group_id,
        generation=request.generation_id_or_member_epoch,
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        retention_ms=request.retention_time_ms,
        topic=topic.topic_id if version >= COMMIT_BY_ID else topic.name,
        offsets=[
            SmallOffset(
                entry.partition_index,
                entry.committed_offset,
                entry.committed_leader_epoch,
                entry.committed_metadata,
            )
            for entry in topic.partitions
        ],
    )
    return end == len(data) and same == short


def _is_short(text: str) -> bool:
    return len(text.encode()) < 127


@settings(max_examples=200)
@given(produced())
def test_a_request_of_one_batch_is_read_as_the_codec_reads_it(made: tuple[int, ProduceRequest]) -> None:
    version, request = made
    data = encode(request, version)
    short = _short_produce(version, data)
    topics = request.topic_data
    is_single = (
        request.transactional_id is None
        and len(topics) == 1
        and len(topics[0].partition_data) == 1
        and topics[0].partition_data[0].records is not None
        and (version < 9 or _is_short(topics[0].name))
    )
    assert (short is not None) == is_single
    assert short is None or _same_produce(version, short, data)


@settings(max_examples=300)
@given(produced(), damages, st.integers(0, 4))
def test_a_damaged_request_is_left_to_the_codec_or_read_as_it_reads_it(
    made: tuple[int, ProduceRequest], damage: list[tuple[int, int]], cut: int
) -> None:
    version, request = made
    data = _damaged(encode(request, version), damage, cut)
    short = _short_produce(version, data)
    assert short is None or _same_produce(version, short, data)


@settings(max_examples=200)
@given(committed())
def test_a_commit_for_one_topic_is_read_as_the_codec_reads_it(made: tuple[int, OffsetCommitRequest]) -> None:
    version, request = made
    data = encode(request, version)
    short = read_small_commit(memoryview(b"abc" + data), 3, version)
    topics = request.topics
    texts = [request.group_id, request.member_id, request.group_instance_id or ""]
    texts += [entry.committed_metadata or "" for topic in topics for entry in topic.partitions]
    texts += [topic.name for topic in topics]
    is_small = (
        len(topics) == 1
        and 0 < len(topics[0].partitions) <= PARTITIONS_MAX
        and (version < 8 or all(map(_is_short, texts)))
    )
    assert (short is not None) == is_small
    assert short is None or _same_commit(version, short, data)


@settings(max_examples=300)
@given(committed(), damages, st.integers(0, 4))
def test_a_damaged_commit_is_left_to_the_codec_or_read_as_it_reads_it(
    made: tuple[int, OffsetCommitRequest], damage: list[tuple[int, int]], cut: int
) -> None:
    version, request = made
    data = _damaged(encode(request, version), damage, cut)
    short = read_small_commit(memoryview(data), 0, version)
    assert short is None or _same_commit(version, short, data)


def _damaged(data: bytes, damage: list[tuple[int, int]], cut: int) -> bytes:
    broken = bytearray(data)
    for position, value in damage:
        broken[position % len(broken)] = value
    return bytes(broken[: len(broken) - cut])


@pytest.mark.parametrize("records", [None, b"", b"r" * 20], ids=["null", "empty", "some"])
@pytest.mark.parametrize("version", list(APIS[0].versions))
def test_every_prefix_of_a_produce_request_is_left_to_the_codec(version: int, records: bytes | None) -> None:
    topic = TopicProduceData(partition_data=[PartitionProduceData(index=1, records=records)])
    topic = topic.replace(topic_id=UUID(int=7)) if version >= PRODUCE_BY_ID else topic.replace(name="topic")
    data = encode(ProduceRequest(acks=-1, timeout_ms=5, topic_data=[topic]), version)
    assert (_short_produce(version, data) is None) == (records is None)
    assert [end for end in range(len(data)) if _short_produce(version, data[:end]) is not None] == []
    assert _short_produce(version, data + b"\0") is None


@pytest.mark.parametrize("version", list(APIS[8].versions))
def test_every_prefix_of_a_commit_is_left_to_the_codec(version: int) -> None:
    items = [OffsetCommitRequestPartition(partition_index=1, committed_offset=2, committed_metadata="m")]
    topic = OffsetCommitRequestTopic(partitions=items)
    topic = topic.replace(topic_id=UUID(int=7)) if version >= COMMIT_BY_ID else topic.replace(name="topic")
    data = encode(OffsetCommitRequest(group_id="g", member_id="m", topics=[topic]), version)
    assert read_small_commit(memoryview(data), 0, version) is not None
    prefixes = (memoryview(data[:end]) for end in range(len(data)))
    assert not any(read_small_commit(prefix, 0, version) is not None for prefix in prefixes)
    assert read_small_commit(memoryview(data + b"\0"), 0, version) is None


@pytest.mark.parametrize("metadata", [None, "", "m"])
@pytest.mark.parametrize("version", list(APIS[8].versions))
def test_commits_that_differ_in_their_end_are_read_each_for_itself(
    version: int, metadata: str | None
) -> None:
    fronts = [("g", "m"), ("g", "n"), ("h", "m")]
    for offset, (group_id, member_id) in enumerate(fronts * 2):
        items = [
            OffsetCommitRequestPartition(
                partition_index=offset % 2, committed_offset=offset, committed_metadata=metadata
            )
        ]
        topic = OffsetCommitRequestTopic(partitions=items)
        topic = (
            topic.replace(topic_id=UUID(int=7)) if version >= COMMIT_BY_ID else topic.replace(name="topic")
        )
        data = encode(OffsetCommitRequest(group_id=group_id, member_id=member_id, topics=[topic]), version)
        short = read_small_commit(memoryview(data), 0, version)
        assert short is not None
        assert (short.group_id, short.member_id) == (group_id, member_id)
        assert short.offsets == [SmallOffset(offset % 2, offset, -1, metadata)]
        for end in range(len(data)):
            assert read_small_commit(memoryview(data[:end]), 0, version) is None
        for position in range(len(data)):
            changed = _damaged(data, [(position, 0x81)], 0)
            short = read_small_commit(memoryview(changed), 0, version)
            assert short is None or _same_commit(version, short, changed)


@given(PRODUCE_VERSIONS, numbers32, names, st.uuids(), numbers32, numbers64, numbers64, numbers64)
def test_the_answer_to_one_batch_has_the_bytes_that_the_codec_writes(
    version: int, correlation_id: int, name: str, topic_id: UUID, index: int, base: int, time: int, start: int
) -> None:
    by_id = version >= PRODUCE_BY_ID
    partition = PartitionProduceResponse(
        index=index, base_offset=base, log_append_time_ms=time, log_start_offset=start
    )
    topic = TopicProduceResponse(
        name="" if by_id else name,
        topic_id=topic_id if by_id else ZERO_UUID,
        partition_responses=[partition],
    )
    written = encode_response(0, version, correlation_id, ProduceResponse(responses=[topic]))
    assert b"".join(written) == encode_appended(
        version,
        correlation_id,
        topic_id if by_id else name,
        index,
        base_offset=base,
        log_append_time_ms=time,
        log_start_offset=start,
    )


@given(
    COMMIT_VERSIONS, numbers32, names, st.uuids(), st.lists(numbers32, min_size=1, max_size=PARTITIONS_MAX)
)
def test_the_answer_to_a_commit_has_the_bytes_that_the_codec_writes(
    version: int, correlation_id: int, name: str, topic_id: UUID, indexes: list[int]
) -> None:
    by_id = version >= COMMIT_BY_ID
    topic = OffsetCommitResponseTopic(
        name="" if by_id else name,
        topic_id=topic_id if by_id else ZERO_UUID,
        partitions=[OffsetCommitResponsePartition(partition_index=index) for index in indexes],
    )
    written = encode_response(8, version, correlation_id, OffsetCommitResponse(topics=[topic]))
    short = encode_committed(version, correlation_id, topic_id if by_id else name, indexes)
    assert b"".join(written) == short


@st.composite
def joined(draw: st.DrawFn) -> tuple[int, JoinGroupResponse]:
    """An answer to JoinGroup; most have no members."""
    version = draw(st.sampled_from(list(APIS[11].versions)))
    members = draw(st.sampled_from([[], [], [], [JoinGroupResponseMember(member_id="m", metadata=b"x")]]))
    response = JoinGroupResponse(
        throttle_time_ms=draw(st.sampled_from([0, 0, 0, 7])) if version >= 2 else 0,
        error_code=draw(st.sampled_from([0, 0, 0, 25])),
        generation_id=draw(numbers32),
        protocol_type=draw(st.none() | names) if version >= 7 else None,
        protocol_name=draw(st.none() | names) if version >= 7 else draw(names),
        leader=draw(names),
        skip_assignment=version >= 9 and draw(st.booleans()),
        member_id=draw(names),
        members=members,
    )
    return version, response


@settings(max_examples=300)
@given(joined(), numbers32)
def test_the_answer_to_a_member_that_joined_has_the_bytes_that_the_codec_writes(
    made: tuple[int, JoinGroupResponse], correlation_id: int
) -> None:
    version, response = made
    short = encode_joined(version, correlation_id, response)
    texts = [response.leader, response.protocol_name or "", response.protocol_type or ""]
    is_short = sum(map(len, texts)) < 127 and _is_short(response.member_id)
    is_plain = not (response.error_code or response.members or response.throttle_time_ms)
    assert (short is not None) == (is_plain and is_short and response.protocol_name is not None)
    if short is not None:
        assert short == b"".join(encode_response(11, version, correlation_id, response))


@settings(max_examples=300)
@given(st.data(), numbers32, record_bytes)
def test_the_answer_with_an_assignment_has_the_bytes_that_the_codec_writes(
    data: st.DataObject, correlation_id: int, assignment: bytes
) -> None:
    version = data.draw(st.sampled_from(list(APIS[14].versions)))
    response = SyncGroupResponse(
        throttle_time_ms=data.draw(st.sampled_from([0, 0, 0, 7])) if version >= 1 else 0,
        error_code=data.draw(st.sampled_from([0, 0, 0, 27])),
        protocol_type=data.draw(st.none() | names) if version >= 5 else None,
        protocol_name=data.draw(st.none() | names) if version >= 5 else None,
        assignment=assignment,
    )
    short = encode_assigned(version, correlation_id, response)
    is_short = len((response.protocol_type or "") + (response.protocol_name or "")) < 127
    assert (short is not None) == (not response.error_code and not response.throttle_time_ms and is_short)
    if short is not None:
        assert short == b"".join(encode_response(14, version, correlation_id, response))
