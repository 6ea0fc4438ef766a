"""Logs whose end is taken away: how tests fill, fetch into, and reopen them."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.config.topic import LogConfig
from odradek.records import read_header, split_batches
from odradek.records.batch import write_header

Lab = Any
LOG = "00000000000000000000.log"


def whole(log: Any) -> list[tuple[int, int, bytes]]:
    """Every batch: offset, epoch, bytes."""
    results: list[tuple[int, int, bytes]] = []
    offset = log.start_offset
    while offset < log.end_offset:
        read = log.read(offset, 1 << 20, end_offset=log.end_offset, at_least_one=True)
        for header, batch in split_batches(read.records):
            results.append((header.base_offset, header.partition_leader_epoch, bytes(batch)))
        offset = read.next_offset
    return results


def at(lab: Lab, offset: int, *values: bytes, epoch: int = 0, **more: Any) -> Any:
    """A batch as a leader's log has it."""
    copy = bytearray(lab.batch(*values, **more)[0][1])
    write_header(copy, read_header(copy)._replace(base_offset=offset, partition_leader_epoch=epoch))
    return read_header(copy), memoryview(copy)


def fetch(lab: Lab, log: Any, count: int, *, epoch: int, value: bytes = b"new") -> None:
    """As a follower does: when the files have followed a truncation."""
    if log.awaits_truncation:
        lab.flush(log)
    for _ in range(count):
        log.append_as_follower(
            [at(lab, log.end_offset, value + b"%d:" % log.end_offset + bytes(900), epoch=epoch)],
            now_ms=lab.now_ms,
        )


def fetch_one(lab: Lab, log: Any, *, epoch: int) -> None:
    log.append_as_follower([at(lab, log.end_offset, b"new", epoch=epoch)], now_ms=lab.now_ms)


def reopened(lab: Lab, log: Any, config: LogConfig, how: str, **more: Any) -> Any:
    if how == "closed":
        log.close()
        return lab.open(config, **more)
    if how == "killed":
        lab.kill()
    else:
        lab.flush(log)
        lab.cut_power()
    return lab.open(config, clean=False, **more)


RESTARTS = pytest.mark.parametrize("how", ["closed", "power cut", "killed"])
