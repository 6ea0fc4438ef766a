"""Which ranges of offsets a file may hold records of, without a look at each: an archive may have thousands of partitions."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

from odradek.archive.store.values import DataFile
from odradek.model.ids import TopicPartition
from odradek.spark.reading.offsets import OffsetRange


class ExtentIndex:
    """Ranges of different partitions, in order. An extent number is the index of a range in `extents`."""

    def __init__(self, extents: Iterable[OffsetRange]) -> None:
        self.extents = sorted(extents, key=lambda extent: extent.partition)
        self._partitions = [extent.partition for extent in self.extents]
        self._indexes = {partition: index for index, partition in enumerate(self._partitions)}
        self._topics = sorted({partition.topic for partition in self._partitions})

    def runs(self, file: DataFile) -> Iterator[range]:
        """Places whose partitions the file may have, as runs; none twice."""
        if file.ranges:
            indexes = (self._indexes.get(span.partition) for span in file.ranges)
            yield from (range(index, index + 1) for index in indexes if index is not None)
        elif file.bounds is None:
            yield range(len(self.extents))
        else:
            first, last = file.bounds.topics
            lowest, highest = file.bounds.partitions
            for topic in self._topics[bisect_left(self._topics, first) : bisect_right(self._topics, last)]:
                start = bisect_left(self._partitions, TopicPartition(topic, lowest))
                yield range(start, bisect_right(self._partitions, TopicPartition(topic, highest)))

    def extent_numbers(self, file: DataFile) -> Iterator[int]:
        """Places of the ranges that the file may hold a record of."""
        if file.ranges:
            for span in file.ranges:
                index = self._indexes.get(span.partition)
                if index is not None and _overlap(self.extents[index], span.start, span.end):
                    yield index
            return
        for run in self.runs(file):
            for index in run:
                if file.bounds is None or file.bounds.may_hold(self.extents[index]):
                    yield index


def _overlap(extent: OffsetRange, start: int, end: int) -> bool:
    return start < extent.end and end > extent.start


def sort_key(file: DataFile) -> tuple[str, int, int, str]:
    """Returns a key that sorts files by their first row: topic, partition, offset."""
    bounds = file.row_bounds()
    if bounds is None:
        return "", 0, 0, file.path
    return bounds.topics[0], bounds.partitions[0], bounds.offsets[0], file.path
