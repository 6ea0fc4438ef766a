"""Compaction of small files into large ones: the same rows, in fewer files, in commits that readers see whole or not at all."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from odradek.archive.files.data_files import layout_of, write_files
from odradek.archive.files.extent_index import sort_key
from odradek.archive.files.reading import FileReader
from odradek.archive.store.values import ArchiveError, CommitConflict, DataFile, MissingFiles, PartitionValues
from odradek.archive.tables.port import ArchiveTable
from odradek.runtime.real import SystemEntropy

log: Final = logging.getLogger("odradek.archive")

SMALL: Final = 0.75
"""A file below this part of the wanted size is small."""
ATTEMPTS_MAX: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionResult:
    """The result of a compaction. Bytes are the sizes of the files before and after."""

    removed_count: int = 0
    added_count: int = 0
    removed_bytes: int = 0
    added_bytes: int = 0
    skipped_count: int = 0
    """Groups whose files someone else replaced meanwhile."""


def plan_compaction(files: Sequence[DataFile], file_bytes: int) -> list[tuple[DataFile, ...]]:
    """Returns groups of small files of one partition, neighbours by offset, each to become one file of about `file_bytes`."""
    small: dict[PartitionValues, list[DataFile]] = defaultdict(list)
    for file in files:
        if file.size_bytes < SMALL * file_bytes:
            small[file.partition_values].append(file)
    groups: list[tuple[DataFile, ...]] = []
    for listed in small.values():
        groups += _grouped(sorted(listed, key=sort_key), file_bytes)
    return [group for group in groups if len(group) > 1]


def _grouped(files: Sequence[DataFile], file_bytes: int) -> Iterator[tuple[DataFile, ...]]:
    group: list[DataFile] = []
    total = 0
    for file in files:
        if group and total + file.size_bytes > file_bytes:
            yield tuple(group)
            group, total = [], 0
        group.append(file)
        total += file.size_bytes
    if group:
        yield tuple(group)


def compact(table: ArchiveTable, file_bytes: int) -> CompactionResult:
    """Makes one commit for each group of small files. Others may commit meanwhile; it leaves out groups that they changed."""
    done = CompactionResult()
    for group in plan_compaction(table.files(), file_bytes):
        new = _rewrite(table, group)
        try:
            _replace(table, group, new)
        except MissingFiles as gone:
            log.info("%s", gone)
            done = _sum(done, CompactionResult(skipped_count=1))
            continue
        done = _sum(
            done,
            CompactionResult(
                removed_count=len(group),
                added_count=len(new),
                removed_bytes=sum(file.size_bytes for file in group),
                added_bytes=sum(file.size_bytes for file in new),
            ),
        )
    return done


def _rewrite(table: ArchiveTable, group: Sequence[DataFile]) -> list[DataFile]:
    """Writes all rows of the files into new ones, in the order of the files. Nothing refers to the new ones yet."""
    system = table.location.file_system()
    reader = FileReader(location=table.location, schema=table.schema)
    layout = layout_of(table, sum(file.size_bytes for file in group) * 2)
    name = f"compact-{SystemEntropy().uuid().hex[:12]}"
    new = write_files(system, table.location.path, name, layout, _rows(reader, group, system))
    if sum(file.row_count for file in new) != sum(file.row_count for file in group):
        raise ArchiveError(
            f"{table.location}: {len(group)} files hold {sum(file.row_count for file in new)} rows, but the table has"
            f" {sum(file.row_count for file in group)}; nothing was replaced. `odradek archive verify` looks into it"
        )
    return new


def _rows(reader: FileReader, group: Sequence[DataFile], system: object) -> Iterator[pa.RecordBatch]:
    for file in group:
        yield from reader.read(file, system)


def _replace(table: ArchiveTable, old: Sequence[DataFile], new: Sequence[DataFile]) -> None:
    for _ in range(ATTEMPTS_MAX):
        try:
            table.replace(old, new)
        except MissingFiles:
            raise
        except CommitConflict as conflict:
            log.info("compaction tries again: %s", conflict)
        else:
            return
    raise ArchiveError(
        f"compaction of {table.location} found no gap between others' commits in {ATTEMPTS_MAX} attempts"
    )


def _sum(total: CompactionResult, other: CompactionResult) -> CompactionResult:
    return CompactionResult(
        removed_count=total.removed_count + other.removed_count,
        added_count=total.added_count + other.added_count,
        removed_bytes=total.removed_bytes + other.removed_bytes,
        added_bytes=total.added_bytes + other.added_bytes,
        skipped_count=total.skipped_count + other.skipped_count,
    )
