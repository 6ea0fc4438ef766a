"""An archive's manifests for other engines: lists of its files, for those that read Parquet but not its table format.

Athena, Trino and Hive take symlink manifests: for each partition a text file with the URIs of its files. Redshift takes one
JSON manifest, for COPY and for external tables. A list is as new as its writing: write it again after each run.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from enum import StrEnum
from typing import Final

from odradek.archive.files.data_files import partition_path
from odradek.archive.store.object_store import small_objects
from odradek.archive.store.values import DataFile
from odradek.archive.tables.leftovers import list_files
from odradek.archive.tables.port import ArchiveTable

SYMLINKS: Final = "_symlink_format_manifest"
REDSHIFT: Final = "_redshift_manifest/manifest"


class ListStyle(StrEnum):
    ATHENA = "athena"
    REDSHIFT = "redshift"


def write_file_list(table: ArchiveTable, style: ListStyle) -> str:
    """Writes the list of the newest version; its name below the archive's root (Athena: of the directory)."""
    objects = small_objects(table.location)
    lists = file_lists(table.location.url, table.files(), style)
    for name, content in lists.items():
        objects.put(name, content)
    if style is ListStyle.REDSHIFT:
        return REDSHIFT
    for name in list_files(table.location, SYMLINKS):
        if name not in lists:
            objects.remove(name)
    return SYMLINKS


def file_lists(root: str, files: Sequence[DataFile], style: ListStyle) -> dict[str, bytes]:
    """Names and contents."""
    if style is ListStyle.REDSHIFT:
        entries = [
            {"url": f"{root}/{file.path}", "mandatory": True, "meta": {"content_length": file.size_bytes}}
            for file in files
        ]
        return {REDSHIFT: json.dumps({"entries": entries}, indent=1).encode()}
    by_partition: dict[str, list[str]] = defaultdict(list)
    for file in files:
        by_partition[partition_path(file.partition_values)].append(f"{root}/{file.path}\n")
    if not by_partition:
        by_partition[""] = []
    return {
        f"{SYMLINKS}/{partition}manifest": "".join(sorted(lines)).encode()
        for partition, lines in by_partition.items()
    }
