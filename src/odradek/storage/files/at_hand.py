"""Reads on the event loop without a wait for the disk.

How it works. While `OpenFiles.only_at_hand` is in force, a read of what is not in the page cache does not happen: it raises
`NotAtHand`, which carries the work for another thread. The caller has it done and begins its piece of reading again, on the log
as it is then. `ReadProgress` remembers what was done, so each begins with more than the one before, and the last one ends.

So what is read may change between two attempts, but never within one. Nothing that an attempt found may
outlive it, except data that cannot change, such as the content of a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from odradek.runtime.ports import DiskFile, Offload

T = TypeVar("T")
_WHOLE_BYTES_MAX: Final = 4 * 1024 * 1024
"""A file of no more, such as an index, is brought whole: a search comes back to many places of it."""
_WINDOW_BYTES: Final = 1024 * 1024


class Missing(NamedTuple):
    """A piece of work that another thread should do first."""

    key: Hashable
    """Identifies everything that `work` depends on."""
    work: Callable[[], object]
    size_bytes: int


class NotAtHand(Exception):
    """The signal that a read would wait for a disk: another thread does what is missing, and then the read begins again. It
    is no error: no client sees it."""

    def __init__(self, missing: Missing) -> None:
        super().__init__(missing.key)
        self.missing = missing


class ReadProgress:
    """The results of other threads for one read. Used on the event loop, except `do`."""

    __slots__ = ("_results",)

    def __init__(self) -> None:
        self._results: dict[Hashable, Any] = {}

    def __contains__(self, key: Hashable) -> bool:
        return key in self._results

    def do(self, missing: Missing) -> None:
        """Does the missing work. Blocks, on any thread. Meanwhile no one else uses this."""
        self._results[missing.key] = missing.work()

    def result(self, key: Hashable, work: Callable[[], T], size_bytes: int) -> T:
        """Returns the result of `work`, which another thread did; raises NotAtHand if none did."""
        if key not in self._results:
            raise NotAtHand(Missing(key, work, size_bytes))
        value: T = self._results[key]
        return value


async def read_off_loop(
    offload: Offload, attempt: Callable[[ReadProgress], T], beside: ReadProgress | None = None
) -> T:
    """Returns the result of `attempt`, after other threads have done its work that would hold the loop."""
    beside = ReadProgress() if beside is None else beside
    while True:
        try:
            return attempt(beside)
        except NotAtHand as not_at_hand:
            missing = not_at_hand.missing
        await offload.run(beside.do, missing)


class FileAtHand:
    """A file for reading: it reads cached bytes only."""

    __slots__ = ("_beside", "_path", "file")

    def __init__(self, file: DiskFile, path: str, beside: ReadProgress) -> None:
        self.file = file
        """Itself, for work on other threads."""
        self._path = path
        self._beside = beside

    def pread(self, length: int, position: int) -> bytes:
        if not self.file.is_at_hand(length, position):
            self._bring(length, position)
        return self.file.pread(length, position)

    def expect(self, length: int, position: int) -> None:
        """Announces that all of these bytes are read soon, so that they are fetched in one go."""
        key = (self._path, position, length)
        if key not in self._beside and length > 0 and not self.file.is_at_hand(length, position):
            raise NotAtHand(Missing(key, partial(self.file.bring, length, position), length))

    def _bring(self, length: int, position: int) -> None:
        start, end = 0, self.file.length()
        if end > _WHOLE_BYTES_MAX:
            start = position // _WINDOW_BYTES * _WINDOW_BYTES
            end = min(end, -(-(position + length) // _WINDOW_BYTES) * _WINDOW_BYTES)
        key = (self._path, start, end)
        if key not in self._beside and end > start:
            raise NotAtHand(Missing(key, partial(self.file.bring, end - start, start), end - start))

    @property
    def can_probe(self) -> bool:
        return self.file.can_probe

    def is_at_hand(self, length: int, position: int) -> bool:
        return self.file.is_at_hand(length, position)

    def bring(self, length: int, position: int) -> None:
        self.file.bring(length, position)

    def map(self, length: int, position: int) -> memoryview | None:
        return self.file.map(length, position)

    def length(self) -> int:
        return self.file.length()
