"""Bytes that are no Kafka request: the sender is dropped with one event in the log, and no one else notices."""

from __future__ import annotations

import random
import struct

import pytest
from tests.interop import wire

pytestmark = pytest.mark.usefixtures("bystander")

TLS_HELLO = bytes.fromhex("16030100f8010000f40303") + bytes(range(240))
HTTP_REQUEST = b"GET / HTTP/1.1\r\nHost: localhost:9092\r\nUser-Agent: curl/8.5\r\nAccept: */*\r\n\r\n"
SSH_BANNER = b"SSH-2.0-OpenSSH_9.6\r\n"

NOT_KAFKA = {
    "tls-hello": TLS_HELLO,
    "http-request": HTTP_REQUEST,
    "ssh-banner": SSH_BANNER,
    "zero-frame": struct.pack(">i", 0),
    "negative-frame": struct.pack(">i", -1) + b"x" * 20,
    "most-negative-frame": struct.pack(">i", -(2**31)) + b"x" * 20,
    "frame-above-the-limit": struct.pack(">i", 104857601) + b"x" * 20,
    "largest-frame": struct.pack(">i", 2**31 - 1) + b"x" * 20,
}


@pytest.mark.parametrize("data", NOT_KAFKA.values(), ids=NOT_KAFKA.keys())
def test_what_is_no_frame_is_dropped_without_an_answer(server, connect, data):
    peer = connect()
    peer.send_raw(data)
    assert peer.rest_until_closed() == b""
    server.assert_one_log_line(peer.name)


@pytest.mark.parametrize("seed", range(20))
def test_garbage_in_a_frame_is_dropped_without_an_answer(server, connect, seed):
    chance = random.Random(seed)
    junk = chance.randbytes(chance.randrange(1, 400))
    peer = connect()
    peer.send_raw(wire.int32(len(junk)) + b"\x7f" + junk[1:])  # an API key that no one has
    assert peer.rest_until_closed() == b""
    server.assert_one_log_line(peer.name)


@pytest.mark.parametrize("size", range(1, 8))
def test_a_frame_too_short_for_a_header_is_dropped(server, connect, size):
    peer = connect()
    peer.send_raw(wire.int32(size) + wire.frame(wire.METADATA, 4, 1, b"")[4 : 4 + size])
    assert peer.rest_until_closed() == b""
    server.assert_one_log_line(peer.name)


MALFORMED = {
    "metadata-cut-short": (wire.METADATA, 4, wire.metadata_body(["a-topic"])[:-4]),
    "array-count-2g": (wire.METADATA, 4, wire.int32(2**31 - 1) + b"xx"),
    "array-count-negative": (wire.CREATE_TOPICS, 2, wire.int32(-7) + wire.int32(1000) + wire.int8(0)),
    "array-null-where-none-may-be": (wire.CREATE_TOPICS, 2, wire.int32(-1) + wire.int32(1000) + wire.int8(0)),
    "string-beyond-the-frame": (
        wire.METADATA,
        4,
        wire.int32(1) + wire.int16(30_000) + b"short" + wire.int8(0),
    ),
    "string-length-negative": (wire.METADATA, 4, wire.int32(1) + wire.int16(-9) + wire.int8(0)),
    "null-where-none-may-be": (wire.METADATA, 4, wire.int32(1) + wire.int16(-1) + wire.int8(0)),
    "not-utf-8": (wire.METADATA, 4, wire.int32(1) + wire.int16(2) + b"\xff\xfe" + wire.int8(0)),
    "records-beyond-the-frame": (
        wire.PRODUCE,
        8,
        wire.produce_body("t", b"")[:-4] + wire.int32(1_000_000) + b"few",
    ),
    "compact-array-overlong-varint": (wire.METADATA, 9, b"\0" + b"\xff" * 10 + b"\0" * 4),
    "tagged-fields-count-huge": (wire.METADATA, 9, b"\0" + b"\x01" + b"\0\0\0" + b"\xff\xff\xff\xff\x0f"),
}


@pytest.mark.parametrize("request_", MALFORMED.values(), ids=MALFORMED.keys())
def test_a_malformed_body_drops_its_sender(server, connect, request_, server_kind):
    if server_kind == "kafka" and request_ in {MALFORMED["not-utf-8"], MALFORMED["tagged-fields-count-huge"]}:
        pytest.skip("Kafka reads these as something else")
    peer = connect()
    peer.send(*request_)
    assert peer.rest_until_closed() == b""
    server.assert_one_log_line(peer.name)


@pytest.mark.parametrize("cut", [1, 3, 4, 5, 12, 40])
def test_a_frame_cut_short_by_its_sender_has_no_effect(server, connect, topic, cut):
    name = topic()
    whole = wire.frame(wire.PRODUCE, 8, 1, wire.produce_body(name, wire.batch(wire.records(b"never"), 1)))
    peer = connect()
    peer.send_raw(whole[:cut])
    peer.close()
    reader = connect()
    assert wire.fetch(reader, name, 0).high_watermark == 0


def test_a_large_frame_cut_short_by_its_sender_leaves_one_event(server, connect):
    peer = connect()
    called = peer.name
    peer.send_raw(wire.int32(50_000_000) + b"x" * 300_000)
    peer.close()
    server.assert_one_log_line(called)


@pytest.mark.parametrize("api_key", [-1, 4, 7, 95, 1000, 32767])
def test_an_unknown_api_drops_its_sender(server, connect, api_key):
    peer = connect()
    peer.send(api_key, 0, b"\0" * 8)
    assert peer.rest_until_closed() == b""
    server.assert_one_log_line(peer.name)


@pytest.mark.parametrize(
    ("api_key", "version"),
    [(wire.METADATA, 99), (wire.METADATA, -1), (wire.FETCH, 3), (wire.PRODUCE, 14), (wire.LIST_OFFSETS, 0)],
)
def test_an_unknown_version_drops_its_sender(server, connect, api_key, version):
    peer = connect()
    peer.send(api_key, version, b"\0" * 8)
    assert peer.rest_until_closed() == b""
    server.assert_one_log_line(peer.name)


def test_requests_before_the_bad_one_are_answered(server, connect):
    peer = connect()
    peer.send(wire.API_VERSIONS, 0, b"")
    received, response = peer.receive()
    assert (received, response.int16()) == (1, 0)
    peer.send(wire.METADATA, 99, b"")
    assert peer.rest_until_closed() == b""
    server.assert_one_log_line(peer.name)


@pytest.mark.parametrize("version", [6, 99, 32767])
def test_api_versions_beyond_ours_is_answered_with_version_0_and_the_range(connect, version):
    """KIP-511: a newer client learns from error 35 and the listed range what it may ask, on the same connection."""
    peer = connect()
    response = peer.call(wire.API_VERSIONS, version, b"\0\x04new\x061.0.0\0")
    assert response.int16() == 35
    ranges = {response.int16(): (response.int16(), response.int16()) for _ in range(response.int32())}
    assert response.left == 0
    assert ranges[wire.API_VERSIONS][0] == 0
    assert ranges[wire.API_VERSIONS][1] >= 3
    again = peer.call(wire.API_VERSIONS, 2, b"")
    assert again.int16() == 0
