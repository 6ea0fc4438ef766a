"""A bounded number of open files, shared by all logs of a broker. It belongs to the event loop.

Files that are no longer written are opened here for reading, each for the length of one call: so the least recently used one
may be closed at any time. Files that are written belong to their logs. A log that no one writes to lets its descriptors rest
when others need them: everything in them is durable, and they are opened again with the next use.

When nearly all writers have something that is not durable, they are crowded. Then the oldest ones are flushed ahead of need, a
writer rests as soon as its flush has ended, and appends that find no descriptor wait for that: see `wake` and `when_room`.
"""

from __future__ import annotations

import asyncio
import errno
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final, cast

from odradek.runtime.ports import Disk, DiskFile
from odradek.storage.files.at_hand import FileAtHand, ReadProgress
from odradek.storage.files.writer import SegmentWriter
from odradek.telemetry import events

_log = events.caused_by_peers("storage")
_UNBOUNDED: Final = 2**31 - 1
_PRUNED_LEAST: Final = 64
_URGENT_SHARE: Final = 16
"""The part of the descriptors for writing that only appends that cannot wait may take."""
_AHEAD_SHARE: Final = 8
"""Writers are flushed when less than this part of the descriptors is free, or about to be, until twice as much is."""
_CALM_REVIEWS: Final = 120
"""Reviews without a crowd after which the next one is logged again: about a minute."""


class CrowdedError(OSError):
    """No descriptor is free for a writer until another one is flushed."""

    def __init__(self) -> None:
        super().__init__(
            errno.EMFILE, "too many logs are written to at the same time: raise the limit of open files"
        )


