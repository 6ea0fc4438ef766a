"""A bounded number of open files for reading, shared by all logs of a broker.

Only files that are no longer written come here, and only the event loop uses them, each for the length of one call: so the
least recently used one may be closed at any time.
"""

from __future__ import annotations

from collections import OrderedDict

from odradek.runtime.ports import Disk, DiskFile


class OpenFiles:
    """Opens files on demand, read-only, and keeps at most `limit` of them open."""

    def __init__(self, disk: Disk, limit: int = 1024) -> None:
        self._disk = disk
        self._limit = max(limit, 1)
        self._files: OrderedDict[str, DiskFile] = OrderedDict()

    def __len__(self) -> int:
        return len(self._files)

    def get(self, path: str) -> DiskFile:
        """The open file at `path`; FileNotFoundError when there is none."""
        file = self._files.get(path)
        if file is not None:
            self._files.move_to_end(path)
            return file
        while len(self._files) >= self._limit:
            self._files.popitem(last=False)[1].close()
        file = self._files[path] = self._disk.open(path, write=False)
        return file

    def forget(self, path: str) -> None:
        """Close `path` if it is open: it is about to be renamed, removed or rewritten."""
        file = self._files.pop(path, None)
        if file is not None:
            file.close()

    def forget_under(self, directory: str) -> None:
        """Close everything below `directory`."""
        for path in [path for path in self._files if path.startswith(f"{directory}/")]:
            self.forget(path)

    def close(self) -> None:
        for file in self._files.values():
            file.close()
        self._files.clear()
