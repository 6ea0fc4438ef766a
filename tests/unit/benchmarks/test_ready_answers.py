"""The server without a log answers as a broker would: else its rates would be no limit of a broker's."""

from __future__ import annotations

from typing import cast

from benchmarks.broker import plain_requests
from benchmarks.broker.ready_answers import TOPIC, VERSIONS, ReadyAnswers
from benchmarks.measures import PARTITIONS

from odradek.protocol import APIS, decode, decode_request_header
from odradek.protocol.messages.data.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from odradek.protocol.messages.data.produce import ProduceRequest, ProduceResponse
from odradek.protocol.messages.metadata.metadata import MetadataRequest, MetadataResponse
from odradek.records import check_crc, decode_batch

VALUE_BYTES = 100
COUNT = 100_000


def _fetched(answers: ReadyAnswers, offsets: dict[int, int]) -> dict[int, bytes]:
    asked = [
        FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)
        for index, offset in offsets.items()
    ]
    request = FetchRequest(max_wait_ms=1, min_bytes=1, topics=[FetchTopic(topic=TOPIC, partitions=asked)])
    response = cast(FetchResponse, answers.answer(request))
    return {data.partition_index: bytes(data.records or b"") for data in response.responses[0].partitions}


def test_every_partition_of_a_produce_request_is_acknowledged() -> None:
    frame = plain_requests.produce(TOPIC, range(PARTITIONS), plain_requests.batch(VALUE_BYTES), "all").data[
        4:
    ]
    header, position = decode_request_header(frame)
    least, most = VERSIONS[header.api_key]
    assert least <= header.api_version <= most
    request, _ = decode(APIS[header.api_key].request, header.api_version, frame, position)
    answers = ReadyAnswers(1, VALUE_BYTES, COUNT)
    response = cast(ProduceResponse, answers.answer(request))
    assert [(data.index, data.error_code) for data in response.responses[0].partition_responses] == [
        (index, 0) for index in range(PARTITIONS)
    ]


def test_no_answer_is_sent_to_a_producer_that_expects_none() -> None:
    answers = ReadyAnswers(1, VALUE_BYTES, COUNT)
    assert answers.answer(ProduceRequest(acks=0, timeout_ms=1, topic_data=[])) is None


def test_a_fetch_gets_sound_records_from_the_offset_that_it_asks_for_until_the_end() -> None:
    answers = ReadyAnswers(1, VALUE_BYTES, COUNT)
    end = COUNT // PARTITIONS
    records = _fetched(answers, {0: 0, 1: 7, 2: end - 1, 3: end})
    assert records[3] == b""
    for index, offset in ((0, 0), (1, 7), (2, end - 1)):
        check_crc(records[index])
        batch = decode_batch(records[index])
        assert next(iter(batch)).offset == offset
        assert len(next(iter(batch)).value or b"") == VALUE_BYTES


def test_clients_learn_the_one_broker_and_all_partitions() -> None:
    response = cast(MetadataResponse, ReadyAnswers(4711, VALUE_BYTES, COUNT).answer(MetadataRequest()))
    assert [(broker.host, broker.port) for broker in response.brokers] == [("127.0.0.1", 4711)]
    assert [partition.partition_index for partition in response.topics[0].partitions] == [*range(PARTITIONS)]
