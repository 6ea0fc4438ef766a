# cython: language_level=3
# The types here are C's: Cython checks them, mypy and ruff cannot see those that `_sync_threads.pxd` declares.
# mypy: ignore-errors
# ruff: noqa: F821
"""Threads that sync files and know nothing of Python: Cython in pure-Python mode. `real_syncs.py` is what others use.

How it works. A `DescriptorGroup` holds the numbers of some descriptors in plain C. `begin` queues it and wakes a thread,
which calls fdatasync(2) for each and notes errno and duration. Where there are several files it starts to write all of them
first, so that the file system commits its journal once and not for each file. The thread puts a group that is over into the
queue of those that ended and writes the event descriptor, unless that was written already since the loop last read it. The
loop reads it, and `ended` returns all of them. No step needs the interpreter's lock: a sync never waits for a turn of the
interpreter, and the loop never for a thread that has one.

One mutex guards the queues; it is held for a few instructions, and never across a system call that waits. `under_way` keeps a
group alive until `ended` has returned it, and its `descriptors` stay open meanwhile. A process that was forked off has none
of the threads: it can begin nothing, and leaves their state alone.
"""

from __future__ import annotations

import os

import cython
from cython.cimports.libc.errno import EAGAIN, EINTR, EINVAL, ENOMEM, ENOSYS, EOPNOTSUPP, EPERM, ESPIPE, errno
from cython.cimports.libc.string import memset
from cython.cimports.odradek.runtime.system_calls import (
    CLOCK_MONOTONIC,
    EFD_CLOEXEC,
    EFD_NONBLOCK,
    SIG_SETMASK,
    SYNC_FILE_RANGE_WRITE,
    clock_gettime,
    close,
    eventfd,
    fdatasync,
    getpid,
    pthread_cond_broadcast,
    pthread_cond_init,
    pthread_cond_signal,
    pthread_cond_wait,
    pthread_create,
    pthread_join,
    pthread_mutex_init,
    pthread_mutex_lock,
    pthread_mutex_unlock,
    pthread_sigmask,
    read,
    sigfillset,
    sigset_t,
    sync_file_range,
    timespec,
    write,
)

GROUP_FILES_MAX = 16
THREADS_MAX = 16


# --- what the threads do: no Python ---


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _append(queue: cython.pointer(Queue), work: cython.pointer(Work)) -> cython.void:
    work.next = cython.NULL
    if queue.last == cython.NULL:
        queue.first = work
    else:
        queue.last.next = work
    queue.last = work


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _pop(queue: cython.pointer(Queue)) -> cython.pointer(Work):
    work: cython.pointer(Work) = queue.first
    queue.first = work.next
    if queue.first == cython.NULL:
        queue.last = cython.NULL
    return work


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _start_writing(descriptor: cython.int) -> cython.int:
    """Starts to write the file without a wait. Returns the errno, which a sync need not report again: ext4 drops what it cannot
    find blocks for, by EUCLEAN, EROFS and others. 0 if nothing is lost: it cannot be done, or is left to the sync."""
    if sync_file_range(descriptor, 0, 0, SYNC_FILE_RANGE_WRITE) == 0:
        return 0
    if errno in (EINVAL, ESPIPE, ENOSYS, EPERM, EOPNOTSUPP, EAGAIN, ENOMEM, EINTR):
        return 0
    return errno


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _sync(work: cython.pointer(Work)) -> cython.void:
    before: timespec
    after: timespec
    index: cython.int
    for index in range(work.count):
        work.errors[index] = _start_writing(work.descriptors[index]) if work.count > 1 else 0
    for index in range(work.count):
        clock_gettime(CLOCK_MONOTONIC, cython.address(before))
        while fdatasync(work.descriptors[index]) != 0:
            if errno != EINTR:
                work.errors[index] = errno
                break
        clock_gettime(CLOCK_MONOTONIC, cython.address(after))
        work.nanoseconds[index] = (
            cython.cast(cython.longlong, after.tv_sec - before.tv_sec) * 1_000_000_000
            + after.tv_nsec
            - before.tv_nsec
        )


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _serve(argument: cython.p_void) -> cython.p_void:
    """Runs on each thread until the pool closes and has no more work."""
    pool: cython.pointer(Pool) = cython.cast(cython.pointer(Pool), argument)
    work: cython.pointer(Work)
    must_signal: cython.bint
    signal: cython.ulonglong = 1
    pthread_mutex_lock(cython.address(pool.mutex))
    while True:
        while pool.waiting.first == cython.NULL and not pool.is_closing:
            pool.idle_count += 1
            pthread_cond_wait(cython.address(pool.has_work), cython.address(pool.mutex))
            pool.idle_count -= 1
        if pool.waiting.first == cython.NULL:
            break
        work = _pop(cython.address(pool.waiting))
        pool.waiting_count -= 1
        pthread_mutex_unlock(cython.address(pool.mutex))
        _sync(work)
        pthread_mutex_lock(cython.address(pool.mutex))
        work.is_over = True
        _append(cython.address(pool.ended), work)
        must_signal = not pool.is_signalled
        pool.is_signalled = True
        if pool.waiter_count > 0:
            pthread_cond_broadcast(cython.address(pool.has_ended))
        if must_signal:  # outside of the mutex, which the loop takes as soon as it is woken
            pthread_mutex_unlock(cython.address(pool.mutex))
            write(pool.event_descriptor, cython.address(signal), 8)
            pthread_mutex_lock(cython.address(pool.mutex))
    pthread_mutex_unlock(cython.address(pool.mutex))
    return cython.NULL


