"""The short forms of a follower's fetch mean what the general codec writes and reads, or are left to it."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.protocol import (
    MalformedMessage,
    RequestHeader,
    TooManyElements,
    api_by_name,
    decode,
    decode_request_header,
    decode_response,
    encode,
    encode_flexible_request,
    encode_response,
)
from odradek.protocol.follower_fetch import (
    VERSION,
    Fetched,
    FollowerFetch,
    encode_fetched,
    encode_follower_fetch,
    read_fetched,
    read_follower_fetch,
)
from odradek.protocol.messages.data.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    NodeEndpoint,
    PartitionData,
    ReplicaState,
)

numbers32 = st.integers(-(2**31), 2**31 - 1)
numbers64 = st.integers(-(2**63), 2**63 - 1)
few = st.sampled_from([1, 1, 1, 1, 1, 0, 2])
damages = st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=3)
record_bytes = st.binary(max_size=8) | st.sampled_from([b"r" * 126, b"r" * 127, b"r" * 16_382, b"r" * 16_384])


@st.composite
def fetched(draw: st.DrawFn) -> FetchRequest:
    """A Fetch request; most are of a follower that asks for one partition."""
    topics = []
    for _ in range(draw(few)):
        partitions = [
            FetchPartition(
                partition=draw(numbers32),
                current_leader_epoch=draw(numbers32),
                fetch_offset=draw(numbers64),
                last_fetched_epoch=draw(numbers32),
                log_start_offset=draw(numbers64),
                partition_max_bytes=draw(numbers32),
                high_watermark=draw(numbers64),
            )
            for _ in range(draw(few))
        ]
        topics.append(FetchTopic(topic_id=draw(st.uuids()), partitions=partitions))
    rarely = st.sampled_from([False] * 9 + [True])
    return FetchRequest(
        replica_state=ReplicaState(replica_id=draw(numbers32), replica_epoch=draw(numbers64)),
        max_wait_ms=draw(numbers32),
        min_bytes=draw(numbers32),
        max_bytes=draw(numbers32),
        isolation_level=1 if draw(rarely) else 0,
        session_id=draw(numbers32),
        session_epoch=draw(numbers32),
        topics=topics,
        forgotten_topics_data=[ForgottenTopic(topic_id=draw(st.uuids()), partitions=[1])]
        if draw(rarely)
        else [],
        rack_id="far" if draw(rarely) else "",
        cluster_id="c" if draw(rarely) else None,
    )


def _short(data: bytes) -> FollowerFetch | None:
    """The short reader's result, for a frame whose header takes three bytes."""
    return read_follower_fetch(memoryview(b"abc" + data), 3)


def _is_same(short: FollowerFetch, data: bytes) -> bool:
    try:
        request, end = decode(FetchRequest, VERSION, memoryview(data))
    except (MalformedMessage, TooManyElements):
        return False
    [topic] = request.topics
    [partition] = topic.partitions
    assert request.forgotten_topics_data == []
    assert (request.rack_id, request.cluster_id, request.isolation_level) == ("", None, 0)
    return end == len(data) and short == FollowerFetch(
        max_wait_ms=request.max_wait_ms,
        min_bytes=request.min_bytes,
        max_bytes=request.max_bytes,
        session_id=request.session_id,
        session_epoch=request.session_epoch,
        topic_id=topic.topic_id,
        partition=partition.partition,
        current_leader_epoch=partition.current_leader_epoch,
        fetch_offset=partition.fetch_offset,
        last_fetched_epoch=partition.last_fetched_epoch,
        log_start_offset=partition.log_start_offset,
        partition_max_bytes=partition.partition_max_bytes,
        high_watermark=partition.high_watermark,
        replica_id=request.replica_state.replica_id,
        replica_epoch=request.replica_state.replica_epoch,
    )


def test_brokers_ask_each_other_in_this_version() -> None:
    assert api_by_name("Fetch").latest_stable == VERSION


@settings(max_examples=200)
@given(fetched())
def test_a_fetch_of_one_partition_is_read_as_the_codec_reads_it(request: FetchRequest) -> None:
    data = encode(request, VERSION)
    short = _short(data)
    is_lone = (
        [len(topic.partitions) for topic in request.topics] == [1]
        and not request.forgotten_topics_data
        and (request.rack_id, request.cluster_id, request.isolation_level) == ("", None, 0)
        and request.replica_state != ReplicaState()
        and request.topics[0].partitions[0].high_watermark != FetchPartition().high_watermark
    )
    assert (short is not None) == is_lone
    assert short is None or _is_same(short, data)
    assert short is None or encode_follower_fetch(short) == data


@settings(max_examples=300)
@given(fetched(), damages, st.integers(0, 4))
def test_a_damaged_fetch_is_left_to_the_codec_or_read_as_it_reads_it(
    request: FetchRequest, damage: list[tuple[int, int]], cut: int
) -> None:
    broken = bytearray(encode(request, VERSION))
    for position, value in damage:
        broken[position % len(broken)] = value
    data = bytes(broken[: len(broken) - cut])
    short = _short(data)
    assert short is None or _is_same(short, data)


