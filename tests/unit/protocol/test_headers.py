"""Request and response headers, byte by byte."""

from __future__ import annotations

import pytest

from odradek.model.errors import ErrorCode, KafkaError
from odradek.protocol import (
    MalformedMessage,
    RequestHeader,
    correlation_id_of,
    decode_request_header,
    decode_response,
    decode_response_header,
    encode_request,
    encode_request_chunks,
    encode_response,
)
from odradek.protocol.messages.data.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from odradek.protocol.messages.data.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.protocol.messages.metadata.api_versions import ApiVersionsRequest, ApiVersionsResponse
from odradek.protocol.messages.metadata.metadata import MetadataRequest, MetadataResponse


def test_a_non_flexible_request_has_no_tagged_section() -> None:
    frame = encode_request(RequestHeader(3, 0, 5, "me"), MetadataRequest(topics=[]))
    assert frame == bytes.fromhex("00000010 0003 0000 00000005 0002 6d65 00000000")
    assert decode_request_header(frame, 4) == (RequestHeader(3, 0, 5, "me"), 16)


def test_a_flexible_request_keeps_the_long_client_id_and_adds_a_tagged_section() -> None:
    frame = encode_request(RequestHeader(3, 12, 5, "me"), MetadataRequest(topics=None))
    assert frame == bytes.fromhex("00000011 0003 000c 00000005 0002 6d65 00  00 01 00 00")
    assert decode_request_header(frame, 4) == (RequestHeader(3, 12, 5, "me"), 17)


def test_a_client_id_may_be_null_or_empty() -> None:
    for client_id in (None, ""):
        frame = encode_request(RequestHeader(18, 3, 1, client_id), ApiVersionsRequest())
        assert decode_request_header(frame, 4)[0].client_id == client_id


def test_tagged_fields_of_a_request_header_are_stepped_over() -> None:
    header = bytes.fromhex("0003 000c 00000005 ffff 02 00 01 aa 05 02 bbcc")
    assert decode_request_header(header) == (RequestHeader(3, 12, 5, None), len(header))


def test_unknown_apis_and_versions_are_left_to_the_caller() -> None:
    header, position = decode_request_header(bytes.fromhex("03e7 0001 00000009 0001 78"))
    assert (header.api_key, header.client_id, position) == (999, "x", 11)
    header, position = decode_request_header(bytes.fromhex("0012 007f 00000009 0001 78 00"))
    assert (header.api_version, position) == (127, 12)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0003 000c 0000",
        "0003 000c 00000005 0009 6d65",
        "0003 000c 00000005 0001 ff 00",
        "0003 000c 00000005 ffff",
    ],
)
def test_a_broken_request_header_is_malformed(text: str) -> None:
    with pytest.raises(MalformedMessage) as caught:
        decode_request_header(bytes.fromhex(text))
    assert caught.value.code is ErrorCode.INVALID_REQUEST


def test_response_headers_have_a_tagged_section_from_the_first_flexible_version_on() -> None:
    (plain,) = encode_response(3, 8, 7, MetadataResponse())
    (flexible,) = encode_response(3, 9, 7, MetadataResponse())
    assert bytes(plain[4:8]) == bytes(flexible[4:8]) == b"\0\0\0\7"
    assert decode_response_header(3, 8, plain, 4) == (7, 8)
    assert decode_response_header(3, 9, flexible, 4) == (7, 9)
    assert flexible[8] == 0


def test_the_response_header_of_api_versions_is_the_oldest_in_every_version() -> None:
    for version in range(5):
        (frame,) = encode_response(18, version, 7, ApiVersionsResponse(error_code=35))
        assert bytes(frame[8:10]) == b"\0\x23"
        assert decode_response(18, version, frame, 4) == (7, ApiVersionsResponse(error_code=35))


def test_the_size_counts_everything_after_itself_over_all_chunks() -> None:
    records = b"r" * 100_000
    message = FetchResponse(
        responses=[FetchableTopicResponse(topic="t", partitions=[PartitionData(records=records)] * 2)]
    )
    chunks = encode_response(1, 12, 3, message)
    assert len(chunks) == 5
    assert chunks[1] is records
    frame = b"".join(chunks)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert decode_response(1, 12, frame, 4) == (3, message)


def test_large_records_of_a_request_are_not_copied() -> None:
    records = memoryview(bytearray(100_000))
    message = ProduceRequest(
        acks=-1,
        topic_data=[TopicProduceData(name="t", partition_data=[PartitionProduceData(records=records)])],
    )
    chunks = encode_request_chunks(RequestHeader(0, 9, 1, "p"), message)
    assert chunks[1] is records
    assert b"".join(chunks) == encode_request(RequestHeader(0, 9, 1, "p"), message)


def test_the_correlation_id_is_readable_before_the_api_is_known() -> None:
    assert correlation_id_of(b"\0\0\0\2\0\0") == 2
    assert correlation_id_of(b"....\xff\xff\xff\xff", 4) == -1
    with pytest.raises(MalformedMessage):
        correlation_id_of(b"\0\0\0")


@pytest.mark.parametrize(("version", "text"), [(8, "000000"), (9, "00000001"), (9, "00000001 01 05 09")])
def test_a_broken_response_header_is_malformed(version: int, text: str) -> None:
    with pytest.raises(MalformedMessage):
        decode_response_header(3, version, bytes.fromhex(text))


def test_an_unknown_api_key_is_an_unsupported_version() -> None:
    with pytest.raises(KafkaError) as caught:
        encode_response(999, 0, 1, MetadataResponse())
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION
