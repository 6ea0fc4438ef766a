"""The application transactions of a Delta table, all of them: `deltalake` tells only one whose name is known.

Source: Delta's protocol, "Delta Log Entries", "Checkpoints" and "Transaction Identifiers". A checkpoint holds the newest
transaction of each application; what came after it is in one JSON file per version.
"""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import pyarrow.parquet as pq
from pyarrow import fs

from odradek.archive.store.location import ArchiveLocation
from odradek.archive.store.values import ArchiveError

LOG: Final = "_delta_log"
_COMMIT: Final = re.compile(r"([0-9]{20})\.json")
_CHECKPOINT: Final = re.compile(r"([0-9]{20})\.checkpoint(?:\..+)?\.(parquet|json)")
_READERS: Final = 8
"""Commits that are read at the same time."""


def application_transactions(location: ArchiveLocation, version: int) -> dict[str, int]:
    """Returns the version that each application has committed last, as of a version of the table."""
    system = location.file_system()
    names = [info.base_name for info in system.get_file_info(fs.FileSelector(location.within(LOG)))]
    checkpoints = [match for match in map(_CHECKPOINT.fullmatch, names) if match and int(match[1]) <= version]
    newest = max((int(checkpoint[1]) for checkpoint in checkpoints), default=-1)
    versions: dict[str, int] = {}
    for match in checkpoints:
        if int(match[1]) == newest:
            versions |= _of_checkpoint(system, location.within(f"{LOG}/{match[0]}"))
    commits = [
        name for name in sorted(names) if _COMMIT.fullmatch(name) and newest < int(name[:20]) <= version
    ]
    missing = set(range(newest + 1, version + 1)) - {int(name[:20]) for name in commits}
    if missing:
        raise ArchiveError(
            f"{location}: version {min(missing)} is missing from {LOG}, so version {version} cannot be read"
        )
    with ThreadPoolExecutor(_READERS) as threads:
        for transactions in threads.map(
            lambda name: _of_lines(system, location.within(f"{LOG}/{name}")), commits
        ):
            versions |= transactions
    return versions


def _of_checkpoint(system: fs.FileSystem, path: str) -> dict[str, int]:
    if path.endswith(".json"):
        return _of_lines(system, path)
    with system.open_input_file(path) as file:
        parquet = pq.ParquetFile(file)
        if "txn" not in parquet.schema_arrow.names:
            return {}
        column = parquet.read(columns=["txn.appId", "txn.version"])["txn"]
    return {
        transaction["appId"]: transaction["version"]
        for transaction in column.drop_null().to_pylist()
        if transaction["appId"] is not None
    }


def _of_lines(system: fs.FileSystem, path: str) -> dict[str, int]:
    with system.open_input_stream(path) as file:
        actions = [json.loads(line) for line in file.read().splitlines() if line.strip()]
    return {action["txn"]["appId"]: action["txn"]["version"] for action in actions if "txn" in action}