@st.composite
def answered(draw: st.DrawFn) -> FetchResponse:
    """An answer to a follower; most have records of one partition, and nothing else."""
    rarely = st.sampled_from([False] * 9 + [True])
    topics = []
    for _ in range(draw(few)):
        partitions = [
            PartitionData(
                partition_index=draw(numbers32),
                error_code=6 if draw(rarely) else 0,
                high_watermark=draw(numbers64),
                last_stable_offset=draw(numbers64),
                log_start_offset=draw(numbers64),
                diverging_epoch=EpochEndOffset(epoch=1, end_offset=2) if draw(rarely) else EpochEndOffset(),
                aborted_transactions=[] if draw(rarely) else None,
                preferred_read_replica=draw(rarely) - 1,
                records=None if draw(rarely) else draw(record_bytes),
            )
            for _ in range(draw(few))
        ]
        topics.append(FetchableTopicResponse(topic_id=draw(st.uuids()), partitions=partitions))
    return FetchResponse(
        throttle_time_ms=int(draw(rarely)),
        error_code=70 if draw(rarely) else 0,
        session_id=draw(numbers32),
        responses=topics,
        node_endpoints=[NodeEndpoint(node_id=1, host="h", port=1)] if draw(rarely) else [],
    )


def _is_same_answer(short: Fetched, frame: bytes) -> bool:
    try:
        _, response = decode_response(1, VERSION, memoryview(frame))
    except MalformedMessage:
        return False
    assert isinstance(response, FetchResponse)
    [topic] = response.responses
    [data] = topic.partitions
    plain = PartitionData(
        partition_index=short.partition,
        high_watermark=short.high_watermark,
        last_stable_offset=data.last_stable_offset,
        log_start_offset=short.log_start_offset,
        aborted_transactions=None,
        records=data.records,
    )
    return (
        bytes(short.records) == bytes(data.records or b"")
        and data == plain
        and response == _fetched(short.session_id, short.topic_id, plain)
    )


@settings(max_examples=200)
@given(answered())
def test_an_answer_with_records_of_one_partition_is_read_as_the_codec_reads_it(
    response: FetchResponse,
) -> None:
    frame = b"".join(encode_response(1, VERSION, 5, response))[4:]
    short = read_fetched(memoryview(frame))
    data = response.responses[0].partitions[:1] if response.responses else []
    has_records = bool(data) and bool(data[0].records)
    is_plain = has_records and response == _fetched(
        response.session_id,
        response.responses[0].topic_id,
        data[0].replace(
            error_code=0,
            diverging_epoch=EpochEndOffset(),
            aborted_transactions=None,
            preferred_read_replica=-1,
        ),
    )
    assert (short is not None) == is_plain
    assert short is None or _is_same_answer(short, frame)


@settings(max_examples=300)
@given(answered(), damages, st.integers(0, 4))
def test_a_damaged_answer_is_left_to_the_codec_or_read_as_it_reads_it(
    response: FetchResponse, damage: list[tuple[int, int]], cut: int
) -> None:
    broken = bytearray(b"".join(encode_response(1, VERSION, 5, response))[4:])
    for position, value in damage:
        broken[position % len(broken)] = value
    frame = bytes(broken[: len(broken) - cut])
    short = read_fetched(memoryview(frame))
    assert short is None or _is_same_answer(short, frame)


@given(st.none() | st.text(max_size=6), st.binary(max_size=8), numbers32)
def test_a_request_with_a_finished_body_has_the_header_of_the_codec(
    client_id: str | None, body: bytes, correlation_id: int
) -> None:
    header = RequestHeader(1, VERSION, correlation_id, client_id)
    frame = encode_flexible_request(header, body)
    read, position = decode_request_header(memoryview(frame)[4:])
    assert (read, frame[4:][position:]) == (header, body)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4


def _fetched(session_id: int, topic_id: Any, data: PartitionData) -> FetchResponse:
    topic = FetchableTopicResponse(topic_id=topic_id, partitions=[data])
    return FetchResponse(session_id=session_id, responses=[topic])


@given(
    numbers32, numbers32, st.uuids(), numbers32, numbers64, numbers64, numbers64, record_bytes, st.booleans()
)
def test_the_answer_with_records_has_the_bytes_that_the_codec_writes(
    correlation_id: int,
    session_id: int,
    topic_id: Any,
    partition: int,
    high_watermark: int,
    stable: int,
    start: int,
    records: bytes,
    is_joined: bool,
) -> None:
    data = PartitionData(
        partition_index=partition,
        high_watermark=high_watermark,
        last_stable_offset=stable,
        log_start_offset=start,
        aborted_transactions=None,
        records=records,
    )
    written = encode_response(1, VERSION, correlation_id, _fetched(session_id, topic_id, data))
    short = encode_fetched(
        correlation_id,
        session_id,
        topic_id,
        partition,
        high_watermark=high_watermark,
        last_stable_offset=stable,
        log_start_offset=start,
        records=records,
        is_joined=is_joined,
    )
    assert b"".join(written) == b"".join(short)
    assert (len(short) == 1) == is_joined
    assert is_joined or short[1] is records
