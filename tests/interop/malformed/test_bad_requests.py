"""Requests that are well formed and ask for what cannot be: the code says which, one event in the log, no effect."""

from __future__ import annotations

import pytest
from tests.interop import wire

UNKNOWN_TOPIC, INVALID_TOPIC, OUT_OF_RANGE = 3, 17, 1
INVALID_PARTITIONS, POLICY_VIOLATION = 37, 44
ONE = wire.batch(wire.records(b"one"), 1)


def _metadata_codes(peer, names, *, create=False):
    response = peer.call(wire.METADATA, 4, wire.metadata_body(names, create=create))
    response.int32()
    for _ in range(response.int32()):
        response.int32(), response.string(), response.int32(), response.string()
    response.string(), response.int32()
    codes = {}
    for _ in range(response.int32()):
        code, name = response.int16(), response.string()
        response.int8()
        for _ in range(response.int32()):
            response.int16(), response.int32(), response.int32()
            for _ in range(2):
                for _ in range(response.int32()):
                    response.int32()
        codes[name] = code
    assert response.left == 0
    return codes


def test_an_unknown_topic_is_named_as_such_everywhere(connect):
    peer = connect()
    assert _metadata_codes(peer, ["no-such-topic"]) == {"no-such-topic": UNKNOWN_TOPIC}
    assert wire.produce(peer, "no-such-topic", ONE).error_code == UNKNOWN_TOPIC
    assert wire.fetch(peer, "no-such-topic", 0).error_code == UNKNOWN_TOPIC
    assert not wire.is_led(peer, "no-such-topic", 0)
    assert _metadata_codes(peer, ["no-such-topic"]) == {"no-such-topic": UNKNOWN_TOPIC}, "asking created it"


@pytest.mark.parametrize("partition", [1, -1, 2**31 - 1])
def test_an_unknown_partition_is_named_as_such(connect, topic, partition):
    name, peer = topic(), connect()
    assert wire.produce(peer, name, ONE, partition=partition).error_code == UNKNOWN_TOPIC
    assert wire.fetch(peer, name, 0, partition=partition).error_code == UNKNOWN_TOPIC
    assert not wire.is_led(peer, name, partition)


@pytest.mark.parametrize(
    "name", ["with space", "", ".", "..", "x" * 250, "a/b", "ü", "nul\0byte", "../../etc"]
)
def test_an_invalid_topic_name_is_refused_and_leaves_no_file(server, connect, name):
    peer = connect()
    response = peer.call(wire.CREATE_TOPICS, 2, wire.create_topics_body(name))
    response.int32(), response.int32()
    assert response.string() == name
    assert response.int16() == INVALID_TOPIC
    assert response.string()
    created = {path.name for path in server.node.data_directory.rglob("*")}
    assert not any(text.startswith((f"{name}-", "etc")) for text in created if name)


def test_an_invalid_name_is_not_created_by_asking_for_it(connect):
    peer = connect()
    codes = _metadata_codes(peer, ["in valid", "fine-by-asking"], create=True)
    assert codes["in valid"] == INVALID_TOPIC
    assert wire.produce(peer, "in valid", ONE).error_code in {UNKNOWN_TOPIC, INVALID_TOPIC}


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"partitions": 0}, 37),
        ({"partitions": -2}, 37),
        ({"copies": 0}, 38),
        ({"copies": 3}, 38),
        ({"settings": {"retention.ms": "soon"}}, 40),
        ({"settings": {"segment.bytes": "1"}}, 40),
        ({"settings": {"no.such": "1"}}, 40),
        ({"settings": {"cleanup.policy": "delete,burn"}}, 40),
    ],
    ids=str,
)
def test_a_topic_that_cannot_be_is_refused_with_its_code(connect, more, code):
    peer = connect()
    response = peer.call(wire.CREATE_TOPICS, 2, wire.create_topics_body("cannot-be", **more))
    response.int32(), response.int32(), response.string()
    assert response.int16() == code
    assert response.string()
    assert _metadata_codes(peer, ["cannot-be"]) == {"cannot-be": UNKNOWN_TOPIC}


