"""Programs with a JVM of their own, which tests start and kill."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from odradek.model.lazy import lazy
from odradek.spark.engine.unpacked_pyspark import PATIENT_WITH_WORKERS, unpacked_pyspark

if TYPE_CHECKING:
    from pyspark import errors, sql
    from pyspark.sql import SparkSession
else:
    errors = lazy("pyspark.errors")
    sql = lazy("pyspark.sql")

ROOT: Final = Path(__file__).resolve().parents[3]
LATE_WORKER: Final = "Python worker failed to connect back"
TRIES: Final = 3
_LAST_LINES: Final = 25


def own_session(master: str = "local[2]", **settings: str) -> SparkSession:
    """A light session. The names in `settings` have `__` for a dot."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    logging.getLogger("py4j").setLevel(logging.ERROR)
    conf: dict[str, Any] = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "OFF",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        **PATIENT_WITH_WORKERS,
        **{name.replace("__", "."): value for name, value in settings.items()},
    }
    with unpacked_pyspark():
        return sql.SparkSession.builder.master(master).config(map=conf).getOrCreate()


def run_patiently(run: Callable[[], object]) -> None:
    """Run a query, and run it again when Spark did not wait for a worker that it had started.

    Spark waits for ten seconds, and has no setting for it: on a busy machine that may be too short. The query goes on from
    its checkpoint, as it would for a user.
    """
    for _ in range(TRIES - 1):
        try:
            run()
        except errors.PySparkException as error:
            if LATE_WORKER not in str(error):
                raise
            sys.stderr.write(f"{LATE_WORKER}: the query is started again\n")
        else:
            return
    run()


def command(module: str, terms: Mapping[str, Any]) -> list[str]:
    """Returns the command that runs one of these programs, from `ROOT`."""
    return [sys.executable, "-m", module, json.dumps(terms)]


def last_lines(text: str) -> str:
    """Returns the end of a program's output: the error comes last, after the JVM's warnings and many lines of Java."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith(("at ", "...", "[Stage"))]
    return "\n".join(lines[-_LAST_LINES:])
