"""Flushes by `FileSyncs`: which flushes they are, what closing and other work wait for, and errors that are final."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from odradek.config.topic import LogConfig
from odradek.runtime.ports import DiskFile, SyncGroup
from odradek.storage.files.lifetime import LogLifetime, LogSync
from odradek.storage.log.plain_flush import FlushOutcomes, begin_flushes

Lab = Any


class HeldGroup:
    """A `SyncGroup` that is over when the test ends it."""

    def __init__(self, files: Sequence[DiskFile], done: Callable[[SyncGroup], None]) -> None:
        self.files = list(files)
        self.errors: list[OSError | None] = [None] * len(files)
        self._done = done
        self._over = threading.Event()

    @property
    def is_over(self) -> bool:
        return self._over.is_set()

    def wait(self) -> None:
        self._over.wait(10)

    def error(self, index: int) -> OSError | None:
        return self.errors[index]

    def seconds(self, index: int) -> float:
        return 0.5 + index

    def end(self, *, position: int = 0, number: int = 0) -> None:
        """What the threads do; the loop has still to hear of it, by `deliver`."""
        if number:
            self.errors[position] = OSError(number, "planted", "/data/file")
        self._over.set()

    def deliver(self) -> None:
        self._done(self)


class HeldSyncs:
    """`FileSyncs` whose groups end when the test says so."""

    def __init__(self) -> None:
        self.groups: list[HeldGroup] = []
        self.refuses = False

    def begin(self, files: Sequence[DiskFile], done: Callable[[SyncGroup], None]) -> SyncGroup | None:
        if self.refuses:
            return None
        self.groups.append(HeldGroup(files, done))
        return self.groups[-1]

    def close(self) -> None:
        """Has nothing to close."""


@pytest.fixture
def syncs() -> HeldSyncs:
    return HeldSyncs()


def begun(syncs: HeldSyncs, *jobs: Any) -> FlushOutcomes | None:
    """Begins the flushes; returns the list that gets their outcomes, None if they need a thread."""
    outcomes: FlushOutcomes = []
    return outcomes if begin_flushes(jobs, syncs, outcomes.extend) else None


def flushed_log(lab: Lab, config: LogConfig | None = None) -> Any:
    """A log whose names and small files are durable already."""
    log = lab.open(config) if config is not None else lab.open()
    lab.append(log)
    lab.flush(log)
    lab.append(log)
    return log


def test_a_flush_of_records_alone_needs_no_thread_and_moves_the_offset_when_it_is_over(
    lab: Lab, syncs: HeldSyncs
) -> None:
    log = flushed_log(lab)
    job = log.flush_job()
    outcomes = begun(syncs, job)
    assert outcomes == []
    (group,) = syncs.groups
    assert len(group.files) == 1
    lab.append(log)  # belongs to the next flush
    group.end()
    group.deliver()
    assert outcomes == [(None, 0.5)]
    log.flushed(job)
    assert (log.flushed_offset, log.end_offset) == (2, 3)


def test_new_names_finished_segments_and_truncations_need_a_thread(
    lab: Lab, syncs: HeldSyncs, small: LogConfig
) -> None:
    log = lab.open(small)
    lab.append(log)
    assert begun(syncs, log.flush_job()) is None  # its name is new
    lab.flush(log)
    lab.fill(log, 30)
    assert log.segment_count > 1
    assert begun(syncs, log.flush_job()) is None
    lab.flush(log)
    lab.append(log)
    log.truncate_to(log.end_offset - 1)
    assert begun(syncs, log.flush_job()) is None
    assert syncs.groups == []
    lab.flush(log)
    lab.append(log)
    assert begun(syncs, log.flush_job()) == []


def test_a_group_begins_whole_or_not_at_all(lab: Lab, syncs: HeldSyncs) -> None:
    log = flushed_log(lab)
    job = log.flush_job()
    assert begun(syncs, job, job) is None  # the second finds the first one's lock
    syncs.refuses = True
    assert begun(syncs, job) is None
    assert syncs.groups == []
    job.run()  # no lock was left behind
    log.flushed(job)
    assert log.flushed_offset == 2


def test_work_under_way_on_a_thread_sends_the_flush_there_too(lab: Lab, syncs: HeldSyncs) -> None:
    log = flushed_log(lab)
    job = log.flush_job()
    entered, go_on = threading.Event(), threading.Event()

    def work() -> None:
        entered.set()
        go_on.wait(10)

    busy = threading.Thread(target=job.life.run, args=(work,))
    busy.start()
    assert entered.wait(10)
    assert begun(syncs, job) is None
    go_on.set()
    busy.join(10)
    assert begun(syncs, job) == []


@pytest.mark.parametrize("work", ["end", "run", "attempt"])
def test_closing_and_other_work_wait_for_a_sync_under_way_but_not_for_the_loop(
    lab: Lab, syncs: HeldSyncs, work: str
) -> None:
    log = flushed_log(lab)
    job = log.flush_job()
    outcomes = begun(syncs, job)
    ran: list[bool] = []
    acts = {
        "end": job.life.end,
        "run": lambda: job.life.run(lambda: ran.append(syncs.groups[0].is_over)),
        "attempt": lambda: job.life.attempt(lambda: ran.append(syncs.groups[0].is_over)),
    }
    assert not job.life.end_unless_busy()
    other = threading.Thread(target=acts[work])
    other.start()
    other.join(0.05)
    assert other.is_alive()
    syncs.groups[0].end()
    other.join(10)
    assert not other.is_alive()
    assert ran == ([] if work == "end" else [True])
    assert outcomes == []
    syncs.groups[0].deliver()
    assert outcomes == [(None, 0.5)]


@pytest.mark.parametrize("heard_first", ["loop", "thread"])
def test_a_failed_sync_is_final_for_the_loop_and_for_threads(
    lab: Lab, syncs: HeldSyncs, heard_first: str
) -> None:
    log = flushed_log(lab)
    job, later = log.flush_job(), log.flush_job()
    outcomes = begun(syncs, job)
    (group,) = syncs.groups
    group.end(number=errno.EIO)
    if heard_first == "loop":
        group.deliver()
    with pytest.raises(OSError, match=r"an earlier error was final: .*planted"):
        later.run()
    if heard_first == "thread":
        group.deliver()
    assert outcomes is not None
    ((error, _),) = outcomes
    assert error is not None
    assert (error.errno, error.filename) == (errno.EIO, "/data/file")
    assert begun(syncs, later) is None  # it belongs on a thread, which refuses it
    assert log.flushed_offset == 1


def test_a_close_syncs_nothing_again_after_a_failed_sync_that_the_loop_has_not_heard_of(
    lab: Lab, syncs: HeldSyncs
) -> None:
    """The kernel may have dropped the pages: a second sync would succeed, and the records be acknowledged."""
    log = flushed_log(lab)
    begun(syncs, log.flush_job())
    syncs.groups[0].end(number=errno.EIO)
    with pytest.raises(OSError, match=r"an earlier error was final: .*planted"):
        log.close()
    assert log.flushed_offset == 1


def test_a_file_rests_only_once_its_last_write_is_synced(lab: Lab, syncs: HeldSyncs) -> None:
    log = flushed_log(lab)
    job = log.flush_job()
    (writer,) = job.writers
    begun(syncs, job)
    assert not writer.rest()
    syncs.groups[0].end()
    syncs.groups[0].deliver()
    assert writer.rest()
    lab.append(log)
    assert not writer.rest()


def test_a_life_that_ended_or_waits_for_a_sync_begins_none() -> None:
    life = LogLifetime()
    assert life.hold()
    group = HeldGroup([], lambda _: None)
    group.errors.append(None)
    life.sync_begun(LogSync(group, 0))
    life.release()
    assert not life.hold()
    group.end()
    assert life.end_unless_busy()
    assert not life.hold()
