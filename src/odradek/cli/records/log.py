"""`odradek log dump`: what the files of a log hold. It reads files, changes nothing, and needs no broker."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

import click

from odradek.cli.moments import time_text
from odradek.cli.options import json_option
from odradek.cli.output import print_json, print_table, remark, warn
from odradek.model.errors import ConfigError
from odradek.model.lazy import lazy
from odradek.runtime.ports import Disk
from odradek.storage import dump
from odradek.storage.files import naming

if TYPE_CHECKING:
    from odradek.cli.records import output
    from odradek.model.ids import TopicPartition
    from odradek.records import Record
    from odradek.runtime import real_disk
else:
    output = lazy("odradek.cli.records.output")
    real_disk = lazy("odradek.runtime.real_disk")

Row = dict[str, object]

_NOT_A_LOG: Final = (
    "is no part of a log: expected a data directory, a partition's directory, or a file in one that ends in "
    ".log, .index, .timeindex, .txnindex or .snapshot"
)


@click.group()
def log() -> None:
    """Look into the files of a log."""


@log.command("dump")
@click.argument("path", type=click.Path())
@click.option(
    "--records", is_flag=True, help="Print the records of a .log file, as `consume --json` prints them."
)
@json_option
@click.pass_context
def dump_(context: click.Context, path: str, records: bool, as_json: bool) -> None:
    """Show what files of a log hold, and where they contradict each other.

    PATH is a data directory (all segments of all partitions), a partition's directory (its segments), or a file: a
    .log (its batches), .index, .timeindex, .txnindex (their entries) or .snapshot (the producers). With --json: an object a
    line.
    The exit code is 1 if something is wrong with the files.
    """
    disk = real_disk.PosixDisk()
    path = os.path.abspath(path)
    if records:
        problems = _print_records(disk, path)
    elif os.path.isdir(path):
        problems = _print_segments(disk, path, as_json)
    else:
        problems = _print_file(disk, path, as_json)
    for problem in problems:
        warn(problem)
    context.exit(1 if problems else 0)


def _print_file(disk: Disk, path: str, as_json: bool) -> list[str]:
    file = naming.parse_offset_file(os.path.basename(path))
    rows = _FILES[file.kind] if file and file.kind in _FILES else None
    if rows is None:
        raise ConfigError(f"{path} {_NOT_A_LOG}")
    results = list(rows(disk, path))
    _print_rows(results, as_json)
    return [f"byte {row['position']}: {row['problem']}" for row in results if row.get("problem")]


def _print_rows(rows: list[Row], as_json: bool) -> None:
    if as_json:
        for row in rows:
            print_json(row)
    elif not rows:
        remark("it holds nothing")
    else:
        print_table(list(rows[0]), [list(row.values()) for row in rows])


def _print_segments(disk: Disk, path: str, as_json: bool) -> list[str]:
    directories = list(_partition_directories(path))
    if not directories:
        raise ConfigError(f"{path} {_NOT_A_LOG}")
    rows, problems = [], []
    for directory in directories:
        logs = list(_logs(directory))
        for log_path in logs:
            summary = dump.check_segment(disk, log_path, is_newest=log_path == logs[-1])
            rows.append(
                {
                    "partition": os.path.basename(directory),
                    "base": summary.base_offset,
                    "first": summary.first_offset,
                    "last": summary.last_offset,
                    "batches": summary.batch_count,
                    "records": summary.record_count,
                    "bytes": summary.size_bytes,
                    "from": time_text(summary.min_timestamp),
                    "to": time_text(summary.max_timestamp),
                    "index": summary.offset_entry_count,
                    "timeindex": summary.time_entry_count,
                    "problems": len(summary.problems),
                }
            )
            problems += [f"{log_path}: {problem}" for problem in summary.problems]
    _print_rows(rows, as_json)
    return problems


def _partition_directories(path: str) -> Iterator[str]:
    """Yields the directory itself if it is a partition's, else the directories of all partitions in it."""
    if naming.parse_partition_directory(os.path.basename(path)) and list(_logs(path)):
        yield path
        return
    for name in sorted(os.listdir(path)):
        directory = os.path.join(path, name)
        if os.path.isdir(directory) and naming.parse_partition_directory(name):
            yield directory