# --- what the event loop does ---


@cython.cclass
class DescriptorGroup:
    """Files that are synced one after another; `done` is the caller's own. Implements the port `SyncGroup`."""

    def __cinit__(self, descriptors: list, done):
        index: cython.int
        if not 0 < len(descriptors) <= GROUP_FILES_MAX:
            raise ValueError(f"a group has 1 to {GROUP_FILES_MAX} files, not {len(descriptors)}")
        memset(cython.address(self.work), 0, cython.sizeof(Work))
        self.work.count = len(descriptors)
        for index in range(self.work.count):
            self.work.descriptors[index] = descriptors[index].number
        self.descriptors = descriptors
        self.done = done

    @property
    def is_over(self):
        """Whether all files were synced, or could not be."""
        is_over: cython.bint
        if self.threads is None:
            return False
        pool: cython.pointer(Pool) = cython.address(self.threads.pool)
        pthread_mutex_lock(cython.address(pool.mutex))
        is_over = self.work.is_over
        pthread_mutex_unlock(cython.address(pool.mutex))
        return is_over

    def wait(self):
        """Waits until it is over, on any thread, with the interpreter's lock released; ValueError if it never began."""
        if self.threads is None:
            raise ValueError("the group was not begun")
        pool: cython.pointer(Pool) = cython.address(self.threads.pool)
        with cython.nogil:
            pthread_mutex_lock(cython.address(pool.mutex))
            pool.waiter_count += 1
            while not self.work.is_over:
                pthread_cond_wait(cython.address(pool.has_ended), cython.address(pool.mutex))
            pool.waiter_count -= 1
            pthread_mutex_unlock(cython.address(pool.mutex))

    def finish(self):
        """Calls `done`, and forgets it: it may hold this group."""
        done = self.done
        self.done = None
        done(self)

    def error(self, index: cython.int):
        """Returns why the sync of a file failed; None if it did not."""
        if not 0 <= index < self.work.count:
            raise IndexError(f"the group has {self.work.count} files")
        number = self.work.errors[index]
        if number == 0:
            return None
        return OSError(number, os.strerror(number), self.descriptors[index].path)

    def seconds(self, index: cython.int):
        """Returns how long the sync of a file took."""
        if not 0 <= index < self.work.count:
            raise IndexError(f"the group has {self.work.count} files")
        return self.work.nanoseconds[index] * 1e-9


