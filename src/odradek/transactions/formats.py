"""The records of `__transaction_state`, byte for byte Kafka's: key `version i16 | transactional id`, value
`version i16 | fields`.

A tombstone means that the id expired. Values of version 0 have no tagged fields; version 1 is written from level 1 of
`transaction.version` on. Partitions are sorted, so that equal states have equal bytes.
"""

from __future__ import annotations

from itertools import groupby
from typing import Final

from odradek.model.ids import TopicPartition
from odradek.protocol.compiled import decode, encode
from odradek.protocol.errors import MalformedMessage
from odradek.protocol.schema import Message, Struct, array, int8, int16, int32, int64, string
from odradek.transactions.state import Transaction, TransactionState, TransactionVersion

_VERSION_BYTES: Final = 2
_KEY_VERSION: Final = 0
ID_BYTES_MAX: Final = 32_767
"""The key's string has a length of 16 bits."""


class TransactionLogKey(Message, versions="0", flexible="none"):
    transactional_id: str = string("0")


class PartitionsSchema(Struct):
    topic: str = string("0+")
    partition_ids: list[int] = array(int32, "0+")


class TransactionLogValue(Message, versions="0-1", flexible="1+"):
    producer_id: int = int64("0+")
    previous_producer_id: int = int64("1+", tag=0, default=-1, ignorable=True)
    next_producer_id: int = int64("1+", tag=1, default=-1, ignorable=True)
    producer_epoch: int = int16("0+")
    next_producer_epoch: int = int16("1+", tag=3, default=-1, ignorable=True)
    transaction_timeout_ms: int = int32("0+")
    transaction_status: int = int8("0+")
    transaction_partitions: list[PartitionsSchema] | None = array(PartitionsSchema, "0+", nullable="0+")
    transaction_last_update_timestamp_ms: int = int64("0+")
    transaction_start_timestamp_ms: int = int64("0+")
    client_transaction_version: int = int16("1+", tag=2, default=0, ignorable=True)


def encode_key(transactional_id: str) -> bytes:
    return _KEY_VERSION.to_bytes(_VERSION_BYTES, "big") + encode(
        TransactionLogKey(transactional_id=transactional_id), _KEY_VERSION
    )


def encode_value(transaction: Transaction, level: TransactionVersion) -> bytes:
    """Returns the record's value as a cluster at this level of `transaction.version` writes it."""
    version = 0 if level is TransactionVersion.CLASSIC else 1
    partitions = [
        PartitionsSchema(topic=topic, partition_ids=[partition.partition for partition in ones])
        for topic, ones in groupby(sorted(transaction.partitions), key=lambda member: member.topic)
    ]
    value = TransactionLogValue(
        producer_id=transaction.producer_id,
        previous_producer_id=transaction.previous_producer_id,
        next_producer_id=transaction.next_producer_id,
        producer_epoch=transaction.producer_epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=transaction.state,
        transaction_partitions=None if transaction.state is TransactionState.EMPTY else partitions,
        transaction_last_update_timestamp_ms=transaction.updated_ms,
        transaction_start_timestamp_ms=transaction.started_ms,
        client_transaction_version=transaction.client_version,
    )
    return version.to_bytes(_VERSION_BYTES, "big") + encode(value, version)


def decode_key(key: bytes) -> str | None:
    """Returns the transactional id, or None for a kind of record that this version does not know. Raises MalformedMessage."""
    if _version(key) != _KEY_VERSION:
        return None
    message, _ = decode(TransactionLogKey, _KEY_VERSION, key, _VERSION_BYTES)
    return message.transactional_id


def decode_value(value: bytes) -> Transaction | None:
    """Returns the state, or None for a version that this one does not know. Raises MalformedMessage."""
    version = _version(value)
    if version not in TransactionLogValue.VERSIONS:
        return None
    message, _ = decode(TransactionLogValue, version, value, _VERSION_BYTES)
    try:
        state = TransactionState(message.transaction_status)
        client_version = TransactionVersion(message.client_transaction_version)
    except ValueError as error:
        raise MalformedMessage(str(error), path="TransactionLogValue") from error
    return Transaction(
        producer_id=message.producer_id,
        producer_epoch=message.producer_epoch,
        state=state,
        timeout_ms=message.transaction_timeout_ms,
        updated_ms=message.transaction_last_update_timestamp_ms,
        started_ms=message.transaction_start_timestamp_ms,
        partitions=frozenset(
            TopicPartition(topic.topic, index)
            for topic in message.transaction_partitions or ()
            for index in topic.partition_ids
        ),
        previous_producer_id=message.previous_producer_id,
        next_producer_id=message.next_producer_id,
        client_version=client_version,
    )


def _version(data: bytes) -> int:
    if len(data) < _VERSION_BYTES:
        raise MalformedMessage(f"{len(data)} bytes have no room for a version", path="version")
    return int.from_bytes(data[:_VERSION_BYTES], "big", signed=True)
