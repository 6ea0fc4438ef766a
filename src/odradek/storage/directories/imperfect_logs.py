"""The open logs that lack something, hold damaged batches, or do not know where they begin.

A broker reports them to the controller at least every few seconds, and of ten thousand logs most often none is one of them:
they are known by name, and no one looks at all logs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from odradek.model.ids import TopicPartition
from odradek.storage.log.log import Log


class ImperfectLogs:
    """The names of open logs that may lack records or hold damaged ones. Used on the event loop only, except
    `add`."""

    __slots__ = ("_logs", "_names")

    def __init__(self, logs: Mapping[TopicPartition, Log]) -> None:
        """`logs`: all that are open."""
        self._logs = logs
        self._names: set[TopicPartition] = set()

    def add(self, name: TopicPartition) -> None:
        """Notes that a log may be imperfect from now on. May be called on any thread."""
        self._names.add(name)

    def opened(self, log: Log) -> None:
        if not _is_perfect(log):
            self.add(log.topic_partition)

    def __iter__(self) -> Iterator[tuple[TopicPartition, Log]]:
        for name in list(self._names):
            log = self._logs.get(name)
            if log is None or _is_perfect(log):
                self._names.discard(name)
            else:
                yield name, log


def _is_perfect(log: Log) -> bool:
    return log.damage is None and log.lack_note is None and not log.start_is_doubted
