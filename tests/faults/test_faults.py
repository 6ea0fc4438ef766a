"""The short form of `make faults`: kills, pauses and restarts, and nothing acknowledged is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("confluent_kafka")

from tests.faults.run import Terms, run


def test_nothing_acknowledged_is_lost_or_doubled_by_kills_pauses_and_restarts(tmp_path: Path) -> None:
    terms = Terms(seconds=10.0, seed=20, per_second=600, session_seconds=2.0, rest_seconds=(0.2, 1.0))

    run_result = run(terms, tmp_path)

    assert run_result.is_clean, run_result.text(0.0)
    assert run_result.findings.acknowledged_count > 1000
    assert run_result.faults  # how many there were, the machine decides
    assert run_result.work is not None
    assert run_result.work.copied_count > 100


def test_nothing_acknowledged_is_lost_when_a_brokers_disk_is_wiped_or_an_older_one(tmp_path: Path) -> None:
    terms = Terms(
        seconds=8.0,
        seed=3,
        per_second=300,
        session_seconds=2.0,
        rest_seconds=(0.1, 0.5),
        kinds=("wiped disk", "older copy of a disk"),
        faults_min=2,
    )

    run_result = run(terms, tmp_path)

    assert run_result.is_clean, run_result.text(0.0)
    assert run_result.findings.acknowledged_count > 500
    assert run_result.faults


def test_nothing_is_lost_in_a_secured_cluster_and_no_one_writes_without_a_right(tmp_path: Path) -> None:
    terms = Terms(
        seconds=8.0,
        seed=15,
        per_second=300,
        session_seconds=2.0,
        rest_seconds=(0.2, 1.0),
        kinds=("kill -9", "SIGSTOP, longer than the session", "restart"),
        secured=True,
    )

    run_result = run(terms, tmp_path)

    assert run_result.is_clean, run_result.text(0.0)
    assert run_result.findings.acknowledged_count > 500
    assert run_result.work is not None
    assert run_result.work.copied_count > 50
    assert run_result.access is not None
    assert run_result.access.stays > 0
    assert run_result.access.let_in > 0
    assert run_result.access.refused > 0
    assert run_result.access.refused_records > 0
