"""Spark's daemon of Python workers, with what they import already in memory: `python -m odradek.spark.warm_daemon [MODULE]`.

Spark's own daemon imports next to nothing, so each worker that it forks imports PySpark, pandas and Arrow for itself: 80 MB
and a second of CPU each. Forked from here, workers share those pages. `shared_planners.py` puts it in its place.
"""

from __future__ import annotations

import gc
import sys
from typing import Final

import pyarrow  # noqa: F401 - for the workers
from pyspark import daemon

from odradek.model.lazy import lazy
from odradek.spark import sink, source  # noqa: F401
from odradek.spark.reading import fetch  # noqa: F401

RUNNER: Final = "pyspark.worker"
"""The module of workers that run functions on frames; the others plan and write."""


def main(module: str) -> None:
    """Until Spark ends it. The daemon finds the module among the arguments of this process."""
    _ = lazy(module).main
    if module == RUNNER:
        _ = lazy("pandas").DataFrame
    gc.collect()
    gc.freeze()  # a collection in a worker would write into the shared pages
    daemon.manager()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else RUNNER)
