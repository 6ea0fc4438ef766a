"""The contents of a simulated disk: the page cache's view and what is on the platter, file by file and
name by name.

Theory. A write changes the cache; it reaches the platter at `sync`, or at some earlier moment of the kernel's
choosing, in 512-byte sectors and in any order. So between syncs a sector may be found in any of its versions
after the power fails, and the file may have any of the lengths that it went through. Names follow the same
rule one level up: a directory's new, renamed and removed names are certain only after the directory was
synced, whether or not the files were. A process that dies takes nothing with it: the cache belongs to the
kernel.

A sync that fails is worse than one that was never made (Linux since always, known as fsyncgate since 2018):
the pages it could not write are marked clean. Readers still see them, the next sync succeeds without writing
them, and the next power failure shows that they never were on the platter.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from random import Random
from typing import Final

SECTOR_BYTES: Final = 512
_PATHS_KEPT: Final = 1024


@dataclass(frozen=True, slots=True)
class _Write:
    position: int
    data: bytes


@dataclass(frozen=True, slots=True)
class _Truncate:
    length: int


_Change = _Write | _Truncate


def _apply(content: bytearray, change: _Change) -> None:
    if isinstance(change, _Truncate):
        if change.length < len(content):
            del content[change.length :]
        else:
            content.extend(bytes(change.length - len(content)))
        return
    gap = change.position - len(content)
    if gap > 0:
        content.extend(bytes(gap))
    content[change.position : change.position + len(change.data)] = change.data


class Inode:
    """A file's content: `cache` is what reads see, `platter` what a power failure cannot take."""

    __slots__ = ("_unsynced", "cache", "lock", "modified_ms", "platter")

    def __init__(self, modified_ms: int) -> None:
        self.cache = bytearray()
        self.platter = bytearray()
        self.modified_ms = modified_ms
        self.lock: object = None
        """The mount that locked it last: mounts of one medium at one time are processes of one machine."""
        self._unsynced: list[_Change] = []

    @property
    def is_dirty(self) -> bool:
        return bool(self._unsynced)

    def write(self, data: bytes, position: int, now_ms: int) -> None:
        self._change(_Write(position, data), now_ms)

    def truncate(self, length: int, now_ms: int) -> None:
        self._change(_Truncate(length), now_ms)

    def _change(self, change: _Change, now_ms: int) -> None:
        _apply(self.cache, change)
        self._unsynced.append(change)
        self.modified_ms = now_ms

    def sync(self) -> None:
        for change in self._unsynced:
            _apply(self.platter, change)
        self._unsynced.clear()

    def fail_sync(self, rng: Random) -> None:
        """Write back some sectors, forget the rest, and call everything clean."""
        self.platter = self._survivors(rng)
        self._unsynced.clear()
        if rng.random() < 0.5:  # some file systems show what is on disk from now on, others what was written
            self.cache = bytearray(self.platter)

    def lose_power(self, rng: Random) -> None:
        if self._unsynced:
            self.platter = self._survivors(rng)
            self._unsynced.clear()
        if self.cache != self.platter:  # comparing costs less than copying: some clean files are megabytes
            self.cache = bytearray(self.platter)

    def overwrite(self, content: bytes) -> None:
        """Put other bytes in its place, durably, without any notice."""
        self.platter, self.cache = bytearray(content), bytearray(content)
        self._unsynced.clear()

    def flip_bit(self, position: int, bit: int) -> None:
        """Bit rot: wrong in the cache and on the platter, and no one knows."""
        for content in (self.cache, self.platter):
            if position < len(content):
                content[position] ^= 1 << bit

    def _survivors(self, rng: Random) -> bytearray:
        """Returns the platter's content if the power failed now."""
        if not self._unsynced:
            return bytearray(self.platter)
        fate = rng.choice(("nothing", "everything", "prefix", "sectors", "sectors", "sectors"))
        if fate == "nothing":
            return bytearray(self.platter)
        if fate == "everything":
            return self._replayed(len(self._unsynced))
        return self._torn_prefix(rng) if fate == "prefix" else self._scattered(rng)

    def _replayed(self, count: int) -> bytearray:
        content = bytearray(self.platter)
        for change in self._unsynced[:count]:
            _apply(content, change)
        return content

    def _torn_prefix(self, rng: Random) -> bytearray:
        """Returns some changes in full, and of the next one the sectors up to a point."""
        count = rng.randrange(len(self._unsynced))
        content = self._replayed(count)
        change = self._unsynced[count]
        if isinstance(change, _Write):
            end = rng.randrange(change.position, change.position + len(change.data) + 1)
            end -= end % SECTOR_BYTES
            _apply(content, _Write(change.position, change.data[: max(0, end - change.position)]))
        return content

    def _scattered(self, rng: Random) -> bytearray:
        """Returns each sector in one of the versions that it had, and one of the lengths that the file had."""
        running = bytearray(self.platter)
        lengths = [len(running)]
        versions: dict[int, list[bytes]] = {}
        for change in self._unsynced:
            before = len(running)
            _apply(running, change)
            lengths.append(len(running))
            for sector in _touched(change, before, len(running)):
                seen = versions.setdefault(sector, [_sector(self.platter, sector)])
                seen.append(_sector(running, sector))
        length = lengths[-1] if rng.random() < 0.5 else rng.choice(lengths)
        content = bytearray(self.platter)
        content.extend(bytes(max(0, max(lengths) + SECTOR_BYTES - len(content))))
        kept = rng.choice((0.1, 0.5, 0.9))
        for sector, seen in versions.items():
            version = seen[-1] if rng.random() < kept else rng.choice(seen[:-1])
            content[sector * SECTOR_BYTES : (sector + 1) * SECTOR_BYTES] = version
        return content[:length]


