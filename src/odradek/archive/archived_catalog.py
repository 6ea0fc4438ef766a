"""The brokers with an archive behind them: logs that begin where the archive begins."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from odradek.archive.values import ArchiveError
from odradek.model.ids import TopicPartition
from odradek.spark.catalog import NO_SUCH_RECORD, Catalog
from odradek.spark.offsets import OffsetRange
from odradek.spark.positions import EARLIEST, LATEST

FindTimes = Callable[[Mapping[TopicPartition, int]], dict[TopicPartition, int]]
"""For each partition and time (ms) the first archived offset at or after it; without those that have none."""


class ArchivedCatalog:
    """A `Catalog` of both. `archived`: what the archive has."""

    def __init__(
        self, brokers: Catalog, archived: Mapping[TopicPartition, OffsetRange], first_at: FindTimes
    ) -> None:
        self._brokers = brokers
        self._archived = archived
        self._first_at = first_at

    def topics(self) -> list[str]:
        return self._brokers.topics()

    def partition_counts(self, topics: Iterable[str]) -> dict[str, int]:
        return self._brokers.partition_counts(topics)

    def committed(self, group: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return self._brokers.committed(group, partitions)

    def offsets(self, questions: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        answers = self._brokers.offsets(questions)
        times = {
            each: question for each, question in questions.items() if question >= 0 and each in self._archived
        }
        found = (
            self._first_at({each: time for each, time in times.items() if each in answers}) if times else {}
        )
        return {each: self._answer(each, questions[each], answer, found) for each, answer in answers.items()}

    def _answer(
        self, partition: TopicPartition, question: int, answer: int, found: Mapping[TopicPartition, int]
    ) -> int:
        extent = self._archived.get(partition)
        if extent is None:
            return answer
        if question == EARLIEST:
            return min(answer, extent.start)
        if question == LATEST:
            if answer < extent.end:
                raise ArchiveError(
                    f"{partition} ends at offset {answer}, but the archive has it up to {extent.end}: the topic was made anew,"
                    " or is another one of the same name. Read one of them alone"
                )
            return answer
        first = found.get(partition)
        if first is None:
            return answer
        return first if answer == NO_SUCH_RECORD else min(first, answer)
