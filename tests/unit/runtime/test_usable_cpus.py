"""The number of CPUs that a process may use follows its affinity and the limits of its control groups."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from odradek.runtime.real_process import usable_cpu_count

CPUS = 8
VERSION_2 = "0::/kubepods/pod/container"
VERSION_1 = "5:memory:/docker/a\n4:cpu,cpuacct:/docker/a"


@pytest.fixture(autouse=True)
def _eight_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(CPUS)), raising=False)


def usable(tmp_path: Path, own: str, files: dict[str, str]) -> int:
    (tmp_path / "own").write_text(f"{own}\n")
    for name, text in files.items():
        path = tmp_path / "groups" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    return usable_cpu_count(tmp_path / "groups", tmp_path / "own")


@pytest.mark.parametrize(
    ("own", "files", "count"),
    [
        ("0::/", {"cpu.max": "200000 100000"}, 2),
        ("0::/", {"cpu.max": "150000 100000"}, 2),
        ("0::/", {"cpu.max": "5000 100000"}, 1),
        ("0::/", {"cpu.max": "max 100000"}, CPUS),
        ("0::/", {"cpu.max": "6400000 100000"}, CPUS),
        (
            VERSION_2,
            {"kubepods/pod/container/cpu.max": "max 100000", "kubepods/pod/cpu.max": "300000 100000"},
            3,
        ),
        (VERSION_2, {"cpu.max": "400000 100000"}, 4),
        (VERSION_2, {}, CPUS),
        (VERSION_1, {"cpu/cpu.cfs_quota_us": "250000", "cpu/cpu.cfs_period_us": "100000"}, 3),
        (
            VERSION_1,
            {"cpu/docker/a/cpu.cfs_quota_us": "-1", "cpu/docker/a/cpu.cfs_period_us": "100000"},
            CPUS,
        ),
        (VERSION_1, {"memory/docker/a/cpu.max": "100000 100000"}, CPUS),
        ("0::/", {"cpu.max": "100000 0"}, CPUS),
        ("0::/", {"cpu.max": ""}, CPUS),
    ],
)
def test_a_limit_of_a_control_group_counts_where_it_is_less(
    tmp_path: Path, own: str, files: dict[str, str], count: int
) -> None:
    assert usable(tmp_path, own, files) == count


def test_without_control_groups_and_affinity_all_cpus_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert usable_cpu_count(tmp_path, tmp_path / "none") == CPUS
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert usable_cpu_count(tmp_path, tmp_path / "none") == 1
