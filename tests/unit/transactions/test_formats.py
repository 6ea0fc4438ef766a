"""Records of `__transaction_state`: the bytes that Kafka 4.3.1's own serializer wrote for the same values."""

import pytest

from odradek.model.ids import TopicPartition
from odradek.protocol.errors import MalformedMessage
from odradek.transactions.formats import decode_key, decode_value, encode_key, encode_value
from odradek.transactions.state import Transaction, TransactionState, TransactionVersion

CLASSIC, BUMPING = TransactionVersion.CLASSIC, TransactionVersion.EPOCH_FOR_EACH
START = 1_700_000_000_000


def transaction(state: TransactionState, **changes: object) -> Transaction:
    values = {
        "producer_id": 7,
        "producer_epoch": 0,
        "previous_producer_id": 7,
        "state": state,
        "timeout_ms": 60_000,
        "updated_ms": START,
    }
    return Transaction(**(values | changes))  # type: ignore[arg-type]


EMPTY = transaction(TransactionState.EMPTY)
ONGOING = transaction(
    TransactionState.ONGOING,
    producer_epoch=3,
    partitions=frozenset({TopicPartition("a", 5)}),
    started_ms=START + 1,
    updated_ms=START + 2,
    client_version=BUMPING,
)
LAST_EPOCH = transaction(
    TransactionState.PREPARE_COMMIT,
    producer_epoch=32_767,
    next_producer_id=99,
    partitions=frozenset({TopicPartition("a", 5)}),
    started_ms=START + 1,
    updated_ms=START + 3,
    client_version=BUMPING,
)
NEXT_PRODUCER = transaction(
    TransactionState.COMPLETE_COMMIT,
    producer_id=99,
    started_ms=START + 1,
    updated_ms=START + 4,
    client_version=BUMPING,
)
OFFSETS = transaction(
    TransactionState.PREPARE_ABORT,
    producer_epoch=4,
    partitions=frozenset({TopicPartition("__consumer_offsets", 49)}),
    started_ms=START + 1,
    updated_ms=START + 3,
)
KAFKAS_BYTES = [
    (
        EMPTY,
        BUMPING,
        "0001000000000000000700000000ea6000000000018bcfe56800ffffffffffffffff0100080000000000000007",
    ),
    (
        ONGOING,
        BUMPING,
        "0001000000000000000700030000ea60010202610200000005000000018bcfe568020000018bcfe56801"
        "020008000000000000000702020002",
    ),
    (
        LAST_EPOCH,
        BUMPING,
        "000100000000000000077fff0000ea60020202610200000005000000018bcfe568030000018bcfe56801"
        "03000800000000000000070108000000000000006302020002",
    ),
    (
        NEXT_PRODUCER,
        BUMPING,
        "0001000000000000006300000000ea6004010000018bcfe568040000018bcfe56801020008000000000000000702020002",
    ),
    (
        OFFSETS,
        BUMPING,
        "0001000000000000000700040000ea600302135f5f636f6e73756d65725f6f6666736574730200000031"
        "000000018bcfe568030000018bcfe568010100080000000000000007",
    ),
]


@pytest.mark.parametrize(("value", "level", "hexadecimal"), KAFKAS_BYTES)
def test_a_value_has_kafkas_bytes_both_ways(
    value: Transaction, level: TransactionVersion, hexadecimal: str
) -> None:
    assert encode_value(value, level).hex() == hexadecimal
    assert decode_value(bytes.fromhex(hexadecimal)) == value


def test_before_tagged_fields_a_value_has_none() -> None:
    assert (
        encode_value(EMPTY, CLASSIC).hex()
        == "0000000000000000000700000000ea6000ffffffff0000018bcfe56800ffffffffffffffff"
    )
    value = decode_value(encode_value(OFFSETS, CLASSIC))
    assert value is not None
    assert value.partitions == OFFSETS.partitions
    assert value.previous_producer_id == -1


def test_a_key_has_kafkas_bytes_both_ways() -> None:
    assert encode_key("orders-1").hex() == "000000086f72646572732d31"
    assert decode_key(encode_key("ein Ding: é")) == "ein Ding: é"


def test_what_a_newer_version_wrote_is_distinguished_from_damage() -> None:
    assert decode_key(b"\x00\x07\x00\x01a") is None
    assert decode_value(b"\x00\x07whatever") is None
    for damaged in (b"", b"\x00", b"\x00\x01\x02", encode_value(ONGOING, BUMPING)[:-9]):
        with pytest.raises(MalformedMessage):
            decode_value(damaged)
    unknown_state = bytearray(encode_value(EMPTY, BUMPING))
    unknown_state[16] = 77
    with pytest.raises(MalformedMessage):
        decode_value(bytes(unknown_state))


def test_equal_states_have_equal_bytes() -> None:
    names = [TopicPartition(topic, index) for topic in "cab" for index in (2, 0, 1)]
    ongoing = transaction(TransactionState.ONGOING, partitions=frozenset(names))
    other = transaction(TransactionState.ONGOING, partitions=frozenset(reversed(names)))
    assert encode_value(ongoing, BUMPING) == encode_value(other, BUMPING)
