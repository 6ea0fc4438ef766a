"""A session of tests whose planners and workers start warm: `python -m tests.spark.programs.planners DIRECTORY` has them.

That process prints the path of the Python which Spark uses, and ends with its standard input. In the process of the tests,
planners would meet its fixtures and its filters of warnings.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from odradek.spark.engine.shared_planners import SharedPlanners

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PYTHONS: Final = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
"""Variables that a JVM and a session read while they start."""
_HOME: Final = ("SPARK_HOME", "SPARK_SUBMIT_OPTS")
"""The engine has its own home, and keeps compiled classes there."""
_TRACED: Final = "ODRADEK_WALK"
"""Workers whose calls are recorded (`tests/spark/walks`) start as Python does: those that are forked would record nothing."""
_WORKERS_USE: Final = (
    "odradek.archive.history.read_through",
    "odradek.sql.functions.registering",
    "odradek.streams.translation.translator",
)
_ROOT: Final = Path(__file__).resolve().parents[3]


@contextmanager
def session_with_planners(make: Callable[[], SparkSession]) -> Iterator[SparkSession]:
    """Yields the session that `make` starts, and stops it. The SQL server has such a session."""
    with _planners() as python:
        with pytest.MonkeyPatch.context() as environment:
            for name in PYTHONS:
                environment.setenv(name, python)
            for name in _HOME:
                environment.delenv(name, raising=False)
            session = make()
        try:
            yield session
        finally:
            session.stop()


@contextmanager
def _planners() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="odradek-planners-") as directory:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.programs.planners", directory],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=_ROOT,
        )
        with process:  # leaving it closes standard input, and waits
            assert process.stdout is not None
            python = process.stdout.readline().strip()
            assert python, "the planners did not start"
            yield python


def main() -> None:
    directory = Path(sys.argv[1])
    planners = SharedPlanners(directory, workers_use=_WORKERS_USE)
    python = directory / "traceable"
    python.write_text(
        f'#!/bin/sh\n[ -n "${_TRACED}" ] && exec {shlex.quote(sys.executable)} "$@"\nexec {planners.python} "$@"\n'
    )
    python.chmod(0o700)
    sys.stdout.write(f"{python}\n")
    sys.stdout.flush()
    sys.stdin.read()
    planners.close()


if __name__ == "__main__":
    main()
