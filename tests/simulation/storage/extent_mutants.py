"""Planted bugs of what is written down of durable logs. The bank and its use are in `bank.py`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

from tests.simulation.mutant import Patches, mutant

from odradek.storage.directories.checkpointing import Checkpointing
from odradek.storage.directories.extent_file import ExtentFile
from odradek.storage.directories.log_directory import LogDirectory
from odradek.storage.files import extents
from odradek.storage.files.extents import Extents, ExtentsRead
from odradek.storage.log.durability import Durability
from odradek.storage.log.log import Log
from odradek.storage.log.small_files import SmallFiles
from odradek.storage.recovery.start_loader import StartLoader


@mutant("the extents of logs are never written")
def extents_not_written() -> Patches:
    def replace(self: ExtentFile, said: Extents, checkpoints: Sequence[bytes]) -> None:
        self.content = dict(said)

    yield patch.object(ExtentFile, "replace", replace)


@mutant("the extents follow the log's end, not what is durable")
def extents_ahead() -> Patches:
    real = Durability.extent

    def extent(self: Durability, damage_offset: int | None) -> Any:
        durable = real(self, damage_offset)
        return durable._replace(end_offset=self._segments.end_offset) if durable is not None else None

    yield patch.object(Durability, "extent", extent)


@mutant("a truncation leaves the extent of its log where it was", "follower")
def extents_not_lowered() -> Patches:
    real = Checkpointing._changed_extent

    def changed_extent(self: Checkpointing, directory: LogDirectory, opened: Log) -> Any:
        name = opened.topic_partition
        known = directory.extents.get(name)
        extent = real(self, directory, opened)
        if extent is None or known is None or extent.end_offset >= known.end_offset:
            return extent
        directory.extents[name] = known
        return None

    yield patch.object(Checkpointing, "_changed_extent", changed_extent)


@mutant("a write of extents that waited its turn goes on though its directory failed meanwhile")
def failed_directory_written() -> Patches:
    async def write_extents(self: Checkpointing, directory: LogDirectory) -> bool:
        async with self._writing:
            changed = await self._changed_extents(directory)
            if not changed and not directory.has_unwritten_extents:
                return True
            try:
                await self._offload.run(directory.extents_job(changed))
            except OSError as error:
                self._on_error(directory, error)
            return True

    yield patch.object(Checkpointing, "_write_extents", write_extents)


@mutant("no one looks whether a log's first segment is missing")
def first_segment_not_missed() -> Patches:
    yield patch.object(StartLoader, "missing_from", lambda self, names: None)


@mutant(
    "segments are deleted before it is durable that the log begins behind them, and their new names count for nothing"
)
def deleted_without_a_word() -> Patches:
    real = SmallFiles.write_start

    def write_start(self: SmallFiles) -> None:
        segments = self._context.segments
        if segments.start_offset > segments.base_offset:
            real(self)

    yield patch.object(SmallFiles, "write_start", write_start)
    yield patch.object(StartLoader, "note_deletions", lambda self, names: False)


@mutant(
    "a block that was torn is believed",
    aside="a log's name comes last in its entry, so that a torn block speaks of none; unit tests cut and flip every byte",
)
def torn_extents_believed() -> Patches:
    def next_body(data: bytes, position: int, crc_before: int) -> tuple[bytes | None, int, int]:
        start = position + 8
        if start > len(data):
            return None, position, crc_before
        length = int.from_bytes(data[position : position + 4], "big")
        return data[start : start + length].ljust(length, b"\0"), start + length, crc_before

    yield patch.object(extents, "_next_body", next_body)


@mutant(
    "extents are believed beside checkpoints that they do not belong to",
    aside="no crash brings an older file back: that takes a person",
)
def extents_of_another_time_believed() -> Patches:
    yield patch.object(ExtentsRead, "go_with", lambda self, checkpoint: True)
