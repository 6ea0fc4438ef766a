"""The few operations on a store that `pyarrow.fs` lacks: an object that is put only where there is none, files made durable."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from odradek.archive.store.location import ArchiveLocation
from odradek.archive.store.values import ArchiveError
from odradek.model.lazy import lazy
from odradek.runtime.real import PosixDisk, SystemEntropy

if TYPE_CHECKING:
    import obstore
    from obstore import exceptions as obstore_exceptions
    from obstore import store as obstore_stores
    from pyarrow import fs
else:
    obstore = lazy("obstore")
    obstore_exceptions = lazy("obstore.exceptions")
    obstore_stores = lazy("obstore.store")
    fs = lazy("pyarrow.fs")


class SmallObjects(Protocol):
    """The store of a Parquet archive's manifest. Names are relative to the archive's root."""

    def put_if_absent(self, name: str, content: bytes) -> bool:
        """Makes the object, whole and durable; False, and nothing happens, where there is one of this name."""

    def put(self, name: str, content: bytes) -> None:
        """Makes the object, or replaces its content."""

    def read(self, name: str) -> bytes | None:
        """Returns the whole content of an object; None where there is none."""

    def has(self, name: str) -> bool: ...

    def names(self, directory: str) -> list[str]:
        """Returns the names in a directory, without the directory, in order; none where there is no directory."""

    def remove(self, name: str) -> None:
        """Removes an object; no error where there is none."""


class LocalObjects:
    """Objects in a directory. A complete file gets its name by a hard link, which never replaces another file."""

    def __init__(self, root: str) -> None:
        self._root = Path(root)
        self._disk = PosixDisk()
        self._entropy = SystemEntropy()

    def put_if_absent(self, name: str, content: bytes) -> bool:
        path = self._root / name
        self._disk.make_directory(str(path.parent))
        draft = path.parent / f".draft-{self._entropy.uuid().hex}"
        self._disk.replace(str(draft), content)
        try:
            os.link(draft, path)
        except FileExistsError:
            return False
        finally:
            draft.unlink()
        self._disk.sync_directory(str(path.parent))
        return True

    def put(self, name: str, content: bytes) -> None:
        path = self._root / name
        self._disk.make_directory(str(path.parent))
        self._disk.replace(str(path), content)

    def read(self, name: str) -> bytes | None:
        try:
            return (self._root / name).read_bytes()
        except FileNotFoundError:
            return None

    def has(self, name: str) -> bool:
        return (self._root / name).is_file()

    def names(self, directory: str) -> list[str]:
        try:
            return [name for name in self._disk.list_directory(str(self._root / directory)) if name[0] != "."]
        except FileNotFoundError:
            return []

    def remove(self, name: str) -> None:
        (self._root / name).unlink(missing_ok=True)


class S3Objects:
    """Objects in a bucket. With `If-None-Match: *` (Amazon's store, MinIO and others have it) puts of existing ones fail."""

    def __init__(self, location: ArchiveLocation) -> None:
        bucket, _, prefix = location.path.partition("/")
        self._store = obstore_stores.S3Store(bucket, prefix=prefix, **location.obstore_options())

    def put_if_absent(self, name: str, content: bytes) -> bool:
        try:
            obstore.put(self._store, name, content, mode="create")
        except obstore_exceptions.AlreadyExistsError:
            return (
                self.read(name) == content
            )  # the answer to a put that succeeded was lost, and it was sent again
        return True

    def put(self, name: str, content: bytes) -> None:
        obstore.put(self._store, name, content)

    def read(self, name: str) -> bytes | None:
        try:
            return bytes(obstore.get(self._store, name).bytes())
        except FileNotFoundError:
            return None

    def has(self, name: str) -> bool:
        try:
            obstore.head(self._store, name)
        except FileNotFoundError:
            return False
        return True

    def names(self, directory: str) -> list[str]:
        objects = obstore.list_with_delimiter(self._store, f"{directory}/")["objects"]
        return sorted(entry["path"].rpartition("/")[2] for entry in objects)

    def remove(self, name: str) -> None:
        obstore.delete(self._store, name)


def small_objects(location: ArchiveLocation) -> SmallObjects:
    """Returns the small objects of an archive."""
    return S3Objects(location) if location.is_s3 else LocalObjects(location.path)


def make_durable(location: ArchiveLocation, names: Iterable[str]) -> None:
    """Makes files durable that a commit is about to name: syncs them, and the directories that name them. In S3 what is put
    is durable.

    ArchiveError when one is missing, in any store."""
    listed = list(names)
    if location.is_s3:
        infos = location.file_system().get_file_info([location.within(listed_name) for listed_name in listed])
        for name, info in zip(listed, infos, strict=True):
            if info.type == fs.FileType.NotFound:
                raise _gone(location, name)
        return
    disk = PosixDisk()
    directories = set()
    for name in listed:
        path = Path(location.path, name)
        try:
            file = disk.open(str(path), write=False)
        except FileNotFoundError:
            raise _gone(location, name) from None
        try:
            file.sync()
        finally:
            file.close()
        directories |= {parent for parent in path.parents if parent.is_relative_to(location.path)}
    for directory in sorted(directories, reverse=True):
        disk.sync_directory(str(directory))


def _gone(location: ArchiveLocation, name: str) -> ArchiveError:
    return ArchiveError(
        f"{location.within(name)} no longer exists: it took so long that it expired before it was committed. Expire with a"
        " longer --keep, and run again: nothing is lost"
    )
