"""The offsets that the next micro-batch reads, and their splits among tasks: pure functions over plain numbers."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from uuid import UUID

from odradek.model.ids import TopicPartition
from odradek.spark.reading.offsets import OffsetRange, StreamOffset

Offsets = Mapping[TopicPartition, int]
TopicIds = Mapping[str, UUID]


def share(backlog: Offsets, limit: int) -> dict[TopicPartition, int]:
    """Divides `limit` records among partitions in proportion to what waits in each.

    The shares add up to exactly `min(limit, sum of backlog)`. No partition that has something waits for
    another to drain: each gets at least one record as long as the limit allows it.
    """
    waiting = {partition: size for partition, size in sorted(backlog.items()) if size > 0}
    total = sum(waiting.values())
    if total <= limit:
        return waiting
    if limit < len(waiting):
        return dict.fromkeys(list(waiting)[:limit], 1)
    spare = limit - len(waiting)
    rest = total - len(waiting)
    shares = {partition: 1 + spare * (size - 1) // rest for partition, size in waiting.items()}
    left_over = limit - sum(shares.values())
    by_remainder = sorted(
        waiting, key=lambda partition: (-(spare * (waiting[partition] - 1) % rest), partition)
    )
    for partition in by_remainder[:left_over]:
        shares[partition] += 1
    return shares


def advance(start: Offsets, available: Offsets, limit: int | None) -> dict[TopicPartition, int]:
    """Returns the offsets where the next batch ends: everything available, or `limit` records fairly shared.

    `limit`: maxOffsetsPerTrigger. A partition that vanished from `available` stays where it was; one whose log is now shorter
    than `start` goes back to that log's end. Below one record per partition the partitions take turns, decided by `start`.
    """
    ends = dict(start)
    ends.update(
        {partition: offset for partition, offset in available.items() if offset < start.get(partition, 0)}
    )
    backlog = {
        partition: offset - start.get(partition, 0)
        for partition, offset in available.items()
        if offset > start.get(partition, 0)
    }
    shares = backlog if limit is None else share(_rotated(backlog, start, limit), limit)
    for partition, size in shares.items():
        ends[partition] = start.get(partition, 0) + size
    return ends


def _rotated(backlog: Offsets, start: Offsets, limit: int) -> Offsets:
    """Returns the backlog; when not every partition can have a record, only the backlog of the partitions whose turn it is."""
    waiting = sorted(partition for partition, size in backlog.items() if size > 0)
    if limit >= len(waiting):
        return backlog
    first = sum(start.values()) % len(waiting)
    turn = (waiting[first:] + waiting[:first])[:limit]
    return {partition: backlog[partition] for partition in turn}


def split(
    ranges: Sequence[OffsetRange], *, min_tasks: int | None, max_records_per_task: int | None
) -> list[OffsetRange]:
    """Cuts ranges into at least `min_tasks` pieces (minPartitions), as far as there are records.

    None is above `max_records_per_task`.

    Pieces of one range differ by at most one record; together they are the range.
    """
    pieces = [span for span in ranges if span.size > 0]
    if max_records_per_task is not None:
        pieces = [piece for span in pieces for piece in _cut(span, -(-span.size // max_records_per_task))]
    if min_tasks is None or not pieces or len(pieces) >= min_tasks:
        return pieces
    sizes = {index: piece.size for index, piece in enumerate(pieces)}
    counts = _piece_counts(sizes, min_tasks)
    return [piece for index, span in enumerate(pieces) for piece in _cut(span, counts[index])]


def grouped(
    pieces: Sequence[OffsetRange], *, max_tasks: int | None, max_records_per_task: int | None
) -> list[tuple[OffsetRange, ...]]:
    """Puts pieces together into at most `max_tasks` tasks, as far as `max_records_per_task` allows, of much the same size.

    No task has two pieces of one partition. Decided by the arguments alone, so that a batch that runs again is the same.
    """
    if max_tasks is None or len(pieces) <= max_tasks:
        return [(span,) for span in pieces]
    tasks: list[list[OffsetRange]] = [[] for _ in range(max_tasks)]
    lightest_first = [(0, number) for number in range(max_tasks)]
    for piece in sorted(pieces, key=lambda span: (-span.size, span.partition, span.start)):
        passed = []
        while lightest_first:
            size, number = heapq.heappop(lightest_first)
            if _fits(tasks[number], size, piece, max_records_per_task):
                break
            passed.append((size, number))
        else:
            size, number = 0, len(tasks)
            tasks.append([])
        tasks[number].append(piece)
        for entry in (*passed, (size + piece.size, number)):
            heapq.heappush(lightest_first, entry)
    return [tuple(sorted(task, key=lambda span: (span.partition, span.start))) for task in tasks if task]


def _fits(task: Sequence[OffsetRange], size: int, piece: OffsetRange, records_max: int | None) -> bool:
    if any(span.partition == piece.partition for span in task):
        return False
    return records_max is None or not task or size + piece.size <= records_max


def _piece_counts(sizes: Mapping[int, int], min_tasks: int) -> dict[int, int]:
    """Returns how many pieces each range becomes: it cuts where the pieces are largest."""
    counts = dict.fromkeys(sizes, 1)
    largest_first = [(-float(size), index) for index, size in sizes.items()]
    heapq.heapify(largest_first)
    for _ in range(min(min_tasks, sum(sizes.values())) - len(sizes)):
        index = largest_first[0][1]
        counts[index] += 1
        heapq.heapreplace(largest_first, (-sizes[index] / counts[index], index))
    return counts


def _cut(whole: OffsetRange, count: int) -> list[OffsetRange]:
    borders = [whole.start + whole.size * index // count for index in range(count + 1)]
    return [replace(whole, start=start, end=end) for start, end in pairwise(borders)]


def recreated_topics(known: TopicIds, present: TopicIds) -> list[str]:
    """Returns the topics of `known` whose names other topics have now: their offsets mean nothing any more."""
    return sorted(topic for topic, topic_id in known.items() if present.get(topic, topic_id) != topic_id)


def without_topics(offset: StreamOffset, topics: Collection[str]) -> StreamOffset:
    """Returns the same offset, as if it had never been in these topics."""
    if not topics:
        return offset
    return replace(
        offset,
        next_offsets={at: next_ for at, next_ in offset.next_offsets.items() if at.topic not in topics},
        topic_ids={topic: topic_id for topic, topic_id in offset.topic_ids.items() if topic not in topics},
    )


def lost_records(start: Offsets, earliest: Offsets, latest: Offsets) -> list[str]:
    """Returns which records from `start` on can no longer be read, one clause for each partition; empty when all
    is there.
    """
    losses: list[str] = []
    for partition, offset in sorted(start.items()):
        if partition not in latest:
            losses.append(
                f"{partition} no longer exists, or is no longer among what is read (offset {offset} was next)"
            )
        elif offset > latest[partition]:
            losses.append(f"{partition} ends at offset {latest[partition]}, before offset {offset}")
        elif offset < earliest.get(partition, 0):
            losses.append(f"{partition} now begins at offset {earliest[partition]}, after offset {offset}")
    return losses
