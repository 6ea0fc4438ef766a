"""State in a checkpoint, divided among more or fewer tasks: `python -m odradek.pipelines.repartitioning PARTITIONS CHECKPOINT`.

Spark does it offline, for one query's checkpoint at a time. The tasks of a streams program are not divided by Spark: see
decision 0044.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from odradek.model.errors import OdradekError
from odradek.pipelines.failure_line import failure_line
from odradek.pipelines.runner import RunnerTerms, light_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_OF_A_QUERY: Final = ("offsets", "state")


class NoState(OdradekError):
    """The error for a checkpoint that holds no state to divide."""


def checkpoints_with_state(directory: Path) -> list[Path]:
    """Returns the queries of a pipeline that keep state. NoState when there is none."""
    queries = sorted(
        query for query in directory.glob("*") if all((query / part).is_dir() for part in _OF_A_QUERY)
    )
    if not queries:
        raise NoState(f"{directory}: no query with state has a checkpoint there, on this machine")
    return queries


def repartition(spark: SparkSession, directory: Path, partitions: int) -> list[Path]:
    """Divides the state of all queries below a pipeline's checkpoint. They must not run. Gives what was changed."""
    queries = checkpoints_with_state(directory)
    for checkpoint in queries:
        spark._streamingCheckpointManager.repartition(str(checkpoint), partitions)
    return queries


def main(words: Sequence[str]) -> int:
    """Prints one line for each query, or what went wrong."""
    partitions, directory = int(words[0]), Path(words[1])
    try:
        checkpoints_with_state(directory)
        terms = RunnerTerms(name="repartition", servers="", checkpoint=str(directory), delivery="")
        for checkpoint in repartition(light_session(terms, None), directory, partitions):
            sys.stdout.write(f"{checkpoint}: {partitions} partitions\n")
    except OdradekError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    except Exception as error:  # noqa: BLE001 - the root of the process
        sys.stderr.write(f"{failure_line(str(error))}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
