"""A directory of a checkpoint: on this machine, or in what pyarrow's file systems reach."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from odradek.model.lazy import lazy

if TYPE_CHECKING:
    from pyarrow import fs
else:
    fs = lazy("pyarrow.fs")


@dataclass(frozen=True, slots=True)
class CheckpointPlace:
    """`uri`: a path, or an address such as `s3://bucket/checkpoints`."""

    uri: str

    def below(self, name: str) -> CheckpointPlace:
        return CheckpointPlace(f"{self.uri.rstrip('/')}/{name}")

    def has_files(self, name: str) -> bool:
        """Is there a directory of this name, with files that are not hidden?"""
        system, path = self._opened()
        chosen = fs.FileSelector(f"{path}/{name}", allow_not_found=True)
        return any(not entry.base_name.startswith(".") for entry in system.get_file_info(chosen))

    def remove(self) -> None:
        """The directory with all that is in it, if there is one."""
        system, path = self._opened()
        if system.get_file_info(path).type == fs.FileType.Directory:
            system.delete_dir(path)

    def _opened(self) -> tuple[fs.FileSystem, str]:
        parts = urlsplit(self.uri)
        if parts.scheme in ("", "file"):
            return fs.LocalFileSystem(), (unquote(parts.path) if parts.scheme else self.uri).rstrip("/")
        system, path = fs.FileSystem.from_uri(self.uri)
        return system, path.rstrip("/")
