"""A bounded number of open files, shared by all logs of a broker. It belongs to the event loop.

Files that are no longer written are opened here for reading, each for the length of one call: so the least recently used one
may be closed at any time. Files that are written belong to their logs. A log that no one writes to lets its descriptors rest
when others need them: everything in them is durable, and they are opened again with the next use.
"""

from __future__ import annotations

import errno
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, cast

from odradek.runtime.ports import Disk, DiskFile
from odradek.storage.files.at_hand import FileAtHand, ReadProgress
from odradek.storage.files.writer import SegmentWriter

_UNBOUNDED: Final = 2**31 - 1
_PRUNED_LEAST: Final = 64


class OpenFiles:
    """Opens files on demand, read-only, and keeps at most `limit` of them open, beside those of about `writers_max` files that
    are written: more only while all of those have something that is not durable yet."""

    def __init__(self, disk: Disk, limit: int = 1024, writers_max: int = _UNBOUNDED) -> None:
        self._disk = disk
        self._limit = max(limit, 1)
        self._writers_max = max(writers_max, 1)
        self._files: OrderedDict[str, DiskFile] = OrderedDict()
        self._writers: OrderedDict[SegmentWriter, int] = OrderedDict()
        """Writers that are awake, in the order in which they are checked, each with its `write_count` at the last check."""
        self._crowding: dict[SegmentWriter, None] = {}
        """Writers whose descriptors others need, and that cannot rest before they are synced."""
        self._prune_at = min(self._writers_max, _PRUNED_LEAST)
        self._beside: ReadProgress | None = None

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
        """Returns the file, or a view that reads only what is at hand while nothing else may be read."""
        if self._beside is None:
            return file
        return cast("DiskFile", FileAtHand(file, path, self._beside))  # who reads does not write

    def expect(self, file: DiskFile, length: int, position: int) -> None:
        """Announces that all of these bytes are read soon, so that they are fetched in one go where only bytes at hand may
        be read."""
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

    def wake(self, writer: SegmentWriter) -> None:
        """Makes resting files usable. Raises OSError (EMFILE) while no others can rest for them: each of those has
        something that is not durable yet, and can rest once it is flushed: see `drain_crowding`."""
        if len(self._writers) >= self._prune_at:
            self._make_room(keep=writer)
            if self.writer_file_count >= self._writers_max:
                raise OSError(errno.EMFILE, "too many logs are written to at the same time")
        self.awake(writer)

    def awake(self, writer: SegmentWriter) -> None:
        """Registers files that a log holds open for writing. Makes other writers rest where there are too many."""
        writer.resting = False
        self._writers[writer] = writer.write_count
        if len(self._writers) >= self._prune_at:
            self._make_room(keep=writer)

    def drain_crowding(self) -> dict[SegmentWriter, None]:
        """Returns the writers to flush because others need their descriptors, and forgets them."""
        crowding, self._crowding = self._crowding, {}
        return crowding

    def _make_room(self, keep: SegmentWriter) -> None:
        """Forgets closed writers; of the others, those that were not written to since the last check rest first."""
        for writer in [writer for writer in self._writers if writer.closed]:
            del self._writers[writer]
        excess = self.writer_file_count + 1 - self._writers_max
        if excess > 0:
            # Some more than must be, so that not every single opening has to look.
            excess += self._writers_max // 4
            for is_last_look in (False, True):
                for writer, seen in list(self._writers.items()):
                    if excess <= 0:
                        break
                    if writer is keep:
                        continue
                    held = writer.open_file_count
                    if (is_last_look or writer.write_count == seen) and writer.rest():
                        del self._writers[writer]
                        excess -= held - writer.open_file_count
                    else:
                        self._writers[writer] = writer.write_count
                        self._writers.move_to_end(writer)
            for writer in self._writers:
                if excess <= 0:
                    break
                if writer is not keep:
                    self._crowding[writer] = None
                    excess -= writer.open_file_count
        room = self._writers_max - self.writer_file_count  # of a third: each may open its indexes, too
        self._prune_at = len(self._writers) + max(0, min(room // 3, max(len(self._writers), _PRUNED_LEAST)))

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
