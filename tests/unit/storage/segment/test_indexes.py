"""Indexes are caches: whatever happens to their files, answers stay right and the files are made again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from odradek.config.topic import LogConfig
from odradek.storage.dump import check_segment

Lab = Any
CONFIG = LogConfig(segment_bytes=20_000, index_interval_bytes=1500)

DAMAGES: dict[str, Callable[[bytes], bytes | None]] = {
    "missing": lambda data: None,
    "empty": lambda data: b"",
    "zeros": lambda data: bytes(len(data)),
    "cut within an entry": lambda data: data[: len(data) // 2 // 24 * 24 + 5],
    "cut between entries": lambda data: data[: len(data) // 2 // 24 * 24],
    "garbage behind": lambda data: data + b"\x01\x02\x03",
    "zeros behind": lambda data: data + bytes(240),
    "noise behind": lambda data: data + bytes(range(240)),
    "noise": lambda data: bytes(number * 37 % 256 for number in range(len(data))),
    "reversed": lambda data: data[::-1],
}


def times() -> Iterator[int]:
    number = 0
    while True:
        yield number * 10 + (number * 31) % 200
        number += 1


@pytest.fixture
def files(lab: Lab) -> dict[str, bytes]:
    """A closed log of several segments; what its index files hold."""
    log = lab.open(CONFIG)
    stamps = times()
    for _ in range(90):
        lab.append(log, bytes(900), timestamps=(lab.now_ms + next(stamps),))
    log.close()
    return {name: lab.read(name) for name in lab.names() if name.endswith("index")}


def check_answers(lab: Lab, log: Any) -> None:
    stamps = times()
    written = [lab.now_ms + next(stamps) for _ in range(90)]
    for offset in range(90):
        records = log.read(offset, 1, end_offset=90, at_least_one=True).records
        assert int.from_bytes(bytes(records[:8]), "big") == offset
    for timestamp in range(lab.now_ms, lab.now_ms + 1100, 50):
        expected = next((offset for offset in range(90) if written[offset] >= timestamp), None)
        offsets = log.offset_for_timestamp(timestamp)
        assert (offsets.offset if offsets else None) == expected


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "crashed"])
@pytest.mark.parametrize("kind", [".index", ".timeindex"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_index_is_made_again_as_it_was(
    lab: Lab, files: dict[str, bytes], damage: str, kind: str, clean: bool
) -> None:
    for name, data in files.items():
        if name.endswith(kind):
            damaged = DAMAGES[damage](data)
            if damaged is None:
                lab.disk.remove(f"/data/flights-0/{name}")
            else:
                lab.write(name, damaged)
    log = lab.open(CONFIG, clean=clean, recovery_point=0 if not clean else 90)
    check_answers(lab, log)
    log.close()
    assert {name: lab.read(name) for name in files} == files


def test_every_flipped_bit_of_an_index_leaves_the_answers_right(lab: Lab, files: dict[str, bytes]) -> None:
    for name in list(files)[:2]:
        data = files[name]
        for position in range(0, len(data), 3):
            flipped = bytearray(data)
            flipped[position] ^= 1 << (position * 5 % 8)
            lab.write(name, bytes(flipped))
            log = lab.open(CONFIG)
            check_answers(lab, log)
            log.close()
        lab.write(name, data)


def test_sound_indexes_are_not_made_again(lab: Lab, files: dict[str, bytes]) -> None:
    log = lab.open(CONFIG)
    lab.disk.points = []
    check_answers(lab, log)
    assert {point.operation for point in lab.disk.points} <= {"open", "pread"}


def test_an_index_that_cannot_be_written_is_kept_in_memory(lab: Lab, files: dict[str, bytes]) -> None:
    import errno

    from odradek.testing.sim import FailOperations

    name = "00000000000000000000.index"
    lab.write(name, b"")
    log = lab.open(CONFIG)
    lab.disk.faults.append(
        FailOperations(
            operations={"pwrite"}, error=errno.ENOSPC, remaining=99, path_test=lambda path: name in path
        )
    )
    check_answers(lab, log)


def test_the_files_agree_with_their_log(lab: Lab, files: dict[str, bytes]) -> None:
    for name in lab.segment_names():
        summary = check_segment(lab.disk, f"/data/flights-0/{name}")
        assert summary.problems == ()
        assert summary.offset_entry_count > 3


def test_an_active_segment_goes_on_after_a_restart_as_if_there_had_been_none(
    lab: Lab, files: dict[str, bytes]
) -> None:
    log = lab.open(LogConfig(index_interval_bytes=1500))
    for _ in range(5):
        lab.fill(log, 7)
        log.close()
        log = lab.open(LogConfig(index_interval_bytes=1500))
    log.close()
    name = lab.segment_names()[-1].removesuffix(".log")
    offsets, stamps = lab.read(f"{name}.index"), lab.read(f"{name}.timeindex")
    lab.open(LogConfig(index_interval_bytes=1500), clean=False).close()
    assert (lab.read(f"{name}.index"), lab.read(f"{name}.timeindex")) == (offsets, stamps)
