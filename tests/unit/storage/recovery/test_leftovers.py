"""What interrupted work left in a partition's directory."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.config.topic import LogConfig

Lab = Any
CONFIG = LogConfig(segment_bytes=20_000, index_interval_bytes=1500)


@pytest.fixture
def names(lab: Lab) -> list[str]:
    """The logs of four closed segments."""
    log = lab.open(CONFIG)
    lab.fill(log, 70)
    log.close()
    return lab.segment_names()


@pytest.mark.parametrize(
    "name",
    [
        "00000000000000000000.log.deleted",
        "00000000000000000000.index.deleted",
        "00000000000000000019.snapshot.deleted",
        "00000000000000000000.log.cleaned",
        "leader-epoch-checkpoint.tmp",
        "00000000000000000900.index",
        "00000000000000000900.timeindex",
        "00000000000000000900.snapshot",
    ],
)
@pytest.mark.parametrize("clean", [True, False])
def test_unfinished_and_orphaned_files_are_removed(
    lab: Lab, names: list[str], name: str, clean: bool
) -> None:
    lab.write(name, b"left over")
    log = lab.open(CONFIG, clean=clean)
    assert len(lab.values(log)) == 70
    assert name not in lab.names()


def test_files_of_others_and_cut_bytes_are_left_alone(lab: Lab, names: list[str]) -> None:
    for name in ("notes.txt", "00000000000000000000.log.77.cut"):
        lab.write(name, b"mine")
    lab.open(CONFIG, clean=False).close()
    assert {"notes.txt", "00000000000000000000.log.77.cut"} <= set(lab.names())


def test_a_finished_compaction_replaces_the_segments_that_it_covers(lab: Lab, names: list[str]) -> None:
    merged = b"".join(lab.read(name) for name in names[:3])
    lab.write(f"{names[0]}.swap", merged)
    lab.write(names[0].replace(".log", ".index.swap"), b"whatever")
    log = lab.open(CONFIG)
    assert lab.segment_names() == [names[0], names[3]]
    assert lab.read(names[0]) == merged
    assert not [name for name in lab.names() if name.endswith(".swap")]
    assert len(lab.values(log)) == 70
    assert log.offset_for_timestamp(0).offset == 0


def test_a_compaction_that_was_interrupted_while_it_replaced_is_finished(lab: Lab, names: list[str]) -> None:
    merged = b"".join(lab.read(name) for name in names[:3])
    lab.disk.remove(f"/data/flights-0/{names[1]}")
    lab.write(f"{names[0]}.swap", merged)
    assert len(lab.values(lab.open(CONFIG))) == 70


def test_a_damaged_replacement_is_thrown_away_and_the_originals_stay(lab: Lab, names: list[str]) -> None:
    merged = b"".join(lab.read(name) for name in names[:3])
    lab.write(f"{names[0]}.swap", merged[:-1])
    log = lab.open(CONFIG)
    assert lab.segment_names() == names
    assert len(lab.values(log)) == 70


def test_a_replacement_beside_unfinished_ones_is_thrown_away(lab: Lab, names: list[str]) -> None:
    lab.write(f"{names[1]}.swap", lab.read(names[1]))
    lab.write(f"{names[0]}.cleaned", b"x")
    log = lab.open(CONFIG)
    assert lab.segment_names() == names
    assert len(lab.values(log)) == 70
