"""The small text files next to the logs, in Kafka's formats. Pure: text in, values out, and back.

Kafka's checkpoints carry no checksum. What cannot be parsed is refused as a whole; what was damaged into something that still
parses can only be caught by comparing it with the log, which recovery does.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final, TypeVar
from uuid import UUID

from odradek.model.ids import TopicPartition, kafka_id
from odradek.model.java_numbers import is_digits
from odradek.records.crc import crc32c
from odradek.storage.files.leader_epochs import EpochStart

T = TypeVar("T")

_VERSION: Final = 0
_INT64_MAX: Final = 2**63 - 1
_INT32_MAX: Final = 2**31 - 1


class BadCheckpointError(Exception):
    """A file that does not follow its format; the message has the fault."""


def format_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    """Formats `recovery-point-offset-checkpoint` and its kin: a line `topic partition offset` each."""
    return _format(f"{name.topic} {name.partition} {offset}" for name, offset in sorted(offsets.items()))


def parse_offsets(data: bytes) -> dict[TopicPartition, int]:
    return dict(_parse(data, _offset_line))


def _offset_line(line: str) -> tuple[TopicPartition, int]:
    topic, partition, offset = line.split(" ")
    return TopicPartition(topic, _number(partition, _INT32_MAX)), _number(offset, _INT64_MAX)


def format_held(held: Mapping[TopicPartition, UUID]) -> bytes:
    """Formats `held-replicas`, a file of ours: a line `topic partition topic-id` each, in the order of the mapping."""
    return format_held_lines(held_lines(held.items()))


def held_lines(held: Iterable[tuple[TopicPartition, UUID]]) -> list[str]:
    """Returns the lines of a part of `held-replicas`."""
    return [f"{topic} {partition} {kafka_id(topic_id)}" for (topic, partition), topic_id in held]


def format_held_lines(lines: Sequence[str]) -> bytes:
    """Formats `held-replicas` of all its lines."""
    return _format(lines)


def parse_held(data: bytes) -> dict[TopicPartition, UUID]:
    return dict(_parse(data, _held_line))


def _held_line(line: str) -> tuple[TopicPartition, UUID]:
    topic, partition, topic_id = line.split(" ")
    return TopicPartition(topic, _number(partition, _INT32_MAX)), parse_kafka_id(topic_id)


def format_epochs(entries: Iterable[EpochStart]) -> bytes:
    """Formats `leader-epoch-checkpoint`: a line `epoch start-offset` each, ascending."""
    return _format(f"{entry.epoch} {entry.start_offset}" for entry in entries)


def parse_epochs(data: bytes) -> list[EpochStart]:
    entries = _parse(data, _epoch_line)
    for before, after in pairwise(entries):
        if after.epoch <= before.epoch or after.start_offset <= before.start_offset:
            raise BadCheckpointError(f"epoch {after.epoch} at {after.start_offset} does not follow {before}")
    return entries


def _epoch_line(line: str) -> EpochStart:
    epoch, start_offset = line.split(" ")
    return EpochStart(_number(epoch, _INT32_MAX), _number(start_offset, _INT64_MAX))


def _format(lines: Iterable[str]) -> bytes:
    body = list(lines)
    return "\n".join([str(_VERSION), str(len(body)), *body, ""]).encode()


def _parse(data: bytes, parse_line: Callable[[str], T]) -> list[T]:
    try:
        lines = data.decode().split("\n")
        if lines[-1] != "" or len(lines) < 3:
            raise ValueError("the file is cut short")
        if _number(lines[0], _INT32_MAX) != _VERSION:
            raise ValueError(f"version {lines[0]} is unknown")
        count, entries = _number(lines[1], _INT32_MAX), lines[2:-1]
        if len(entries) != count:
            raise ValueError(f"{count} entries are announced, {len(entries)} are there")
        return [parse_line(line) for line in entries]
    except ValueError as error:
        raise BadCheckpointError(str(error)) from None


def _number(text: str, largest: int) -> int:
    if not is_digits(text, 19) or int(text) > largest:
        raise ValueError(f"{text!r} is not a number from 0 to {largest}")
    return int(text)


def format_partition_metadata(topic_id: UUID) -> bytes:
    """Formats `partition.metadata`: which topic, of all that ever had the name, the directory belongs to."""
    return f"version: {_VERSION}\ntopic_id: {kafka_id(topic_id)}".encode()


def parse_partition_metadata(data: bytes) -> UUID:
    values = _pairs(data, ":")
    if values.get("version") != str(_VERSION):
        raise BadCheckpointError(f"version {values.get('version')!r} is unknown")
    return parse_kafka_id(values.get("topic_id", ""))


def format_start_offset(offset: int) -> bytes:
    """Formats `log-start-offset`, a file of ours: records below it were deleted by request, though their segment is still
    there."""
    return sealed({"version": str(_VERSION), "start_offset": str(offset)})


def parse_start_offset(data: bytes) -> int:
    values = unsealed(data)
    try:
        return _number(values["start_offset"], _INT64_MAX)
    except (KeyError, ValueError) as error:
        raise BadCheckpointError(f"it does not follow its format: {error}") from None


def format_transaction_sums(sums: Mapping[int, int]) -> bytes:
    """Formats `transaction-index-sums`, a file of ours: by base offset, the CRC of each transaction index that is complete."""
    pairs = " ".join(f"{base_offset}:{crc}" for base_offset, crc in sums.items())
    return sealed({"version": str(_VERSION), "sums": pairs})


def parse_transaction_sums(data: bytes) -> dict[int, int]:
    try:
        pairs = [pair.split(":") for pair in unsealed(data)["sums"].split()]
        return {_number(base_offset, _INT64_MAX): _number(crc, _INT64_MAX) for base_offset, crc in pairs}
    except (KeyError, ValueError) as error:
        raise BadCheckpointError(f"it does not follow its format: {error}") from None


def format_sums(contents: Iterable[bytes]) -> bytes:
    """Returns a file with the allowed CRCs of a file without its own checksum: before it is replaced, and afterwards."""
    return sealed({"version": str(_VERSION), "crcs": " ".join(str(crc32c(content)) for content in contents)})


def is_among(data: bytes, sums: bytes) -> bool:
    """Returns whether a file's content is one of those that `format_sums` got."""
    return str(crc32c(data)) in unsealed(sums).get("crcs", "").split(" ")


