"""Filter pushdown prunes a batch query by its filters: whole partitions, offsets before and after, and rows of other keys.

Spark evaluates every filter again, so a filter that is not understood here costs time and nothing else; and what is
understood may drop only rows that the filter drops. A timestamp's lower bound moves the start: all records before the first
one that new are too old. Its upper bound cannot move the end: a record that came late may be older than one before it.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from odradek.model.ids import TopicPartition
from odradek.records.partition import partition_of
from odradek.spark.reading.offsets import OffsetRange

NO_SUCH_RECORD: Final = -1
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_ONE_MS: Final = datetime.timedelta(milliseconds=1)


class FilterableCluster(Protocol):
    """The questions of pruning to the brokers."""

    def partition_counts(self, topics: Iterable[str]) -> dict[str, int]:
        """Returns the number of partitions of each topic that exists."""

    def offsets(self, questions: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Returns each partition's first offset at or after a time in ms; NO_SUCH_RECORD where no record is so new."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    """Whole numbers that a column may hold; None bounds nothing."""

    least: int | None = None
    most: int | None = None
    values: frozenset[int] | None = None

    def at_least(self, bound: int) -> Numbers:
        return replace(self, least=bound if self.least is None else max(self.least, bound))

    def at_most(self, bound: int) -> Numbers:
        return replace(self, most=bound if self.most is None else min(self.most, bound))

    def among(self, values: frozenset[int]) -> Numbers:
        return replace(self, values=values if self.values is None else self.values & values)

    def admits(self, number: int) -> bool:
        """Tells whether the column may hold this number."""
        return (
            (self.least is None or number >= self.least)
            and (self.most is None or number <= self.most)
            and (self.values is None or number in self.values)
        )

    def span(self, start: int, end: int) -> tuple[int, int]:
        """Returns the part of `start` up to, but without, `end` that may be admitted; empty as (start, start)."""
        values = [] if self.values is None else [value for value in self.values if start <= value < end]
        if self.values is not None:
            start, end = (min(values), max(values) + 1) if values else (start, start)
        first = start if self.least is None else max(start, self.least)
        last = end if self.most is None else min(end, self.most + 1)
        return (first, last) if first < last else (start, start)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruning:
    """The conditions that every row of the result satisfies."""

    partition: Numbers = field(default_factory=Numbers)
    offset: Numbers = field(default_factory=Numbers)
    since_ms: int | None = None
    topics: frozenset[str] | None = None
    keys: frozenset[bytes] | None = None


def pruning_of(filters: Iterable[Filter]) -> Pruning:
    """Returns the conditions of a query's filters, all of which hold; ignores filters that it does not understand."""
    pruning = Pruning()
    for condition in filters:
        pruning = _narrowed(pruning, condition)
    return pruning


def pruned(
    ranges: Sequence[OffsetRange],
    pruning: Pruning,
    cluster: FilterableCluster,
    *,
    keys_choose_partitions: bool,
) -> list[OffsetRange]:
    """Returns the ranges left to read. `keys_choose_partitions`: a key's records are where Kafka's own clients put them."""
    if pruning.keys is not None and not pruning.keys:
        return []
    left = [
        span
        for span in ranges
        if pruning.partition.admits(span.partition.partition)
        and (pruning.topics is None or span.partition.topic in pruning.topics)
    ]
    if keys_choose_partitions and pruning.keys is not None:
        left = _of_keys(left, pruning.keys, cluster)
    left = [_within(span, *pruning.offset.span(span.start, span.end)) for span in left]
    left = [span for span in left if span.size > 0]
    if pruning.since_ms is not None and left:
        firsts = cluster.offsets({span.partition: pruning.since_ms for span in left})
        left = [_since(span, firsts.get(span.partition)) for span in left]
    return [span for span in left if span.size > 0]


def _of_keys(
    ranges: Sequence[OffsetRange], keys: frozenset[bytes], cluster: FilterableCluster
) -> list[OffsetRange]:
    counts = cluster.partition_counts(sorted({span.partition.topic for span in ranges}))
    partitions = {topic: {partition_of(key, count) for key in keys} for topic, count in counts.items()}
    return [span for span in ranges if span.partition.partition in partitions.get(span.partition.topic, ())]


def _since(whole: OffsetRange, first: int | None) -> OffsetRange:
    if first is None:  # the partition was deleted meanwhile: reading it raises an error
        return whole
    return _within(whole, whole.end if first == NO_SUCH_RECORD else max(first, whole.start), whole.end)


def _within(whole: OffsetRange, start: int, end: int) -> OffsetRange:
    return replace(whole, start=start, end=end)


def _narrowed(pruning: Pruning, condition: Filter) -> Pruning:
    attribute: tuple[str, ...] = getattr(condition, "attribute", ())
    if len(attribute) != 1:
        return pruning
    column = attribute[0]
    if column == "partition":
        return replace(pruning, partition=_number(pruning.partition, condition))
    if column == "offset":
        return replace(pruning, offset=_number(pruning.offset, condition))
    if column == "timestamp":
        return _since_time(pruning, condition)
    values = _values(condition)
    if values is None or not all(isinstance(value, str | bytes | bytearray) for value in values):
        return pruning
    if column == "topic":
        topics = frozenset(value for value in values if isinstance(value, str))
        return replace(pruning, topics=topics if pruning.topics is None else pruning.topics & topics)
    if column == "key":
        keys = frozenset(value.encode() if isinstance(value, str) else bytes(value) for value in values)
        return replace(pruning, keys=keys if pruning.keys is None else pruning.keys & keys)
    return pruning


def _number(before: Numbers, condition: Filter) -> Numbers:
    values = _values(condition)
    if values is not None:
        return before.among(frozenset(values)) if all(map(_is_whole, values)) else before
    if not isinstance(condition, GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual):
        return before
    bound = condition.value
    if not isinstance(bound, int) or isinstance(bound, bool):
        return before
    if isinstance(condition, GreaterThan):
        return before.at_least(bound + 1)
    if isinstance(condition, GreaterThanOrEqual):
        return before.at_least(bound)
    return before.at_most(bound - 1 if isinstance(condition, LessThan) else bound)


def _since_time(pruning: Pruning, condition: Filter) -> Pruning:
    if not isinstance(condition, EqualTo | EqualNullSafe | GreaterThan | GreaterThanOrEqual):
        return pruning
    moment = condition.value
    if not isinstance(moment, datetime.datetime) or moment.tzinfo is None:
        return pruning
    since_ms = (moment - _EPOCH) // _ONE_MS  # rounded down: a record's time has whole milliseconds
    return replace(pruning, since_ms=max(since_ms, pruning.since_ms or 0))


def _values(condition: Filter) -> list[Any] | None:
    """Returns the values of which the column must have one; None when the filter does not demand that."""
    if isinstance(condition, EqualTo | EqualNullSafe):
        return None if condition.value is None else [condition.value]
    return [value for value in condition.value if value is not None] if isinstance(condition, In) else None


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
