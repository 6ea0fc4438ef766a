"""The directory of a query's checkpoint: on this machine, or in what pyarrow's file systems reach."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from odradek.model.java_numbers import is_digits
from odradek.model.lazy import lazy

if TYPE_CHECKING:
    from pyarrow import fs
else:
    fs = lazy("pyarrow.fs")


_OFFSETS = "offsets"
_BY_NAME = b"v2"
"""The beginning of a file of offsets that has them by the names of sources."""

_EVEN_TASKS = "odradek-even-tasks"
"""A file of this name is in checkpoints whose tasks are called so that Spark spreads them evenly."""


@dataclass(frozen=True, slots=True)
class CheckpointDirectory:
    """The directory of a query's checkpoint.

    `uri`: a path, or an address such as `s3://bucket/checkpoints`.
    """

    uri: str

    @property
    def local_path(self) -> str | None:
        """Returns the directory's path on this machine; None where it is elsewhere."""
        parts = urlsplit(self.uri)
        if parts.scheme not in ("", "file"):
            return None
        return unquote(parts.path) if parts.scheme else self.uri

    def below(self, name: str) -> CheckpointDirectory:
        return CheckpointDirectory(f"{self.uri.rstrip('/')}/{name}")

    def has_files(self, name: str) -> bool:
        """Tells whether there is a directory of this name, with files that are not hidden."""
        system, path = self._opened()
        chosen = fs.FileSelector(f"{path}/{name}", allow_not_found=True)
        return any(not entry.base_name.startswith(".") for entry in system.get_file_info(chosen))

    def has_named_sources(self) -> bool | None:
        """Tells whether the offsets in it go by the names of sources; None where there are none yet."""
        system, path = self._opened()
        chosen = fs.FileSelector(f"{path}/{_OFFSETS}", allow_not_found=True)
        batches = [
            int(entry.base_name) for entry in system.get_file_info(chosen) if is_digits(entry.base_name)
        ]
        if not batches:
            return None
        with system.open_input_stream(f"{path}/{_OFFSETS}/{max(batches)}") as stream:
            return bytes(stream.read(len(_BY_NAME))) == _BY_NAME

    def has_even_tasks(self) -> bool:
        """Whether its tasks have the names that Spark spreads evenly. A checkpoint stays as it began; one that begins gets a
        note.
        """
        system, path = self._opened()
        note = f"{path}/{_EVEN_TASKS}"
        if system.get_file_info(note).type == fs.FileType.File:
            return True
        if self.has_named_sources() is not None:
            return False
        system.create_dir(path)
        with system.open_output_stream(note):
            return True

    def remove(self) -> None:
        """Removes the directory with all that is in it, if it exists."""
        system, path = self._opened()
        if system.get_file_info(path).type == fs.FileType.Directory:
            system.delete_dir(path)

    def _opened(self) -> tuple[fs.FileSystem, str]:
        if (local := self.local_path) is not None:
            return fs.LocalFileSystem(), local.rstrip("/")
        system, path = fs.FileSystem.from_uri(self.uri)
        return system, path.rstrip("/")
