"""Which worker of `make test` runs which tests: a file stays with one worker, and long files come first.

Pytest-xdist deals out equal numbers of tests. Then every worker starts every shared fixture: a Spark session, a broker, a KDC.
Here all workers but one get files that share a Spark session: two of three, three of four. Workers that end early steal tests.
How long files take is in `durations.json`; `make durations` writes what the last `make test` measured.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import pytest
from xdist.scheduler import WorkStealingScheduling

DURATIONS_FILE: Final = Path(__file__).with_name("durations.json")
SECONDS_OF_A_TEST: Final = 0.05
"""The estimate for a test of a file that has no duration yet."""
SHARED_SESSIONS: Final = (
    ("tests/spark/sql/", "tests/sql/", "tests/streams/oracle/"),
    ("tests/spark/streams/", "tests/spark/walks/"),
    ("tests/spark/",),
)
"""Folders whose tests share one Spark session. The first entry that matches a file counts. With three workers, the last two
entries share one.
"""
OWN_PROCESSES: Final = frozenset(
    {
        "tests/spark/sql/test_sql_engine.py",
        "tests/spark/sql/test_sql_orders.py",
        "tests/sql/test_cases_on_server.py",
        "tests/sql/test_refused_on_server.py",
        "tests/spark/test_standalone_cluster.py",
        "tests/streams/oracle/test_batches.py",
    }
)
"""Files in those folders that use no shared session: their servers and drivers are processes of their own."""


def known_durations() -> dict[str, float]:
    """Returns the seconds of every file that took a while in the last full run."""
    durations: dict[str, float] = json.loads(DURATIONS_FILE.read_text())
    return durations


def session_of(file: str, workers: int) -> int | None:
    """Returns the number of the Spark session that the tests of a file share, or None. One worker at least starts no session,
    if there are three.
    """
    if file in OWN_PROCESSES:
        return None
    most = max(2, workers - 1)
    return next(
        (min(number, most - 1) for number, folders in enumerate(SHARED_SESSIONS) if file.startswith(folders)),
        None,
    )


def deal(names: Sequence[str], workers: int, durations: Mapping[str, float]) -> list[list[int]]:
    """Returns the indices of the tests of every worker, in the order in which it runs them.

    Files of one session go to one worker. Every other file goes to the worker with the least to do, the longest file first.
    """
    files: dict[str, list[int]] = {}
    for index, name in enumerate(names):
        files.setdefault(name.partition("::")[0], []).append(index)
    seconds = {file: durations.get(file, SECONDS_OF_A_TEST * len(indices)) for file, indices in files.items()}
    longest_first = sorted(files, key=lambda file: -seconds[file])  # equal ones stay shuffled
    with_session = {file: number for file in files if (number := session_of(file, workers)) is not None}
    loads = [0.0] * workers
    shares: list[list[int]] = [[] for _ in range(workers)]
    for file in [
        *(file for file in longest_first if file in with_session),
        *(file for file in longest_first if file not in with_session),
    ]:
        worker = with_session[file] % workers if file in with_session else loads.index(min(loads))
        loads[worker] += seconds[file]
        shares[worker] += files[file]
    return shares


class FileScheduling(WorkStealingScheduling):
    """Deals out whole files as `deal` says. Then idle workers steal tests from the end of the longest queue."""

    _is_dealt = False

    def check_schedule(self) -> None:
        """Deals out everything when it is called first."""
        if self.collection is not None and not self._is_dealt:
            self._is_dealt = True
            shares = deal(self.collection, len(self.nodes), known_durations())
            self.pending[:] = [index for share in shares for index in share]
            for node, share in zip(self.nodes, shares, strict=True):
                self._send_tests(node, len(share))
        super().check_schedule()


class MeasuredDurations:
    """Adds up how long the tests of each file take, in the process that starts the workers, and keeps it in pytest's cache."""

    CACHE_KEY: Final = "odradek/durations"

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._seconds: dict[str, float] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        file = report.nodeid.partition("::")[0]
        self._seconds[file] = self._seconds.get(file, 0.0) + report.duration

    def pytest_sessionfinish(self) -> None:
        cache = getattr(self._config, "cache", None)
        if cache is not None and self._seconds:
            cache.set(self.CACHE_KEY, {file: round(seconds, 2) for file, seconds in self._seconds.items()})
