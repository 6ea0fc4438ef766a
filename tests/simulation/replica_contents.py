"""What a replica holds, in a form in which all replicas of a partition must agree when they rest.

Of an ordinary partition that is its bytes. Of a compacted one, whose replicas are cleaned each at its own time, it is the
newest value of each key: the result of replaying it, transactions and tombstones considered.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from odradek.records import ControlKind, check_crc, decode_batch, read_control, split_batches
from odradek.replication.partition import Partition

_READ_BYTES: Final = 1 << 20
Newest = dict[bytes, tuple[int, bytes]]
"""Keys, and the offset and value of the newest record of each that is no tombstone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """Of a replica; either its bytes or its newest values."""

    end_offset: int
    raw: bytes = b""
    newest: Newest | None = None


def content_of(partition: Partition) -> Content:
    """All of it is to be committed."""
    end_offset = partition.log.end_offset
    if "compact" in partition.log.config.cleanup_policy:
        return Content(end_offset=end_offset, newest=_newest(partition))
    return Content(end_offset=end_offset, raw=b"".join(_batches(partition)))


def difference(content: Content, other: Content) -> str:
    """For people."""
    if content.end_offset != other.end_offset:
        return f"they end at {content.end_offset} and at {other.end_offset}"
    if content.newest is not None and other.newest is not None:
        keys = [
            key
            for key in {**content.newest, **other.newest}
            if content.newest.get(key) != other.newest.get(key)
        ]
        return f"of {keys[0]!r} they have {content.newest.get(keys[0])} and {other.newest.get(keys[0])}"
    at = next(
        (i for i, (a, b) in enumerate(zip(content.raw, other.raw, strict=False)) if a != b),
        min(len(content.raw), len(other.raw)),
    )
    return f"they part at byte {at} of {len(content.raw)} and {len(other.raw)}"


def _batches(partition: Partition) -> Iterator[bytes]:
    log = partition.log
    offset = log.start_offset
    while offset < log.end_offset:
        fetched = log.read(offset, _READ_BYTES, end_offset=log.end_offset, at_least_one=True)
        yield bytes(fetched.records)
        if fetched.next_offset <= offset:
            return
        offset = fetched.next_offset


def _newest(partition: Partition) -> Newest:
    """A transaction whose marker is gone was committed, as far as anything of it is left."""
    newest: dict[bytes, tuple[int, bytes | None]] = {}
    undecided: dict[int, list[tuple[bytes, int, bytes | None]]] = {}

    def take(records: list[tuple[bytes, int, bytes | None]]) -> None:
        for key, offset, value in records:
            if offset >= newest.get(key, (-1, None))[0]:
                newest[key] = (offset, value)

    for piece in _batches(partition):
        for header, batch in split_batches(piece):
            check_crc(batch)
            if header.is_control:
                records = undecided.pop(header.producer_id, [])
                if read_control(batch).kind is ControlKind.COMMIT:
                    take(records)
                continue
            collected = [
                (record.key or b"", record.offset, record.value) for record in decode_batch(batch, header)
            ]
            if header.is_transactional:
                undecided.setdefault(header.producer_id, []).extend(collected)
            else:
                take(collected)
    for records in undecided.values():
        take(records)
    return {key: (offset, value) for key, (offset, value) in newest.items() if value is not None}
