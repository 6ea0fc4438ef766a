"""The end of a broker's logs: each is made durable and closed, then their directories are marked as left cleanly."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from typing import Final

from odradek.model.errors import KafkaError
from odradek.model.ids import TopicPartition
from odradek.runtime.ports import Offload
from odradek.storage.directories.checkpointing import Checkpointing
from odradek.storage.directories.placement import LogDirPlacement
from odradek.storage.log.log import Log
from odradek.telemetry import events

log = events.get("storage")

_CLOSED_AT_ONCE: Final = 4
_CLOSED_IN_A_ROW: Final = 64


class LogsShutdown:
    """Closes a broker's logs and directories: `close_logs` on the event loop, then `close`, which blocks."""

    def __init__(
        self,
        offload: Offload,
        placement: LogDirPlacement,
        logs: Mapping[TopicPartition, Log],
        checkpoints: Checkpointing,
    ) -> None:
        self._offload = offload
        self._placement = placement
        self._logs = logs
        self._checkpoints = checkpoints

    async def close_logs(self) -> None:
        """Closes several logs at a time: their syncs share the disk's work."""
        waiting = deque(self._logs)
        await asyncio.gather(*(self._close_waiting(waiting) for _ in range(_CLOSED_AT_ONCE)))

    async def _close_waiting(self, waiting: deque[TopicPartition]) -> None:
        while waiting:
            name = waiting.popleft()
            opened = self._logs[name]
            clean, done = opened.failed is None, None
            try:
                await self._let_files_follow(opened)
                job = opened.jobs.begin_close()
                if job is not None:
                    await self._offload.run(job.run)
                    done = job
                elif not opened.abandon_now():
                    await self._offload.run(opened.abandon)
            except (OSError, KafkaError) as error:
                await self._offload.run(opened.abandon)
                clean = False
                log.error("log_not_closed", partition=name, error=error)
            opened.jobs.end_close(done)
            if clean:
                self._placement.closed_cleanly(name)
            if len(waiting) % _CLOSED_IN_A_ROW == 0:
                await asyncio.sleep(0)

    async def _let_files_follow(self, opened: Log) -> None:
        """Truncates the files of a log that was truncated in memory, before the log is closed."""
        if opened.awaits_truncation and (job := opened.flush_job()) is not None:
            await self._offload.run(job.run)
            opened.flushed(job)

    def close(self) -> None:
        """Closes what is still open, writes the checkpoints, marks the directories whose logs are all closed cleanly."""
        for name in self._logs:
            if not self._logs[name].closed:
                self._close_log(name)
        for directory in self._placement.online():
            try:
                directory.write(self._checkpoints.of(directory))
                self._checkpoints.forget_truncations(directory)
                if self._placement.is_clean(directory):
                    directory.mark_clean()
            except OSError as error:
                log.error("log_directory_not_closed", path=directory.path, error=error)

    def _close_log(self, name: TopicPartition) -> None:
        opened = self._logs[name]
        try:
            clean = opened.failed is None
            opened.close()
        except (OSError, KafkaError) as error:
            log.error("log_not_closed", partition=name, error=error)
        else:
            if clean:
                self._placement.closed_cleanly(name)