@pytest.mark.usefixtures("bystander")
@pytest.mark.parametrize("partitions", [2_000_000, 2**31 - 1])
def test_more_partitions_than_anyone_needs_are_refused_at_once(connect, partitions):
    peer = connect()
    response = peer.call(
        wire.CREATE_TOPICS, 2, wire.create_topics_body("far-too-wide", partitions=partitions)
    )
    response.int32(), response.int32(), response.string()
    assert response.int16() == POLICY_VIOLATION


@pytest.mark.usefixtures("bystander")
def test_growing_to_more_partitions_than_anyone_needs_is_refused_at_once(connect, topic, server_kind):
    if server_kind == "kafka":
        pytest.skip("about our own limit")
    body = wire.array([wire.string(topic()) + wire.int32(2**31 - 1) + wire.int32(-1)])
    response = connect().call(wire.CREATE_PARTITIONS, 0, body + wire.int32(10_000) + wire.int8(0))
    response.int32(), response.int32(), response.string()
    assert response.int16() in {INVALID_PARTITIONS, POLICY_VIOLATION}


@pytest.mark.parametrize("offset", [-1, -5, 2, 10**15])
def test_an_offset_that_is_not_there_is_out_of_range(connect, topic, offset):
    name, peer = topic(), connect()
    assert wire.produce(peer, name, ONE).error_code == 0
    assert wire.fetch(peer, name, offset).error_code == OUT_OF_RANGE
    assert wire.fetch(peer, name, 0).error_code == 0


@pytest.mark.parametrize("max_bytes", [0, 1, 2**31 - 1])
def test_odd_fetch_sizes_do_no_harm(connect, topic, max_bytes):
    name, peer = topic(), connect()
    assert wire.produce(peer, name, ONE).error_code == 0
    assert wire.fetch(peer, name, 0, max_bytes=max_bytes).error_code == 0


def test_a_request_for_more_topics_than_anyone_has_is_answered(connect):
    names = [f"no-such-{number}" for number in range(5000)]
    assert _metadata_codes(connect(), names) == dict.fromkeys(names, UNKNOWN_TOPIC)


def test_the_same_topic_twice_in_one_request_is_refused_both_times(connect):
    topic_bytes = wire.create_topics_body("twice")[4:-5]
    response = connect().call(
        wire.CREATE_TOPICS, 2, wire.array([topic_bytes, topic_bytes]) + wire.int32(1000) + wire.int8(0)
    )
    response.int32()
    codes = set()
    for _ in range(response.int32()):
        response.string()
        codes.add(response.int16())
        response.string()
    assert codes == {42}


REFUSED = {
    "produce-to-an-unknown-topic": (wire.PRODUCE, 8, wire.produce_body("no-such-topic", ONE)),
    "produce-with-odd-acks": (wire.PRODUCE, 8, wire.produce_body("no-such-topic", ONE, acks=7)),
    "fetch-from-an-unknown-topic": (wire.FETCH, 4, wire.fetch_body("no-such-topic", 0)),
    "offsets-of-an-unknown-topic": (wire.LIST_OFFSETS, 1, wire.list_offsets_body("no-such-topic", -1)),
    "metadata-of-an-unknown-topic": (wire.METADATA, 4, wire.metadata_body(["no-such-topic"])),
    "metadata-of-many-unknown-topics": (
        wire.METADATA,
        4,
        wire.metadata_body([f"no-{n}" for n in range(500)]),
    ),
    "metadata-of-an-invalid-topic": (wire.METADATA, 4, wire.metadata_body(["no way"], create=True)),
    "create-with-an-invalid-name": (wire.CREATE_TOPICS, 2, wire.create_topics_body("no way")),
    "create-with-an-invalid-setting": (
        wire.CREATE_TOPICS,
        2,
        wire.create_topics_body("fine", settings={"retention.ms": "soon"}),
    ),
}


@pytest.mark.usefixtures("bystander")
@pytest.mark.parametrize("request_", REFUSED.values(), ids=REFUSED.keys())
def test_a_refused_request_leaves_one_event_and_its_connection_goes_on(server, connect, request_):
    peer = connect()
    peer.call(*request_)
    server.assert_one_log_line(peer.name)
    assert peer.call(wire.API_VERSIONS, 0, b"").int16() == 0
