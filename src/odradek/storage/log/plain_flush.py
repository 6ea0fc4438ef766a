"""Flushes of which each only syncs the log file of an active segment: nearly all while records come in.

They need no thread of Python: `FileSyncs` syncs the files of several logs in one go. Everything else that a flush may have to
do, such as small files, new names, finished segments and truncations, is `FlushJob.run`'s, on a thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from odradek.runtime.ports import FileSyncs, SyncGroup
from odradek.storage.files.lifetime import LogLifetime, LogSync
from odradek.storage.files.writer import SegmentWriter
from odradek.storage.log.durability import FlushJob

FlushOutcomes = list[tuple[OSError | None, float]]
"""The error of each flush, if any, and the seconds that it took."""
_Synced = list[tuple[LogLifetime, SegmentWriter, int, LogSync]]
"""The logs of a group, the writer of each, its count of writes when the sync began, and the sync."""


def begin_flushes(jobs: Sequence[FlushJob], syncs: FileSyncs, done: Callable[[FlushOutcomes], None]) -> bool:
    """Begins the flushes of a group, and calls `done` on the loop when all are over: then the errors are
    final, as after `FlushJob.run`. Returns False, with nothing begun, if one of them needs a thread."""
    writers: list[SegmentWriter] = []
    for job in jobs:
        writer = job.only_writer
        if writer is None:
            return False
        writers.append(writer)
    holding: list[LogLifetime] = []
    try:
        for job in jobs:
            if not job.life.hold():
                return False
            holding.append(job.life)
        synced: _Synced = []
        group = syncs.begin([writer.log_file for writer in writers], partial(_ended, synced, done))
        if group is None:
            return False
        for position, (job, writer) in enumerate(zip(jobs, writers, strict=True)):
            sync = LogSync(group, position)
            job.life.sync_begun(sync)
            synced.append((job.life, writer, writer.write_count, sync))
        return True
    finally:
        for life in holding:
            life.release()


def _ended(synced: _Synced, done: Callable[[FlushOutcomes], None], group: SyncGroup) -> None:
    outcomes: FlushOutcomes = []
    for life, writer, write_count, sync in synced:
        error = life.sync_ended(sync)
        if error is None:
            writer.content_synced(write_count)
        outcomes.append((error, group.seconds(sync.position)))
    done(outcomes)