def _logs(directory: str) -> Iterator[str]:
    for name in sorted(os.listdir(directory)):
        file = naming.parse_offset_file(name)
        if file and file.kind == naming.LOG and not file.state:
            yield os.path.join(directory, name)


def _batches(disk: Disk, path: str) -> Iterator[Row]:
    for batch in dump.read_batches(disk, path):
        header = batch.header
        if header is None:
            yield dict.fromkeys(_BATCH_COLUMNS) | {"position": batch.position, "problem": batch.problem}
            continue
        flags = {"transactional": header.is_transactional, "control": header.is_control}
        if batch.marker is not None and batch.marker.kind is not None:
            flags[f"{batch.marker.kind.name.lower()} by {batch.marker.coordinator_epoch}"] = True
        cells = (
            batch.position,
            header.size_bytes,
            header.base_offset,
            header.last_offset,
            header.record_count,
            header.codec.name.lower(),
            time_text(header.max_timestamp),
            header.timestamp_type.name.lower(),
            header.partition_leader_epoch,
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            " ".join(name for name, there in flags.items() if there),
            batch.problem,
        )
        yield dict(zip(_BATCH_COLUMNS, cells, strict=True))


_BATCH_COLUMNS: Final = (
    "position", "bytes", "first", "last", "records", "codec", "newest", "clock", "epoch", "producer",
    "producer epoch", "sequence", "flags", "problem",
)  # fmt: skip


def _offset_entries(disk: Disk, path: str) -> Iterator[Row]:
    return (
        {"offset": entry.offset, "position": entry.position} for entry in dump.read_offset_index(disk, path)
    )


def _time_entries(disk: Disk, path: str) -> Iterator[Row]:
    for entry in dump.read_time_index(disk, path):
        yield {"timestamp": entry.timestamp, "time": time_text(entry.timestamp), "offset": entry.offset}


def _aborted_transactions(disk: Disk, path: str) -> Iterator[Row]:
    return (
        {
            "producer": entry.producer_id,
            "first": entry.first_offset,
            "last": entry.last_offset,
            "last stable": entry.last_stable_offset,
        }
        for entry in dump.read_transaction_index(disk, path)
    )


def _producers(disk: Disk, path: str) -> Iterator[Row]:
    for state in dump.read_snapshot(disk, path):
        yield {
            "producer": state.producer_id,
            "epoch": state.epoch,
            "last sequence": state.last_sequence,
            "batches": len(state.batches),
            "seen": time_text(state.seen_ms),
            "transaction from": state.transaction_first_offset,
            "coordinator epoch": state.coordinator_epoch,
        }


_FILES: Final[dict[str, Callable[[Disk, str], Iterator[Row]]]] = {
    naming.LOG: _batches,
    naming.OFFSET_INDEX: _offset_entries,
    naming.TIME_INDEX: _time_entries,
    naming.TRANSACTION_INDEX: _aborted_transactions,
    naming.SNAPSHOT: _producers,
}


def _print_records(disk: Disk, path: str) -> list[str]:
    """Prints the records of a `.log` file as JSON lines; returns what cannot be read as problems."""
    file = naming.parse_offset_file(os.path.basename(path))
    if file is None or file.kind != naming.LOG:
        raise ConfigError(f"{path}: only a .log file holds records")
    partition = naming.parse_partition_directory(os.path.basename(os.path.dirname(path)))
    to_bytes = output.formatter(output.Layout(format="json"))
    out = sys.stdout.buffer
    problems = []
    for batch in dump.read_batches(disk, path, with_records=True):
        if batch.problem:
            problems.append(f"byte {batch.position}: {batch.problem}")
        for record in batch.records or ():
            out.write(to_bytes(DumpedRecord(record, partition)))
    out.flush()
    return problems


class DumpedRecord:
    """A record in a file, with the names that `consume` has for its parts."""

    __slots__ = ("headers", "key", "offset", "partition", "timestamp_ms", "topic", "value")

    def __init__(self, record: Record, partition: TopicPartition | None) -> None:
        self.topic = partition.topic if partition else ""
        self.partition = partition.partition if partition else -1
        self.offset = record.offset
        self.timestamp_ms = record.timestamp
        self.key = record.key
        self.value = record.value
        self.headers = record.headers