def sealed(values: Mapping[str, str]) -> bytes:
    """Formats `key=value` lines, and a last one with their CRC."""
    body = format_properties(values)
    return body + format_properties({"crc": str(crc32c(body))})


def unsealed(data: bytes) -> dict[str, str]:
    values = parse_properties(data)
    if values.get("crc") != str(crc32c(data[: data.rfind(b"crc=")])):
        raise BadCheckpointError("its CRC is wrong")
    return values


def format_properties(values: Mapping[str, str]) -> bytes:
    """Formats `meta.properties`, and any other file of `key=value` lines."""
    return "".join(f"{key}={value}\n" for key, value in values.items()).encode()


def parse_properties(data: bytes) -> dict[str, str]:
    return _pairs(data, "=")


def _pairs(data: bytes, separator: str) -> dict[str, str]:
    try:
        lines = data.decode().splitlines()
    except ValueError as error:
        raise BadCheckpointError(str(error)) from None
    pairs = (line.partition(separator) for line in lines if line.strip() and not line.startswith("#"))
    return {key.strip(): value.strip() for key, _, value in pairs}


def parse_kafka_id(text: str) -> UUID:
    try:
        return UUID(bytes=base64.urlsafe_b64decode(text + "=="))
    except (ValueError, binascii.Error) as error:
        raise BadCheckpointError(f"{text!r} is not an id: {error}") from None