def _sector(content: bytearray, sector: int) -> bytes:
    return bytes(content[sector * SECTOR_BYTES : (sector + 1) * SECTOR_BYTES]).ljust(SECTOR_BYTES, b"\0")


def _touched(change: _Change, length_before: int, length_after: int) -> range:
    if isinstance(change, _Truncate):
        start, end = min(length_before, length_after), max(length_before, length_after)
    else:
        start, end = min(change.position, length_before), change.position + len(change.data)
    return range(start // SECTOR_BYTES, -(-end // SECTOR_BYTES))


@dataclass(frozen=True, slots=True)
class _Link:
    name: str
    node: Inode | Folder


@dataclass(frozen=True, slots=True)
class _Unlink:
    name: str


@dataclass(frozen=True, slots=True)
class _Move:
    source: str
    target: str
    node: Inode | Folder


_NameChange = _Link | _Unlink | _Move


def _apply_name(names: dict[str, Inode | Folder], change: _NameChange) -> None:
    if isinstance(change, _Link):
        names[change.name] = change.node
    elif isinstance(change, _Unlink):
        names.pop(change.name, None)
    else:
        if names.get(change.source) is change.node:
            del names[change.source]
        names[change.target] = change.node


@dataclass(slots=True)
class Folder:
    """A directory: `names` is what the kernel shows, `platter` what a power failure cannot take."""

    names: dict[str, Inode | Folder] = field(default_factory=dict)
    platter: dict[str, Inode | Folder] = field(default_factory=dict)
    _unsynced: list[_NameChange] = field(default_factory=list)

    def link(self, name: str, node: Inode | Folder) -> None:
        self._change(_Link(name, node))

    def unlink(self, name: str) -> None:
        self._change(_Unlink(name))

    def move(self, source: str, target: str) -> None:
        """Moves a file atomically: after a power failure both names changed or neither did."""
        self._change(_Move(source, target, self.names[source]))

    def _change(self, change: _NameChange) -> None:
        _apply_name(self.names, change)
        self._unsynced.append(change)

    def sync(self) -> None:
        self.platter = dict(self.names)
        self._unsynced.clear()

    def lose_power(self, rng: Random) -> None:
        """Settle what is left of the names here, then of everything below them."""
        for change in self._surviving_changes(rng):
            _apply_name(self.platter, change)
        self.names = dict(self.platter)
        self._unsynced.clear()
        for name in sorted(self.names):
            self.names[name].lose_power(rng)

    def _surviving_changes(self, rng: Random) -> list[_NameChange]:
        """Journals keep a prefix; POSIX allows any subset."""
        changes = self._unsynced
        if not changes:
            return []
        fate = rng.choice(("nothing", "everything", "prefix", "subset"))
        if fate == "subset":
            return [change for change in changes if rng.random() < 0.5]
        count = {"nothing": 0, "everything": len(changes), "prefix": rng.randrange(len(changes) + 1)}[fate]
        return changes[:count]

    def files(self, path: str) -> Iterator[tuple[str, Inode]]:
        """Yields every file below, with its path, in order of name."""
        for name in sorted(self.names):
            node = self.names[name]
            if isinstance(node, Inode):
                yield f"{path}/{name}", node
            else:
                yield from node.files(f"{path}/{name}")


class Medium:
    """The tree of one host's disk. It outlives the host's crashes."""

    __slots__ = ("capacity_bytes", "root")

    def __init__(self, *, capacity_bytes: int | None = None) -> None:
        self.root = Folder()
        self.capacity_bytes = capacity_bytes

    def find(self, path: str) -> Inode | Folder:
        """Returns the entry at `path`. Raises FileNotFoundError or NotADirectoryError."""
        node: Inode | Folder = self.root
        for part in _parts(path):
            if not isinstance(node, Folder):
                raise NotADirectoryError(errno.ENOTDIR, "not a directory", path)
            entry = node.names.get(part)
            if entry is None:
                raise FileNotFoundError(errno.ENOENT, "no such file or directory", path)
            node = entry
        return node

    def folder(self, path: str) -> Folder:
        node = self.find(path)
        if not isinstance(node, Folder):
            raise NotADirectoryError(errno.ENOTDIR, "not a directory", path)
        return node

    def file(self, path: str) -> Inode:
        node = self.find(path)
        if not isinstance(node, Inode):
            raise IsADirectoryError(errno.EISDIR, "is a directory", path)
        return node

    def make_durable_folder(self, path: str) -> None:
        """Put an empty directory, and what is missing above it, on the platter."""
        folder = self.root
        for part in _parts(path):
            node = folder.names.get(part)
            if node is None:
                node = Folder()
                folder.link(part, node)
                folder.sync()
            if not isinstance(node, Folder):
                raise NotADirectoryError(errno.ENOTDIR, "not a directory", path)
            folder = node

    def used_bytes(self) -> int:
        return sum(len(inode.cache) for _, inode in self.root.files(""))

    def total_bytes(self) -> int:
        return self.used_bytes() + self.free_bytes() if self.capacity_bytes is None else self.capacity_bytes

    def free_bytes(self) -> int:
        if self.capacity_bytes is None:
            return 1 << 40
        return max(0, self.capacity_bytes - self.used_bytes())

    def lose_power(self, rng: Random) -> None:
        """Drops what was never on the platter, and settles the rest by chance."""
        self.root.lose_power(rng)


@lru_cache(_PATHS_KEPT)
def _parts(path: str) -> tuple[str, ...]:
    if not path.startswith("/"):
        raise ValueError(f"paths are absolute, not {path!r}")
    return tuple(part for part in path.split("/") if part)


@lru_cache(_PATHS_KEPT)
def split_path(path: str) -> tuple[str, str]:
    """Parent and last name."""
    parts = _parts(path)
    if not parts:
        raise ValueError("the root has no parent")
    return "/" + "/".join(parts[:-1]), parts[-1]
