"""The brokers together with an archive: logs begin where the archive begins."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from uuid import UUID

from odradek.archive.history.archive_view import ArchiveSnapshot, ArchiveView
from odradek.archive.history.archived_rows import first_at
from odradek.archive.store.values import ArchiveError
from odradek.model.ids import TopicPartition
from odradek.spark.options.positions import EARLIEST, LATEST
from odradek.spark.reading.catalog import NO_SUCH_RECORD, Catalog


class ArchivedCatalog:
    """A `Catalog` of both."""

    def __init__(self, brokers: Catalog, view: ArchiveView) -> None:
        self._brokers = brokers
        self._view = view

    def topics(self) -> list[str]:
        return self._brokers.topics()

    def partition_counts(self, topics: Iterable[str]) -> dict[str, int]:
        return self._brokers.partition_counts(topics)

    def topic_ids(self, topics: Iterable[str]) -> dict[str, UUID]:
        """Returns topic ids. ArchiveError when a topic is not the one that the archive has: their offsets are not one log."""
        ids = self._brokers.topic_ids(topics)
        archived = self._view.last().topic_ids
        for topic, topic_id in sorted(ids.items()):
            if archived.get(topic, topic_id) != topic_id:
                raise ArchiveError(
                    f"topic {topic!r} was created again, or is another one of the same name: the archive has the one with id"
                    f" {archived[topic]}, and the brokers have id {topic_id}. Read one of them alone"
                )
        return ids

    def committed(
        self, group: str, partitions: Iterable[TopicPartition], topic_ids: Mapping[str, UUID]
    ) -> dict[TopicPartition, int]:
        return self._brokers.committed(group, partitions, topic_ids)

    def offsets(self, questions: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        answers = self._brokers.offsets(questions)
        asks_for_ends_alone = all(question == LATEST for question in questions.values())
        look = self._view.last() if asks_for_ends_alone else self._view.recent()
        times_ms = {
            partition: questions[partition]
            for partition in answers
            if questions[partition] >= 0 and partition in look.archived
        }
        firsts = first_at(self._view.table.location, look.files, times_ms)
        return {
            partition: _answer(partition, questions[partition], offset, look, firsts.get(partition))
            for partition, offset in answers.items()
        }


def _answer(
    partition: TopicPartition, question: int, offset: int, look: ArchiveSnapshot, first: int | None
) -> int:
    """Returns the offset in archive and topic. `offset`: the brokers' answer; `first`: the first archived one at the time."""
    extent = look.archived.get(partition)
    if extent is None:
        return offset
    if question == EARLIEST:
        return min(offset, extent.start)
    if question == LATEST:
        if offset < extent.end:
            raise ArchiveError(
                f"{partition} ends at offset {offset}, but the archive has it up to {extent.end}: the topic was created again,"
                " or is another one of the same name. Read one of them alone"
            )
        return offset
    if first is None:
        return offset
    return first if offset == NO_SUCH_RECORD else min(first, offset)
