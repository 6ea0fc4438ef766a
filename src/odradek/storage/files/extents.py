"""The file `log-extents` of a data directory: from where to where each of its logs is durable. Pure.

Kafka's checkpoints are written once a minute. This file follows every second, so that a crash leaves evidence of almost all
that was acknowledged: a log that ends below its extent, or begins above it, lost something.

The file is a run of blocks, each appended and synced before the next:

    length of the body (4 bytes)  CRC-32C of the last block's CRC and the body (4)  body

The body of the first holds the version, the CRCs that the recovery point checkpoint next to it may have, and
every log. Later ones hold the logs that changed, and count for more than what comes before them. A block that
is cut short, or damaged, is worth nothing, and so is what follows: it was being written when power failed.
What comes before it is older, and still true.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from odradek.model.ids import TopicPartition
from odradek.records.crc import crc32c
from odradek.storage.files.checkpoints import BadCheckpointError

_VERSION: Final = 0
_FRAME: Final = struct.Struct(">II")
_CRC: Final = struct.Struct(">I")
_HEAD: Final = struct.Struct(">HH")
"""Version, and how many CRCs follow."""
_ENTRY: Final = struct.Struct(">qqqiH")
"""Offsets, partition, and how many bytes the topic's name has, which follows."""


class Extent(NamedTuple):
    """The durable part of a log. A tuple, because each flush of a second makes one."""

    first_offset: int
    """The base offset of the log's first segment."""
    recovery_point: int
    """Recovery after a crash reads nothing below this offset."""
    end_offset: int
    """Everything below it is durable."""


Extents = Mapping[TopicPartition, Extent]


def encode_all(extents: Extents, checkpoints: Iterable[bytes]) -> tuple[bytes, int]:
    """Returns a whole file, and the CRC that the next block continues. `checkpoints` are the possible
    contents of the checkpoint next to it."""
    crcs = [crc32c(content) for content in checkpoints]
    head = _HEAD.pack(_VERSION, len(crcs)) + b"".join(map(_CRC.pack, crcs))
    return _block(0, head + _entries(extents))


def encode_changed(extents: Extents, crc_before: int) -> tuple[bytes, int]:
    """Returns one more block, and its CRC."""
    return _block(crc_before, _entries(extents))


def _block(crc_before: int, body: bytes) -> tuple[bytes, int]:
    crc = crc32c(_CRC.pack(crc_before) + body)
    return _FRAME.pack(len(body), crc) + body, crc


def _entries(extents: Extents) -> bytes:
    pieces: list[bytes] = []
    for name, extent in extents.items():
        topic = name.topic.encode()
        pieces += (_ENTRY.pack(*extent, name.partition, len(topic)), topic)
    return b"".join(pieces)


class ExtentsRead(NamedTuple):
    extents: dict[TopicPartition, Extent]
    checkpoint_crcs: frozenset[int]
    is_whole: bool
    """Nothing was left out at the end."""

    def go_with(self, checkpoint: bytes) -> bool:
        """Returns whether the recovery point checkpoint is the one that was there, and not older, newer, or changed by hand."""
        return crc32c(checkpoint) in self.checkpoint_crcs


def decode(data: bytes) -> ExtentsRead:
    """Raises BadCheckpointError when not even the first block can be believed."""
    body, position, crc = _next_body(data, 0, 0)
    if body is None:
        raise BadCheckpointError("its first block is damaged")
    try:
        version, crc_count = _HEAD.unpack_from(body)
        if version != _VERSION:
            raise BadCheckpointError(f"version {version} is unknown")
        start = _HEAD.size + crc_count * _CRC.size
        crcs = frozenset(checksum for (checksum,) in _CRC.iter_unpack(body[_HEAD.size : start]))
        extents: dict[TopicPartition, Extent] = {}
        _decode_entries(body, start, extents)
        while position < len(data):
            body, position, crc = _next_body(data, position, crc)
            if body is None:
                return ExtentsRead(extents, crcs, False)
            _decode_entries(body, 0, extents)
    except (struct.error, ValueError) as error:  # the CRC is right: another program wrote it
        raise BadCheckpointError(f"it does not follow its format: {error}") from None
    return ExtentsRead(extents, crcs, True)


def _next_body(data: bytes, position: int, crc_before: int) -> tuple[bytes | None, int, int]:
    """Returns the body at `position`, its end, and its CRC; no body where none is reliable."""
    start = position + _FRAME.size
    if start > len(data):
        return None, position, crc_before
    length, crc = _FRAME.unpack_from(data, position)
    body = data[start : start + length]
    if not length or len(body) < length or crc32c(_CRC.pack(crc_before) + body) != crc:
        return None, position, crc_before
    return body, start + length, crc


def _decode_entries(body: bytes, position: int, extents: dict[TopicPartition, Extent]) -> None:
    while position < len(body):
        first_offset, recovery_point, end_offset, partition, length = _ENTRY.unpack_from(body, position)
        position += _ENTRY.size
        topic = body[position : position + length]
        position += length
        if len(topic) < length:
            raise ValueError("a name is cut short")
        extents[TopicPartition(topic.decode(), partition)] = Extent(first_offset, recovery_point, end_offset)