class OpenFiles:
    """Opens files on demand, read-only, and keeps at most `limit` of them open, in addition to about
    `writers_max` files that are written: more only while all of these have bytes that are not durable yet."""

    def __init__(self, disk: Disk, limit: int = 1024, writers_max: int = _UNBOUNDED) -> None:
        self._disk = disk
        self._set_limits(limit, writers_max)
        self._files: OrderedDict[str, DiskFile] = OrderedDict()
        self._writers: OrderedDict[SegmentWriter, int] = OrderedDict()
        """Writers that are awake, in the order in which they are checked, each with its `write_count` at the last check."""
        self._crowding: dict[SegmentWriter, None] = {}
        """Writers whose descriptors others need, and that cannot rest before they are synced."""
        self._asked: dict[SegmentWriter, None] = {}
        """Writers that were or will be drained as crowding ones, and whose flush has not ended."""
        self._room: int | None = None
        """Descriptors that writers may still take, while they are crowded; None while they are not."""
        self._waiting: deque[asyncio.Future[None]] = deque()
        """Appends that wait for a descriptor."""
        self._calm_reviews = _CALM_REVIEWS
        """Reviews that found writers not crowded since an append was refused."""
        self.on_crowding: Callable[[], None] = _ignore
        """Called when there are writers to flush: see `drain_crowding`."""
        self._prune_at = min(self._writers_max - self._writers_max // _AHEAD_SHARE, _PRUNED_LEAST)
        self._beside: ReadProgress | None = None

    def _set_limits(self, limit: int, writers_max: int) -> None:
        self._limits = limit, writers_max
        self._limit = max(limit, 1)
        self._urgent_count = writers_max // _URGENT_SHARE
        self._writers_max = max(writers_max - self._urgent_count, 1)
        self._room_ahead = max(1, 2 * self._writers_max // _AHEAD_SHARE)
        """The descriptors that flushes provide before appends need them."""

    def resize(self, limit: int, writers_max: int) -> None:
        """Changes the limits. Files beyond them are closed at once, or as soon as they are flushed."""
        if self._limits == (limit, writers_max):
            return
        self._set_limits(limit, writers_max)
        while len(self._files) > self._limit:
            self._files.popitem(last=False)[1].close()
        if self._room is None:
            self._check_room(keep=None)
        self.review_crowding()

    @contextmanager
    def only_at_hand(self, beside: ReadProgress | None) -> Iterator[None]:
        """Makes reads inside the block raise `NotAtHand` if another thread should fetch their bytes first; None changes
        nothing. The block must not await."""
        before, self._beside = self._beside, beside
        try:
            yield
        finally:
            self._beside = before

    def for_reading(self, file: DiskFile, path: str) -> DiskFile:
        """Returns the file, or a view that reads cached bytes only, while nothing else may be read."""
        if self._beside is None:
            return file
        return cast("DiskFile", FileAtHand(file, path, self._beside))  # who reads does not write

    def expect(self, file: DiskFile, length: int, position: int) -> None:
        """Announces that all of these bytes are read soon, so that they are fetched in one go where only
        cached bytes may be read."""
        if isinstance(file, FileAtHand):
            file.expect(length, position)

    @property
    def beside(self) -> ReadProgress | None:
        """The results of other threads for the read under way; None if it may not use any."""
        return self._beside

    def __len__(self) -> int:
        return len(self._files)

    @property
    def writer_file_count(self) -> int:
        """Files open for writing."""
        return sum(writer.open_file_count for writer in self._writers)

    def get(self, path: str) -> DiskFile:
        """Returns the open file at `path`; FileNotFoundError when there is none."""
        file = self._files.get(path)
        if file is not None:
            self._files.move_to_end(path)
            return self.for_reading(file, path)
        while len(self._files) >= self._limit:
            self._files.popitem(last=False)[1].close()
        file = self._files[path] = self._disk.open(path, write=False)
        return self.for_reading(file, path)

    def wake(self, writer: SegmentWriter, *, is_urgent: bool = False) -> None:
        """Makes resting files usable. Raises CrowdedError while no others can rest for them: each of those has something that
        is not durable yet. Wait for `when_room` then, and try again. Urgent calls may take some descriptors more.
        """
        if self._room is None and len(self._writers) >= self._prune_at:
            self._check_room(keep=writer)
        if self._room is not None:
            self._flush_ahead()
            if self._room <= 0 and not self._asked:  # no flush would make room: others closed their files
                self._room = self._writers_max - self.writer_file_count
            if self._room <= (-self._urgent_count if is_urgent else 0):
                self._report()
                raise CrowdedError
        self.awake(writer)

    def awake(self, writer: SegmentWriter) -> None:
        """Registers files that a log holds open for writing. Makes other writers rest where there are too many."""
        writer.resting = False
        self._writers[writer] = writer.write_count
        if self._room is not None:
            self._room -= 1
        elif len(self._writers) >= self._prune_at:
            self._check_room(keep=writer)

    def opened(self, writer: SegmentWriter) -> None:
        """Registers the files of a log that was opened and not written to. They rest at once where writers are crowded."""
        self.awake(writer)
        if self._room is not None and self._room < 0 and writer.rest():
            del self._writers[writer]
            self._room += 1

    def _check_room(self, keep: SegmentWriter | None) -> None:
        room = self._writers_max - self._make_room(keep)
        if room <= self._writers_max // _AHEAD_SHARE:
            self._room = room

    # ---- crowded writers ---------------------------------------------------------------------------------------------

    def when_room(self) -> asyncio.Future[None]:
        """Returns a future that is done when a `wake` that was refused may be tried again: it may be refused once more."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._room is None:
            waiter.set_result(None)
        else:
            self._waiting.append(waiter)
        return waiter

    def drain_crowding(self) -> dict[SegmentWriter, None]:
        """Returns the writers to flush because others need their descriptors, and forgets them."""
        crowding, self._crowding = self._crowding, {}
        return crowding

    def synced(self, writers: Iterable[SegmentWriter]) -> None:
        """Notes that a flush of these writers has ended. While writers are crowded they rest now, if they were not written to
        meanwhile, and appends that wait get their descriptors."""
        if self._room is None:
            return
        for writer in writers:
            self._asked.pop(writer, None)
            if writer not in self._writers:
                continue
            if (freed_count := self._released(writer)) > 0:
                self._room += freed_count
            else:
                self._writers.move_to_end(writer)
        self._admit()

    def _released(self, writer: SegmentWriter) -> int:
        """Lets the writer rest, and returns how many descriptors that frees; 0 where it cannot rest.

        A sealed segment whose flush has ended is closed soon.
        """
        held = writer.open_file_count
        if not (writer.closed or writer.durable or writer.rest()):
            return 0
        del self._writers[writer]
        self._asked.pop(writer, None)
        return max(1, held - (0 if writer.durable else writer.open_file_count))

    def review_crowding(self) -> None:
        """Counts the descriptors again while writers are crowded: logs that were closed, and flushes that failed, announce
        nothing. It goes over all writers, so call it a few times a second at most."""
        if self._room is None:
            self._calm_reviews += 1
            return
        self._asked.clear()
        self._waiting = deque(waiter for waiter in self._waiting if not waiter.done())
        self._room = self._writers_max - self._make_room(keep=None)
        self._flush_ahead()
        self._admit()

    def _report(self) -> None:
        if self._calm_reviews >= _CALM_REVIEWS:
            _log.warning("writers_crowded", writers_max=self._writers_max)
        self._calm_reviews = 0

    def _admit(self) -> None:
        """Lets as many waiting appends try again as there is room for. Without any, and with room ahead, the crowd is over."""
        assert self._room is not None
        count = self._room
        while self._waiting and count > 0:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                count -= 1
        if not self._waiting and self._room >= self._room_ahead:
            self._room = None
            self._asked.clear()
            self._crowding.clear()
            self._plan_next_look(self.writer_file_count)

    def _flush_ahead(self) -> None:
        """Has the oldest writers flushed, so that there are descriptors before an append needs them."""
        assert self._room is not None
        expected = self._room + len(self._asked)
        if expected >= max(1, self._writers_max // _AHEAD_SHARE):
            return
        for writer in list(self._writers):
            if expected >= self._room_ahead:
                break
            if (freed_count := self._released(writer)) > 0:
                self._room += freed_count
                expected += freed_count
            elif writer not in self._asked:
                self._asked[writer] = self._crowding[writer] = None
                expected += 1
        if self._crowding:
            self.on_crowding()

    def _make_room(self, keep: SegmentWriter | None) -> int:
        """Forgets closed writers; of the others, those that were not written to since the last check rest first. Returns the
        count of files that are open for writing then.

        A look costs time for every writer, so it counts their files once."""
        for writer in [writer for writer in self._writers if writer.closed]:
            del self._writers[writer]
        open_count = self.writer_file_count
        rested_count = 0
        excess = open_count + 1 - self._writers_max + self._writers_max // _AHEAD_SHARE
        if excess > 0:
            # Some more than must be, so that not every single opening has to look.
            rested_count = self._rest(excess + self._writers_max // 4, keep)
        self._plan_next_look(open_count - rested_count)
        return open_count - rested_count

    def _rest(self, wanted_count: int, keep: SegmentWriter | None) -> int:
        """Closes this many files, or as many as can rest; returns the count of those that were closed."""
        rested_count = 0
        for is_last_look in (False, True):
            for writer, seen in list(self._writers.items()):
                if rested_count >= wanted_count:
                    return rested_count
                if writer is keep:
                    self._writers.move_to_end(writer)
                    continue
                held = writer.open_file_count
                if (is_last_look or writer.write_count == seen) and writer.rest():
                    del self._writers[writer]
                    rested_count += held - writer.open_file_count
                else:
                    self._writers[writer] = writer.write_count
                    self._writers.move_to_end(writer)
        return rested_count

    def _plan_next_look(self, open_count: int) -> None:
        room = self._writers_max - open_count  # of a third: each may open its indexes, too
        self._prune_at = len(self._writers) + max(0, min(room // 3, max(len(self._writers), _PRUNED_LEAST)))

    # ---- files that are renamed, removed or rewritten ----------------------------------------------------------------

    def forget(self, path: str) -> None:
        """Closes `path` if it is open: it is about to be renamed, removed or rewritten."""
        file = self._files.pop(path, None)
        if file is not None:
            file.close()

    def forget_under(self, directory: str) -> None:
        """Closes everything below `directory`."""
        for path in [path for path in self._files if path.startswith(f"{directory}/")]:
            self.forget(path)

    def close(self) -> None:
        for file in self._files.values():
            file.close()
        self._files.clear()


def _ignore() -> None:
    """Does nothing."""
