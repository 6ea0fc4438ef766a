"""Decisions about records on their way to a broker, in groups by session and partition, and their outcomes. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final, NamedTuple

from odradek.client.share.acquired_chunk import OffsetSpan
from odradek.client.share.share_record import SharePartitionId, ShareRecord, ShareSource
from odradek.model.errors import KafkaError
from odradek.model.ids import TopicPartition
from odradek.protocol.acknowledge_types import AcknowledgeType

_FREE_AT_THE_BROKER: Final = frozenset({AcknowledgeType.RELEASE, AcknowledgeType.GAP})
"""Decisions that need no session: when it ends, its records are released anyhow."""


class AcknowledgedOffsets(NamedTuple):
    """The outcome of acknowledgements of one partition."""

    topic_partition: TopicPartition
    offsets: tuple[int, ...]
    """The offsets of the records, in order."""
    error: KafkaError | None  # stored-error: given to the callback, never raised
    """Why they were refused; the records are delivered again. None if the broker has stored them."""


class TypedRange(NamedTuple):
    """Neighbouring offsets and their acknowledgement types: one for each offset, or one for all."""

    first_offset: int
    last_offset: int
    types: list[int]


def span_of(offsets: OffsetSpan, kind: AcknowledgeType) -> TypedRange:
    """Returns the range with one type for all of its offsets."""
    return TypedRange(offsets.first_offset, offsets.last_offset, [int(kind)])


@dataclass(slots=True, kw_only=True)
class AcknowledgementGroup:
    """Acknowledgements of one partition that go into one request of one session."""

    source: ShareSource
    partition: SharePartitionId
    types: dict[int, AcknowledgeType] = field(default_factory=dict)
    spans: list[TypedRange] = field(default_factory=list)
    """Ranges with one type: offsets without a record, and offsets of batches that could not be read."""
    renewed: dict[int, ShareRecord[Any, Any]] = field(default_factory=dict)
    """The records whose locks are renewed; they return to the user when the broker agrees."""
    waiters: list[CommitWaiter] = field(default_factory=list)

    @property
    def renews(self) -> bool:
        return bool(self.renewed)

    @property
    def needs_session(self) -> bool:
        """Whether anything is lost when the session ends before the broker has the group."""
        return any(kind not in _FREE_AT_THE_BROKER for kind in self.types.values())

    def ranges(self) -> list[TypedRange]:
        """Returns what the request carries: ascending ranges, no offset in two."""
        parts = [TypedRange(offset, offset, [int(kind)]) for offset, kind in self.types.items()]
        return list(_merged(sorted(parts + self.spans)))

    def outcome(self, error: KafkaError | None) -> AcknowledgedOffsets:
        return AcknowledgedOffsets(self.partition.topic_partition, tuple(sorted(self.types)), error)


def _merged(parts: Iterable[TypedRange]) -> Iterator[TypedRange]:
    """Yields runs of neighbours: of one type with one type in all, others with a type for each offset."""
    run: TypedRange | None = None
    for part in parts:
        if run is None or run.last_offset + 1 != part.first_offset or _is_wide(run) or _is_wide(part):
            if run is not None:
                yield _compact(run)
            run = part._replace(types=list(part.types))
        else:
            run.types.extend(part.types)
            run = run._replace(last_offset=part.last_offset)
    if run is not None:
        yield _compact(run)


def _is_wide(part: TypedRange) -> bool:
    """True if one type covers several offsets, which may be many."""
    return len(part.types) < part.last_offset - part.first_offset + 1


def _compact(run: TypedRange) -> TypedRange:
    is_uniform = all(before == after for before, after in pairwise(run.types))
    return run._replace(types=run.types[:1]) if is_uniform else run


class CommitWaiter:
    """The groups that one `commit` waits for. Used with the lock of the deliveries held."""

    __slots__ = ("_count", "errors", "offset_counts")

    def __init__(self, groups: Iterable[AcknowledgementGroup]) -> None:
        self._count = 0
        # stored-error: for the caller of one commit
        self.errors: Final[dict[TopicPartition, KafkaError]] = {}
        self.offset_counts: Final[dict[TopicPartition, int]] = {}
        """The number of records whose acknowledgements were stored, by partition."""
        for group in groups:
            group.waiters.append(self)
            self._count += 1

    @property
    def is_done(self) -> bool:
        return self._count == 0

    def settled(self, outcome: AcknowledgedOffsets) -> None:
        self._count -= 1
        if outcome.error is not None:
            self.errors.setdefault(outcome.topic_partition, outcome.error)
        elif outcome.offsets:
            count = self.offset_counts.get(outcome.topic_partition, 0)
            self.offset_counts[outcome.topic_partition] = count + len(outcome.offsets)
