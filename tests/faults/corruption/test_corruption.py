"""The short form of `python -m tests.faults.corruption`: some damage, and nothing acknowledged is lost or served wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("confluent_kafka")

from tests.faults.corruption.run import run


def test_damage_to_one_replica_loses_nothing_and_is_not_served(tmp_path: Path) -> None:
    kinds = [".log", "a partition's directory", "replication-offset-checkpoint"]

    run_result = run(2, 3, tmp_path, kinds=kinds, seconds=1.0)

    assert run_result.is_clean, run_result.text()
    assert run_result.damages.total() >= 3


def test_what_is_lost_just_at_a_kill_comes_back_from_the_others(tmp_path: Path) -> None:
    kinds = ["first segment", "last segment", "end of the last segment"]

    run_result = run(2, 4, tmp_path, kinds=kinds, seconds=1.0)

    assert run_result.is_clean, run_result.text()
    assert run_result.damages.total() >= 3
