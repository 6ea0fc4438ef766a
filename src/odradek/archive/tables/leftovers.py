"""Files in an archive's directory that no version of it needs: leftovers of crashes, and files replaced long ago."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from odradek.archive.store.location import ArchiveLocation
from odradek.archive.store.values import ArchiveError
from odradek.model.lazy import lazy

if TYPE_CHECKING:
    from pyarrow import fs
else:
    fs = lazy("pyarrow.fs")

_NS_PER_MS = 1_000_000


def old_files(location: ArchiveLocation, before_ms: int, directories: Iterable[str] = ("",)) -> list[str]:
    """Returns the names of files that were last written before a moment, in order.

    Below the directories nothing is looked at whose name begins with `_` or `.`.
    """
    system = location.file_system()
    names: list[str] = []
    for directory in directories:
        selector = fs.FileSelector(
            location.within(directory).rstrip("/"), recursive=True, allow_not_found=True
        )
        for info in system.get_file_info(selector):
            name = _below(location, info.path)
            is_file = info.type == fs.FileType.File and not _is_hidden(name.removeprefix(directory))
            if is_file and _modified_ms(info) < before_ms:
                names.append(name)
    return sorted(names)


def list_files(location: ArchiveLocation, directory: str) -> list[str]:
    """Returns the names of all files below a directory; none where there is no directory."""
    selector = fs.FileSelector(location.within(directory), recursive=True, allow_not_found=True)
    infos = location.file_system().get_file_info(selector)
    return sorted(_below(location, info.path) for info in infos if info.type == fs.FileType.File)


def _below(location: ArchiveLocation, path: str) -> str:
    """Names are compared with those that the table needs: one that is spelled in another way would look like a leftover."""
    if not path.startswith(f"{location.path}/"):
        raise ArchiveError(
            f"{location} lists {path}, which is not below it: name the archive by its real path"
        )
    return path.removeprefix(f"{location.path}/")


def _is_hidden(name: str) -> bool:
    return any(part[0] in "_." for part in name.split("/") if part)


def _modified_ms(info: fs.FileInfo) -> int:
    return int(info.mtime_ns) // _NS_PER_MS


def remove_files(location: ArchiveLocation, names: Collection[str]) -> None:
    """Removes files one by one; a missing file is no error."""
    system = location.file_system()
    for name in names:
        try:
            system.delete_file(location.within(name))
        except FileNotFoundError:
            continue
