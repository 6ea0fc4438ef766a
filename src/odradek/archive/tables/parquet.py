"""The archive's manifest over plain Parquet, for people who want files and no table format.

`_odradek/table.json` describes the table. `_odradek/commits/<version, 20 digits>.json` lists what each version added and
removed: an object that is made only where there is none, so of two writers one is first, and a batch is there whole or not.
`_odradek/snapshots/<version>.json` holds the sum of all commits up to a version, so that no one reads thousands of them. Data
files have Hive's layout. A file that no version names is a crash's leftover, and `expire` removes it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final
from uuid import UUID

import pyarrow as pa

from odradek.archive.store.location import ArchiveLocation
from odradek.archive.store.object_store import SmallObjects, make_durable, small_objects
from odradek.archive.store.values import (
    ArchiveError,
    ArchiveState,
    CommitConflict,
    DataFile,
    MissingFiles,
    NewBatch,
)
from odradek.archive.tables.leftovers import old_files, remove_files
from odradek.archive.tables.port import Expired, TableFormat
from odradek.model.ids import TopicPartition
from odradek.runtime.real import SystemClock
from odradek.spark.reading.offsets import OffsetRange

DIRECTORY: Final = "_odradek"
TABLE: Final = f"{DIRECTORY}/table.json"
COMMITS: Final = f"{DIRECTORY}/commits"
SNAPSHOTS: Final = f"{DIRECTORY}/snapshots"
SNAPSHOT_EVERY: Final = 20
"""Commits. A reader reads the newest snapshot, and no more commits than this."""
FORMAT_VERSION: Final = 1
TOPIC_IDS: Final = "topicIds"
LISTINGS_MAX: Final = 5
"""Commits may expire between the listing and the reading of them; a newer snapshot has their sum."""

Document = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestVersion:
    """The manifest of the table at one version: the sum of commits up to it."""

    version: int = -1
    files: Mapping[str, DataFile] = field(default_factory=dict)
    archived: Mapping[TopicPartition, OffsetRange] = field(default_factory=dict)
    batches: Mapping[tuple[str, str], int] = field(default_factory=dict)
    topic_ids: Mapping[str, UUID] = field(default_factory=dict)
    removed: Mapping[str, int] = field(default_factory=dict)
    """Paths that earlier versions name and this one does not, with the time (ms) of the commit that replaced them."""

    def state(self) -> ArchiveState:
        return ArchiveState(
            version=self.version, archived=self.archived, batches=self.batches, topic_ids=self.topic_ids
        )


class ParquetArchive:
    """An archive in plain Parquet files with a manifest of our own; see `ArchiveTable` for its methods."""

    def __init__(self, location: ArchiveLocation) -> None:
        self.location = location

    format = TableFormat.PARQUET
    data_directory = ""

    @classmethod
    def create(
        cls, location: ArchiveLocation, schema: pa.Schema, partition_by: Sequence[str]
    ) -> ParquetArchive:
        """Makes the table, unless someone has."""
        description = {
            "formatVersion": FORMAT_VERSION,
            "partitionBy": list(partition_by),
            "columns": [{"name": column.name, "type": str(column.type)} for column in schema],
            "arrowSchema": base64.b64encode(schema.serialize().to_pybytes()).decode(),
        }
        small_objects(location).put_if_absent(TABLE, _json(description))
        return cls(location)

    @cached_property
    def _description(self) -> Document:
        content = self._objects.read(TABLE)
        if content is None:
            raise ArchiveError(f"{self.location} is no archive: there is no {TABLE}")
        description = _parsed(content, self.location, TABLE)
        if description.get("formatVersion") != FORMAT_VERSION:
            raise ArchiveError(
                f"{self.location} has the manifest format {description.get('formatVersion')}, which this version of Odradek"
                " does not know: use a newer one"
            )
        return description

    @cached_property
    def schema(self) -> pa.Schema:
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(self._description["arrowSchema"])))

    @cached_property
    def partition_by(self) -> tuple[str, ...]:
        return tuple(self._description["partitionBy"])

    @property
    def file_schema(self) -> pa.Schema:
        return pa.schema([column for column in self.schema if column.name not in self.partition_by])

    def state(self) -> ArchiveState:
        now = self.newest()
        return now.state()

    def files(self) -> list[DataFile]:
        return list(self.newest().files.values())

    def append(self, batch: NewBatch, after: ArchiveState) -> None:
        make_durable(self.location, [file.path for file in batch.files])
        self._put(
            after.version + 1,
            {
                "sink": batch.id.sink,
                "query": batch.id.query,
                "batch": batch.id.batch,
                "archived": [_range_document(span) for span in after.after(batch).values()],
                **_ids_document(after.new_topic_ids(batch)),
                "add": [_file_document(file) for file in batch.files],
            },
        )

    def replace(self, old: Sequence[DataFile], new: Sequence[DataFile]) -> None:
        now = self.newest()
        gone = [file.path for file in old if file.path not in now.files]
        if gone:
            raise MissingFiles(f"{self.location}: {gone[0]} is not part of the table any more")
        make_durable(self.location, [file.path for file in new])
        removed, added = [file.path for file in old], [_file_document(file) for file in new]
        self._put(now.version + 1, {"remove": removed, "add": added, "atMs": SystemClock().wall_ms()})

    def expire(self, before_ms: int, *, dry_run: bool) -> Expired:
        now = self.newest()
        replaced = [path for path, at_ms in now.removed.items() if at_ms < before_ms]
        needed = now.files.keys() | (now.removed.keys() - set(replaced))
        files = [name for name in old_files(self.location, before_ms) if name not in needed]
        versions = self._old_versions(now.version, before_ms)
        if not dry_run:
            remove_files(self.location, files)
            if replaced:
                self._put(now.version + 1, {"forget": replaced})
            for name in versions:  # in order: a commit is there as long as the one before it (see _put)
                self._objects.remove(name)
        return Expired(files=(*files, *versions), version_count=len(versions))

    def _old_versions(self, newest: int, before_ms: int) -> list[str]:
        """Commits whose sum is in a snapshot, and all snapshots but the last."""
        snapshots = self._objects.names(SNAPSHOTS)
        if not snapshots:
            return []
        summed = min(_number(snapshots[-1]), newest)
        commits = [f"{COMMITS}/{name}" for name in self._objects.names(COMMITS) if _number(name) < summed]
        old = set(old_files(self.location, before_ms, (COMMITS, SNAPSHOTS)))
        return [
            name
            for name in (*commits, *(f"{SNAPSHOTS}/{snapshot}" for snapshot in snapshots[:-1]))
            if name in old
        ]

    def newest(self) -> ManifestVersion:
        """Returns the newest version."""
        for _ in range(LISTINGS_MAX):
            now = self._newest_snapshot()
            names = [name for name in self._objects.names(COMMITS) if _number(name) > now.version]
            contents = [self._objects.read(f"{COMMITS}/{name}") for name in names]
            if None not in contents:
                break
        else:
            raise ArchiveError(
                f"{self.location}: commits vanish while they are read; does someone remove files?"
            )
        for name, content in zip(names, contents, strict=True):
            now = after_commit(
                now, _parsed(content or b"", self.location, name), _number(name), self.location
            )
        return now

    @cached_property
    def _objects(self) -> SmallObjects:
        return small_objects(self.location)

    def __getstate__(self) -> Document:
        return {"location": self.location}

    def _put(self, version: int, document: Document) -> None:
        name = f"{COMMITS}/{version:020}.json"
        if not self._objects.put_if_absent(name, _json(document)):
            raise CommitConflict(f"{self.location}: version {version} was committed by someone else")
        if not self._is_reachable(version):
            self._objects.remove(name)
            raise CommitConflict(
                f"{self.location}: version {version} had been committed, and has expired since"
            )
        if version % SNAPSHOT_EVERY == SNAPSHOT_EVERY - 1:
            snapshot = _json(_snapshot_document(self.newest_up_to(version)))
            self._objects.put_if_absent(f"{SNAPSHOTS}/{version:020}.json", snapshot)

    def _is_reachable(self, version: int) -> bool:
        """Tells whether readers reach a commit: the one before it exists, or, for the first, no snapshot has replaced it.
        Commits after the first one are no sign: others may have followed it at once.
        """
        if version:
            return self._objects.has(f"{COMMITS}/{version - 1:020}.json")
        return not self._objects.names(SNAPSHOTS)

    def newest_up_to(self, version: int) -> ManifestVersion:
        """Returns the table as it was at a version that no expiry has removed."""
        now = self._newest_snapshot(version)
        for number in range(now.version + 1, version + 1):
            name = f"{COMMITS}/{number:020}.json"
            content = self._objects.read(name)
            if content is None:
                raise ArchiveError(f"{self.location}: {name} is missing, version {version} cannot be read")
            now = after_commit(now, _parsed(content, self.location, name), number, self.location)
        return now

    def _newest_snapshot(self, most: int | None = None) -> ManifestVersion:
        names = self._objects.names(SNAPSHOTS)
        for name in reversed(names):
            if most is None or _number(name) <= most:
                content = self._objects.read(f"{SNAPSHOTS}/{name}")
                if content is not None:
                    return _snapshot(_parsed(content, self.location, name), _number(name))
        return ManifestVersion()


def after_commit(
    now: ManifestVersion, commit: Document, version: int, location: ArchiveLocation
) -> ManifestVersion:
    """Returns the version after a commit."""
    if version != now.version + 1:
        raise ArchiveError(
            f"{location}: commit {now.version + 1} is missing, though commit {version} is there"
        )
    files = dict(now.files)
    removed = dict(now.removed)
    for path in commit.get("remove", ()):
        files.pop(path, None)
        removed[path] = commit["atMs"]
    files.update((added["path"], _file(added)) for added in commit.get("add", ()))
    batches, archived = dict(now.batches), dict(now.archived)
    if "sink" in commit:
        batches[commit["sink"], commit["query"]] = commit["batch"]
        archived.update((span.partition, span) for span in map(_range, commit["archived"]))
    for path in commit.get("forget", ()):
        removed.pop(path, None)
    return ManifestVersion(
        version=version,
        files=files,
        archived=archived,
        batches=batches,
        topic_ids={**now.topic_ids, **_ids(commit)},
        removed=removed,
    )


def _snapshot_document(now: ManifestVersion) -> Document:
    return {
        "files": [_file_document(file) for file in now.files.values()],
        "archived": [_range_document(span) for _, span in sorted(now.archived.items())],
        "batches": [[sink, query, batch] for (sink, query), batch in sorted(now.batches.items())],
        **_ids_document(now.topic_ids),
        "removed": dict(now.removed),
    }


def _snapshot(document: Document, version: int) -> ManifestVersion:
    return ManifestVersion(
        version=version,
        files={stored["path"]: _file(stored) for stored in document["files"]},
        archived={span.partition: span for span in map(_range, document["archived"])},
        batches={(sink, query): batch for sink, query, batch in document["batches"]},
        topic_ids=_ids(document),
        removed=dict(document["removed"]),
    )


def _ids_document(topic_ids: Mapping[str, UUID]) -> Document:
    """Returns the member of a document that holds topic ids; none where none are known."""
    return {TOPIC_IDS: {topic: str(topic_id) for topic, topic_id in topic_ids.items()}} if topic_ids else {}


def _ids(document: Document) -> dict[str, UUID]:
    return {topic: UUID(topic_id) for topic, topic_id in document.get(TOPIC_IDS, {}).items()}


def _file_document(file: DataFile) -> Document:
    return {
        "path": file.path,
        "bytes": file.size_bytes,
        "rows": file.row_count,
        "partition": dict(file.partition_values),
        "ranges": [_range_document(span) for span in file.ranges],
        "timestamps": file.timestamps_us,
    }


def _file(document: Document) -> DataFile:
    return DataFile(
        path=document["path"],
        size_bytes=document["bytes"],
        row_count=document["rows"],
        partition_values=tuple(document["partition"].items()),
        ranges=tuple(map(_range, document["ranges"])),
        timestamps_us=None if document["timestamps"] is None else tuple(document["timestamps"]),
    )


def _range_document(extent: OffsetRange) -> list[object]:
    return [extent.partition.topic, extent.partition.partition, extent.start, extent.end]


def _range(document: Sequence[Any]) -> OffsetRange:
    topic, number, start, end = document
    return OffsetRange(partition=TopicPartition(topic, number), start=start, end=end)


def _number(name: str) -> int:
    return int(name.partition(".")[0])


def _json(document: Document) -> bytes:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


def _parsed(content: bytes, location: ArchiveLocation, name: str) -> Document:
    try:
        document = json.loads(content)
    except ValueError as error:
        raise ArchiveError(f"{location}: {name} is not JSON ({error}): the manifest is damaged") from None
    if not isinstance(document, dict):
        raise ArchiveError(f"{location}: {name} is not a JSON object: the manifest is damaged")
    return document