@cython.cclass
class SyncThreads:
    """At most `threads_max` threads, which start when they are first needed. Used on one thread of Python at a time."""

    def __cinit__(self, threads_max: cython.int):
        if not 0 < threads_max <= THREADS_MAX:
            raise ValueError(f"there are 1 to {THREADS_MAX} threads, not {threads_max}")
        memset(cython.address(self.pool), 0, cython.sizeof(Pool))
        self.thread_count = 0
        self.threads_max = threads_max
        self.process = getpid()
        self.under_way = set()
        self.is_closed = True
        self.pool.event_descriptor = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)
        if self.pool.event_descriptor < 0:
            raise OSError(errno, os.strerror(errno))
        pthread_mutex_init(cython.address(self.pool.mutex), cython.NULL)
        pthread_cond_init(cython.address(self.pool.has_work), cython.NULL)
        pthread_cond_init(cython.address(self.pool.has_ended), cython.NULL)
        self.is_closed = False

    def __dealloc__(self):
        self.end()

    def fileno(self):
        """Returns the descriptor that is readable when groups have ended."""
        return self.pool.event_descriptor

    def begin(self, group: DescriptorGroup):
        """Queues the group. Returns False in a process that was forked off, after `close`, and where no thread starts."""
        if self.is_closed or self.process != getpid():
            return False
        if group.threads is not None:
            raise ValueError("the group was begun before")
        pthread_mutex_lock(cython.address(self.pool.mutex))
        needs_thread: cython.bint = self.pool.waiting_count >= self.pool.idle_count
        pthread_mutex_unlock(cython.address(self.pool.mutex))
        if (
            needs_thread
            and self.thread_count < self.threads_max
            and not self.start()
            and self.thread_count == 0
        ):
            return False
        self.under_way.add(group)
        group.threads = self
        group.work.group = cython.cast(cython.p_void, group)
        pthread_mutex_lock(cython.address(self.pool.mutex))
        _append(cython.address(self.pool.waiting), cython.address(group.work))
        self.pool.waiting_count += 1
        has_idle: cython.bint = self.pool.idle_count > 0
        pthread_mutex_unlock(cython.address(self.pool.mutex))
        if has_idle:  # outside of the mutex, which the woken thread takes
            pthread_cond_signal(cython.address(self.pool.has_work))
        return True

    @cython.cfunc
    @cython.exceptval(check=False)
    def start(self) -> cython.bint:
        """Starts a thread that gets no signals: they are for Python's main thread."""
        every: sigset_t
        before: sigset_t
        sigfillset(cython.address(every))
        pthread_sigmask(SIG_SETMASK, cython.address(every), cython.address(before))
        error: cython.int = pthread_create(
            cython.address(self.threads[self.thread_count]),
            cython.NULL,
            _serve,
            cython.cast(cython.p_void, cython.address(self.pool)),
        )
        pthread_sigmask(SIG_SETMASK, cython.address(before), cython.NULL)
        if error != 0:
            return False
        self.thread_count += 1
        return True

    def ended(self):
        """Returns the groups that ended since the last call, in the order of their ends."""
        groups: list = []
        signal: cython.ulonglong = 0
        work: cython.pointer(Work)
        if self.is_closed or self.process != getpid():
            return groups
        read(self.pool.event_descriptor, cython.address(signal), 8)
        pthread_mutex_lock(cython.address(self.pool.mutex))
        work = self.pool.ended.first
        self.pool.ended.first = self.pool.ended.last = cython.NULL
        self.pool.is_signalled = False
        pthread_mutex_unlock(cython.address(self.pool.mutex))
        while work != cython.NULL:
            group = cython.cast(object, work.group)
            work = work.next
            groups.append(group)
            self.under_way.discard(group)
        return groups

    def close(self):
        """Waits for everything that was begun, ends the threads, and closes the descriptor. Idempotent."""
        self.end()

    @cython.cfunc
    @cython.exceptval(check=False)
    def end(self) -> cython.void:
        index: cython.int
        if self.is_closed:
            return
        self.is_closed = True
        if self.process == getpid():
            with cython.nogil:
                pthread_mutex_lock(cython.address(self.pool.mutex))
                self.pool.is_closing = True
                pthread_cond_broadcast(cython.address(self.pool.has_work))
                pthread_mutex_unlock(cython.address(self.pool.mutex))
                for index in range(self.thread_count):
                    pthread_join(self.threads[index], cython.NULL)
        close(self.pool.event_descriptor)
        self.pool.event_descriptor = -1
        self.under_way.clear()
