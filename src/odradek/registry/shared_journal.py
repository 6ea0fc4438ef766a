"""The journal's file as the processes of one machine share it.

`registry.journal` holds the commits. `registry.lock` is what a writer locks, and its content (the head) has
the position up to which the journal is durable, and the number of the rewriting that it belongs to: readers
go by the head alone and need no lock. A writer, under the lock, appends, syncs, and only then moves the head.
Bytes after the head were left by a writer that was killed: whole lines are written again and kept (the power
may have taken the head of a commit that was acknowledged), a torn one is cut. Rewriting the journal makes the
head invalid, replaces the file, and publishes a head of the next generation; there readers that have the old
file open learn of it. The head itself is never synced: after a power cut it may be lower than the journal's
end, and then the journal counts. It is higher only if the journal lost what was durable: that is refused.

Methods that block are called on a thread; they leave the state alone and return `News`, which `accept` takes in on the loop,
so that no one there sees half a commit. Those that write need the lock.
"""

from __future__ import annotations

import posixpath
import zlib
from typing import Final, NamedTuple

from odradek.registry.journal import JournalState, body_of, lines_of
from odradek.registry.port import RegistryError
from odradek.registry.space_reserve import SpaceReserve
from odradek.registry.tree import changes_between
from odradek.runtime.ports import DirectoryLock, Disk, DiskFile
from odradek.telemetry import events

JOURNAL_NAME: Final = "registry.journal"
LOCK_NAME: Final = "registry.lock"
SLACK_BYTES: Final = 64 * 1024
_HEAD_LENGTH: Final = 8 + 1 + 16 + 1 + 16
_NO_HEAD: Final = bytes(_HEAD_LENGTH)
_log = events.get("registry")


class Head(NamedTuple):
    """The journal's durable part: which rewriting of the file it is, and up to which byte it is durable."""

    generation: int
    length: int


class News(NamedTuple):
    """The part of the journal after, or instead of, the state."""

    bodies: list[bytes]
    """The bodies of the lines that follow."""
    position: int
    """The position at which these lines end."""
    file: DiskFile | None = None
    """The journal's file from now on, if it is another than before."""
    state: JournalState | None = None
    """The state before `bodies`, if it is another than the present one."""
    generation: int | None = None
    """The number under which the state was rewritten."""
    snapshot_length: int = 0
    """The length of the first line of `file`, if that is a whole state."""


