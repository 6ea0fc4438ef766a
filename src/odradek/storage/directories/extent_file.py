"""The file `log-extents` on a disk: replaced as a whole now and then, and appended to in between (`extents.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from odradek.model.ids import TopicPartition
from odradek.runtime.ports import Disk, DiskFile
from odradek.storage.files import naming
from odradek.storage.files.checkpoints import BadCheckpointError
from odradek.storage.files.extents import Extent, Extents, decode, encode_all, encode_changed
from odradek.telemetry import events

log = events.get("storage")

BYTES_MIN: Final = 1 << 20
_GROWTH_MAX: Final = 4
"""The file is replaced when it is this many times as long as a compact one, and not short."""


class ExtentFile:
    """The file `log-extents` on a disk. `read` it once; then the other methods, which block, on any thread, one at a time."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._path: Final = naming.join(directory, naming.EXTENTS)
        self._file: DiskFile | None = None
        self._crc = 0
        self._size_bytes = 0
        self._replaced_bytes = 0
        self.content: dict[TopicPartition, Extent] | None = {}
        """The file's extents; None after an error, when they are unknown."""

    def read(self, checkpoint: bytes) -> dict[TopicPartition, Extent]:
        """Returns the file's extents if they belong to a recovery point checkpoint of this content; none when they are not
        reliable."""
        self.content = None
        if not self._disk.exists(self._path):
            self.content = {}
            return {}
        try:
            stored = decode(self._disk.read(self._path))
        except BadCheckpointError as error:
            log.warning("extents_ignored", path=self._path, reason=str(error))
            return {}
        if not stored.go_with(checkpoint):
            reason = f"{naming.RECOVERY_POINTS} is not the one that was written with it"
            log.warning("extents_ignored", path=self._path, reason=reason)
            return {}
        if not stored.is_whole:
            log.warning("extents_cut_short", path=self._path)
        self.content = dict(stored.extents)
        return stored.extents

    @property
    def has_room(self) -> bool:
        """True if changed extents may be appended; else the whole file must be replaced."""
        limit = max(BYTES_MIN, self._replaced_bytes * _GROWTH_MAX)
        return self._file is not None and self.content is not None and self._size_bytes < limit

    def replace(self, extents: Extents, checkpoints: Sequence[bytes]) -> None:
        """Replaces the file by these extents, which are valid as long as the recovery point checkpoint is one of these."""
        self.close()
        self.content = None
        data, crc = encode_all(extents, checkpoints)
        self._disk.replace(self._path, data)
        self._file = self._disk.open(self._path)
        self._crc, self._size_bytes, self._replaced_bytes = crc, len(data), len(data)
        self.content = dict(extents)

    def append(self, changed: Extents) -> None:
        """Appends changed extents. After an error the next write is a `replace`."""
        assert self._file is not None, "nothing was replaced before"
        assert self.content is not None, "no one knows what it says"
        content, self.content = self.content, None
        data, crc = encode_changed(changed, self._crc)
        self._file.pwrite(data, self._size_bytes)
        self._file.sync()
        self._crc, self._size_bytes = crc, self._size_bytes + len(data)
        content.update(changed)
        self.content = content

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
