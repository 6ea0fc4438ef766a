"""A log that was closed cleanly opens without being read."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.config.topic import LogConfig
from odradek.storage.files.open_files import OpenFiles

Lab = Any
CONFIG = LogConfig(segment_bytes=3_000, index_interval_bytes=1000)


@pytest.fixture
def many(lab: Lab) -> int:
    """A closed log of some hundred segments; how many."""
    log = lab.open(CONFIG)
    lab.fill(log, 1000)
    log.close()
    return int(log.segment_count)


def test_only_the_last_segment_is_opened(lab: Lab, many: int) -> None:
    lab.disk.points = []
    log = lab.open(CONFIG)
    assert log.segment_count == many > 400
    assert log.end_offset == 1000
    assert len([point for point in lab.disk.points if point.operation in ("open", "create")]) <= 4
    assert len(lab.disk.points) < 20


def test_open_files_are_bounded_however_many_segments_are_read(lab: Lab, many: int) -> None:
    files = OpenFiles(lab.disk, limit=7)
    log = lab.open(CONFIG, files=files)
    assert len(lab.values(log)) == 1000
    for offset in range(0, 1000, 3):
        log.read(offset, 10, end_offset=1000, at_least_one=True)
    assert len(files) == 7
    log.close()
    assert len(files) == 0


def test_a_closed_file_is_opened_again_and_a_missing_one_is_not_remembered(lab: Lab) -> None:
    files = OpenFiles(lab.disk, limit=2)
    for name in "abc":
        lab.write(name, name.encode())
    path = "/data/flights-0/"
    first = files.get(path + "a")
    assert files.get(path + "a") is first
    for name in "bc":
        files.get(path + name)
    assert files.get(path + "a").pread(9, 0) == b"a"
    files.forget(path + "a")
    lab.disk.remove(path + "a")
    with pytest.raises(FileNotFoundError):
        files.get(path + "a")
    assert len(files) <= 2