class SharedJournal:
    """The file, and the state up to `position`: always lines that are durable."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self.path = posixpath.join(directory, JOURNAL_NAME)
        self.lock_path = posixpath.join(directory, LOCK_NAME)
        self.state = JournalState()
        self.position = 0
        self.is_loaded = False
        self.touched: dict[str, None] = {}
        """Paths that `accept` changed, and whose watchers have not been called."""
        self.reserve: Final = SpaceReserve(disk, directory)
        self._disk = disk
        self._directory = directory
        self._head_file = disk.open(self.lock_path, create=True)
        self._file: DiskFile | None = None
        self._rewrite_at = SLACK_BYTES

    def close(self) -> None:
        self._head_file.close()
        if self._file is not None:
            self._file.close()

    def lock(self) -> DirectoryLock:
        """Takes the lock. Raises BlockingIOError while another process writes."""
        return self._disk.lock_file(self.lock_path)

    def accept(self, news: News) -> None:
        """Applies what was read or written. Runs on the event loop, where the state is read."""
        if news.state is not None:
            if self.is_loaded:  # before, no one has read anything that could have changed
                self.touched.update(dict.fromkeys(changes_between(self.state.tree, news.state.tree)))
            self.state = news.state
        if news.generation is not None:
            self.state.generation = news.generation
        if news.file is not None:
            if self._file is not None:
                self._file.close()
            self._file = news.file
            self.is_loaded = True
            self._rewrite_at = max(SLACK_BYTES, 2 * news.snapshot_length)
        for body in news.bodies:
            self.touched.update(dict.fromkeys(self.state.apply(body)))
        self.position = news.position

    # -- reading ---------------------------------------------------------------------------------------------

    def head(self) -> Head | None:
        """Returns the head; None while the journal is being rewritten, after a power cut, and before the first commit."""
        content = self._head_file.pread(_HEAD_LENGTH, 0)
        crc, _, body = content.partition(b" ")
        if len(content) != _HEAD_LENGTH or crc != b"%08x" % zlib.crc32(body):
            return None
        generation, _, length = body.partition(b" ")
        return Head(generation=int(generation, 16), length=int(length, 16))

    def is_current(self, head: Head | None) -> bool:
        """Returns whether the state is complete up to the head."""
        return self.is_loaded and head == Head(generation=self.state.generation, length=self.position)

    def read(self) -> News | None:
        """Returns the news up to the head, or None when the lock is needed to find out."""
        head = self.head()
        if head is None:
            return None
        if self.is_loaded and head.generation == self.state.generation and head.length >= self.position:
            content = self._opened().pread(head.length - self.position, self.position)
            bodies, length = lines_of(content, self.path, position=self.position)
            news = News(bodies=bodies, position=self.position + length)
            return news if news.position == head.length else None
        file, news = self._read_whole(head.length)
        if news.state is not None and (news.state.generation, news.position) == (
            head.generation,
            head.length,
        ):
            return news
        file.close()  # it is being replaced just now
        return None

    def _read_whole(self, length: int | None) -> tuple[DiskFile, News]:
        """Returns the file that has the journal's name now, up to `length` if it is known."""
        file = self._disk.open(self.path, create=True)
        try:
            content = file.pread(file.length() if length is None else length, 0)
            bodies, read_length = lines_of(content, self.path)
        except (OSError, RegistryError):
            file.close()
            raise
        state = JournalState()
        for body in bodies:
            state.apply(body)
        snapshot_length = content.index(b"\n") + 1 if state.generation else 0
        return file, News(
            bodies=[], position=read_length, file=file, state=state, snapshot_length=snapshot_length
        )

    def _opened(self) -> DiskFile:
        if self._file is None:
            raise RegistryError(f"{self.path} was not read yet")
        return self._file

    # -- writing ---------------------------------------------------------------------------------------------

    def is_settled(self) -> bool:
        """Returns whether the state is complete and the file ends with it. Needs the lock."""
        return self.is_current(self.head()) and self._opened().length() == self.position

    def settle(self) -> News:
        """Reads the whole journal and repairs what a writer that was killed has left. Needs the lock."""
        news = self.read()
        is_headless = news is None
        if (
            news is None
        ):  # the head is of no use: the name leads to the journal, and all that reads is part of it
            file, news = self._read_whole(None)
            if (problem := self._lacking(news)) is not None:
                file.close()
                raise RegistryError(problem)
        file = news.file or self._opened()
        excess = file.length() - news.position
        if excess == 0 and not is_headless:
            return news
        content = file.pread(excess, news.position)
        bodies, length = lines_of(content, self.path, position=news.position)
        if length:
            file.pwrite(content[:length], news.position)
        if length < excess:
            _log.warning("registry_tail_cut", path=self.path, bytes=excess - length)
            file.truncate(news.position + length)
        file.sync()
        if is_headless:
            self._disk.sync_directory(self._directory)
        self._publish((news.state or self.state).generation, news.position + length)
        return news._replace(bodies=[*news.bodies, *bodies], position=news.position + length)

    def _lacking(self, all_there_is: News) -> str | None:
        """Returns the problem when the file cannot be read as far as the head, which is durable; no crash does that. None if
        it can."""
        head, state = self.head(), all_there_is.state
        if head is None or state is None or head <= (state.generation, all_there_is.position):
            return None
        return (
            f"{self.path} is damaged: its commits were durable up to byte {head.length} of rewriting {head.generation}, and it "
            f"reads up to byte {all_there_is.position} of rewriting {state.generation}. Put the file back from a copy; or, to "
            f"go on with the commits that are left, remove {self.lock_path}"
        )

    def append(self, line: bytes) -> News:
        """Appends a line durably. Needs the lock and a settled journal."""
        self.reserve.spending(len(line), lambda: self._append_durably(line))
        position = self.position + len(line)
        self._publish(self.state.generation, position)
        return News(bodies=[body_of(line)], position=position)

    def _append_durably(self, line: bytes) -> None:
        file = self._opened()
        try:
            file.pwrite(line, self.position)
            file.sync()
        except OSError:
            file.truncate(self.position)
            file.sync()
            raise

    def _publish(self, generation: int, length: int) -> None:
        body = b"%016x %016x" % (generation, length)
        self._head_file.pwrite(b"%08x %s" % (zlib.crc32(body), body), 0)

    def fill_reserve(self) -> None:
        """Keeps space for writes while the disk is full. Needs the lock."""
        self.reserve.fill(self.position)

    # -- rewriting -------------------------------------------------------------------------------------------

    @property
    def is_due_for_rewriting(self) -> bool:
        return self.position > self._rewrite_at

    def rewrite(self) -> News | None:
        """Replaces the journal's lines by the state that they add up to, if that is much shorter. Needs the lock and a
        settled journal."""
        generation = self.state.generation + 1
        snapshot = self.state.snapshot(generation)
        if 2 * len(snapshot) >= self.position:
            self._rewrite_at = 2 * self.position
            return None
        self._head_file.pwrite(
            _NO_HEAD, 0
        )  # if it goes wrong from here on, the next writer reads all of it again
        self.reserve.spending(len(snapshot), lambda: self._disk.replace(self.path, snapshot))
        file = self._disk.open(self.path)
        self._publish(generation, len(snapshot))
        length = len(snapshot)
        return News(bodies=[], position=length, file=file, generation=generation, snapshot_length=length)
