"""Files that an interrupted deletion, replacement or compaction left in a partition's directory.

`.deleted`, `.cleaned` and `.tmp` are removed: their writer did not finish, or wanted to remove them. A log's
`.swap` is a compaction that did finish: the file replaces every segment that begins within the offsets it
covers. One that is damaged, or belongs to a compaction of which a part is still `.cleaned` (and so had not
all of its files yet), is removed instead and the originals stay. An index without its log is removed, too.

The transaction index of a compaction cannot be rebuilt (the batches that it refers to were removed), and it
got its own name before the log did (`cleaning/target.py`). So where there is no `.swap` of it, the file under
its name is the right one.
"""

from __future__ import annotations

from typing import Final

from odradek.runtime.ports import Disk
from odradek.storage.files import naming
from odradek.storage.recovery.segment_scan import scan_file
from odradek.telemetry import events

log = events.get("storage")

_UNFINISHED: Final = (naming.DELETED, naming.CLEANED, naming.TEMPORARY)


def clear_leftovers(disk: Disk, directory: str, names: list[str]) -> list[str]:
    """Cleans the directory up, durably; returns the names that are there afterwards."""
    doomed = [name for name in names if name.endswith(_UNFINISHED)]
    swaps = [name for name in names if name.endswith(naming.SWAP)]
    cleaned = [
        file.offset
        for name in names
        if name.endswith(naming.CLEANED) and (file := naming.parse_offset_file(name))
    ]
    if doomed or swaps:
        log.info("leftovers_found", directory=directory, names=doomed + swaps)
    for name in doomed:
        disk.remove(naming.join(directory, name))
    if swaps:
        _finish_swaps(disk, directory, swaps, min(cleaned, default=None))
    if doomed or swaps:
        disk.sync_directory(directory)
        names = disk.list_directory(directory)
    return _without_orphans(disk, directory, names)


def _finish_swaps(disk: Disk, directory: str, swaps: list[str], first_unfinished: int | None) -> None:
    for name in swaps:
        file = naming.parse_offset_file(name)
        path = naming.join(directory, name)
        unfinished = file is None or (first_unfinished is not None and file.offset >= first_unfinished)
        if file is None or unfinished or file.kind != naming.LOG:
            continue
        end_offset = _end_of_whole_log(disk, path, file.offset)
        if end_offset is None:
            log.warning("swap_damaged", path=path)
            continue
        _put_in_place(disk, directory, file.offset, end_offset)
    for name in disk.list_directory(directory):
        if name.endswith(naming.SWAP):
            disk.remove(
                naming.join(directory, name)
            )  # unfinished, damaged, or an index that can be made again


def _put_in_place(disk: Disk, directory: str, first_offset: int, end_offset: int) -> None:
    """Puts the swap files in place in the order of `cleaning/target.py`, each step durable before the next: this may be
    interrupted, too."""

    def path(kind: str) -> str:
        return naming.join(directory, naming.offset_file(first_offset, kind))

    others = [
        file.offset
        for name in disk.list_directory(directory)
        if (file := naming.parse_offset_file(name)) and not file.state and file.kind == naming.LOG
        if first_offset < file.offset < end_offset
    ]
    for offset in others:
        disk.remove(naming.join(directory, naming.offset_file(offset, naming.LOG)))
    disk.sync_directory(directory)
    for kind in naming.INDEX_SUFFIXES:
        if disk.exists(path(kind) + naming.SWAP):
            disk.rename(path(kind) + naming.SWAP, path(kind))
        elif kind != naming.TRANSACTION_INDEX and disk.exists(path(kind)):
            disk.remove(path(kind))  # of the original, or in its place already: it is made again
    disk.sync_directory(directory)
    disk.rename(path(naming.LOG) + naming.SWAP, path(naming.LOG))
    disk.sync_directory(directory)


def _end_of_whole_log(disk: Disk, path: str, base_offset: int) -> int | None:
    file = disk.open(path, write=False)
    try:
        scanned = scan_file(file, base_offset, file.length(), index_interval_bytes=0)
    finally:
        file.close()
    return scanned.next_offset if scanned.problem is None else None


def _without_orphans(disk: Disk, directory: str, names: list[str]) -> list[str]:
    logs = {
        file.offset for name in names if (file := naming.parse_offset_file(name)) and file.kind == naming.LOG
    }
    remaining = []
    for name in names:
        file = naming.parse_offset_file(name)
        if file is not None and file.kind in naming.INDEX_SUFFIXES and file.offset not in logs:
            disk.remove(naming.join(directory, name))
        else:
            remaining.append(name)
    return remaining
