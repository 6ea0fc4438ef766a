"""Whole files go to workers: those that share a Spark session to one, the others to the worker with the least to do."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests import durations
from tests.scheduling import (
    OWN_PROCESSES,
    SHARED_SESSIONS,
    MeasuredDurations,
    deal,
    known_durations,
    session_of,
)

ROOT = Path(__file__).parents[3]
NAMES = [
    *(f"tests/unit/test_a.py::test_{number}" for number in range(40)),
    *(f"tests/spark/test_write.py::test_{number}" for number in range(7)),
    *(f"tests/sql/test_cases.py::test_{number}" for number in range(9)),
    *(f"tests/spark/sql/test_sql_windows.py::test_{number}" for number in range(3)),
    *(f"tests/simulation/test_scenarios.py::test_{number}" for number in range(5)),
    *(f"tests/unit/test_b{number}.py::test_it" for number in range(30)),
]


def files_of(share: list[int]) -> list[str]:
    return list(dict.fromkeys(NAMES[index].partition("::")[0] for index in share))


@pytest.mark.parametrize("workers", [1, 2, 3, 4])
def test_every_test_is_dealt_once_and_a_file_is_not_split(workers: int) -> None:
    shares = deal(NAMES, workers, {})
    assert sorted(index for share in shares for index in share) == list(range(len(NAMES)))
    files = [file for share in shares for file in files_of(share)]
    assert len(files) == len(set(files))


def test_files_that_share_a_session_meet_in_one_worker() -> None:
    first, second, third = (files_of(share) for share in deal(NAMES, 3, {}))
    assert {"tests/sql/test_cases.py", "tests/spark/sql/test_sql_windows.py"} <= set(first)
    assert "tests/spark/test_write.py" in second
    assert not any(session_of(file, 3) is not None for file in third)


@pytest.mark.parametrize(("workers", "sessions"), [(1, 2), (2, 2), (3, 2), (4, 3), (5, 3)])
def test_all_workers_but_one_have_a_session(workers: int, sessions: int) -> None:
    folders = [folder for folders in SHARED_SESSIONS for folder in folders]
    numbers = [session_of(f"{folder}test_it.py", workers) for folder in folders]
    assert set(numbers) == set(range(sessions))


def test_the_longest_file_comes_first_and_the_load_is_even() -> None:
    seconds = {f"tests/unit/test_b{number}.py": float(number) for number in range(30)}
    shares = deal(NAMES, 3, {**seconds, "tests/simulation/test_scenarios.py": 100.0})
    loads = [sum(seconds.get(file, 0.0) for file in files_of(share)) for share in shares]
    assert any(files_of(share)[0] == "tests/simulation/test_scenarios.py" for share in shares)
    for share in shares:
        lengths = [seconds[file] for file in files_of(share) if file in seconds]
        assert lengths == sorted(lengths, reverse=True)
    assert max(loads) - min(loads) <= 100.0


def test_what_is_listed_is_there() -> None:
    assert known_durations()
    for file in OWN_PROCESSES:
        assert (ROOT / file).is_file()
    for folder in (folder for folders in SHARED_SESSIONS for folder in folders):
        assert (ROOT / folder).is_dir()


def test_a_run_of_two_workers_runs_everything(tmp_path: Path) -> None:
    """Runs a project of its own with the scheduler of this one: whole files, one worker each, and their durations."""
    (tmp_path / "tests").mkdir()
    for name in ("a", "b", "c", "d"):
        (tmp_path / f"tests/test_{name}.py").write_text(
            "import os\n\nimport pytest\n\n"
            "@pytest.mark.parametrize('number', range(6))\n"
            f"def test_it(number):\n    open('ran-{name}-' + os.environ['PYTEST_XDIST_WORKER'], 'a').close()\n"
        )
    (tmp_path / "conftest.py").write_text(
        f"import sys\nsys.path.insert(0, {str(ROOT)!r})\n"
        "import pytest\nfrom tests.scheduling import FileScheduling, MeasuredDurations\n"
        "def pytest_configure(config):\n"
        "    if not hasattr(config, 'workerinput'):\n"
        "        config.pluginmanager.register(MeasuredDurations(config))\n"
        "def pytest_xdist_make_scheduler(config, log):\n    return FileScheduling(config, log)\n"
    )
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-n",
        "2",
        "--dist",
        "worksteal",
        "--import-mode=importlib",
    ]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "24 passed" in ended.stdout, ended.stdout + ended.stderr
    assert {ran.name.split("-")[1] for ran in tmp_path.glob("ran-*")} == {"a", "b", "c", "d"}
    cache = tmp_path / ".pytest_cache/v"
    measured = json.loads((cache / MeasuredDurations.CACHE_KEY).read_text())
    assert set(measured) == {f"tests/test_{name}.py" for name in "abcd"}


def test_durations_of_a_full_run_are_kept_and_of_a_part_are_not(tmp_path: Path) -> None:
    kept = tmp_path / "durations.json"
    entry = tmp_path / MeasuredDurations.CACHE_KEY
    assert durations.main([], tmp_path, kept) == 1  # nothing was measured
    entry.parent.mkdir()
    entry.write_text(json.dumps({"tests/test_a.py": 9.0}))
    assert durations.main([], tmp_path, kept) == 1
    assert not kept.exists()
    entry.write_text(json.dumps({f"tests/test_{number}.py": number / 10 for number in range(500)}))
    assert durations.main([], tmp_path, kept) == 0
    assert min(json.loads(kept.read_text()).values()) >= durations.SHORTEST_S
