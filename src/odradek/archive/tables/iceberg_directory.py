"""An Iceberg catalog of one table that needs no service: the layout of Hadoop tables, with commits that are exact.

`metadata/v<N>.metadata.json` is version N of the table, and is put only where there is none: of two commits one is first.
`metadata/version-hint.text` names the newest version, for readers that know this layout (DuckDB, Spark's `hadoop`
catalog, pyiceberg's `StaticTable`); it may be a moment old.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.io import load_file_io
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.table.update import TableRequirement, TableUpdate, update_table_metadata

from odradek.archive.store.location import ArchiveLocation
from odradek.archive.store.object_store import small_objects
from odradek.archive.tables.leftovers import old_files

if TYPE_CHECKING:
    from pyiceberg.typedef import Identifier

DIRECTORY: Final = "metadata"
HINT: Final = f"{DIRECTORY}/version-hint.text"
FIRST: Final = f"{DIRECTORY}/v1.metadata.json"
_VERSION: Final = re.compile(r"v([0-9]+)\.metadata\.json")


class DirectoryCatalog(NoopCatalog):
    """The table at a location."""

    def __init__(self, location: ArchiveLocation) -> None:
        super().__init__("odradek", **location.iceberg_properties())
        self._location = location
        self._objects = small_objects(location)

    def make(self, metadata: TableMetadata) -> bool:
        """Puts the first version; False where there is one."""
        if not self._objects.put_if_absent(FIRST, metadata.model_dump_json().encode()):
            return False
        self._objects.put(HINT, b"1")
        return True

    def load_table(self, identifier: str | Identifier) -> Table:
        version = self._newest_version()
        name = f"{DIRECTORY}/v{version}.metadata.json"
        content = self._objects.read(name) if version else None
        if content is None:
            raise NoSuchTableError(f"there is no Iceberg table at {self._location}")
        return Table(
            identifier=("odradek", str(identifier)),
            metadata=TableMetadataUtil.parse_raw(content.decode()),
            metadata_location=f"{self._location.url}/{name}",
            io=load_file_io(self._location.iceberg_properties(), self._location.url),
            catalog=self,
        )

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """Puts the version after the one that `table` is; CommitFailedException where there is one."""
        for requirement in requirements:
            requirement.validate(table.metadata)
        version = _version_in(table.metadata_location) + 1
        changed = update_table_metadata(table.metadata, updates, metadata_location=table.metadata_location)
        name = f"{DIRECTORY}/v{version}.metadata.json"
        if not self._objects.put_if_absent(name, changed.model_dump_json().encode()):
            raise CommitFailedException(
                f"version {version} of {self._location} was committed by someone else"
            )
        if not self._objects.has(f"{DIRECTORY}/v{version - 1}.metadata.json"):
            self._objects.remove(name)
            raise CommitFailedException(
                f"version {version} of {self._location} had been committed, and has expired since"
            )
        self._objects.put(HINT, str(version).encode())
        return CommitTableResponse.model_validate(
            {"metadata": changed, "metadata-location": f"{self._location.url}/{name}"}
        )

    def old_versions(self, before_ms: int) -> list[str]:
        """Returns the files of versions that were put before a moment and are not the newest, in order: a version is there as
        long as the one before it (see `commit_table`).
        """
        newest = self._newest_version()
        old = [
            name
            for name in old_files(self._location, before_ms, (f"{DIRECTORY}/",))
            if name.endswith(".json")
        ]
        return sorted((name for name in old if _version_in(name) < newest), key=_version_in)

    def _newest_version(self) -> int:
        matches = map(_VERSION.fullmatch, self._objects.names(DIRECTORY))
        return max((int(match[1]) for match in matches if match), default=0)


def _version_in(location: str) -> int:
    match = _VERSION.fullmatch(location.rpartition("/")[2])
    assert match is not None, location
    return int(match[1])
