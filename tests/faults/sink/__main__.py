"""`python -m tests.faults.sink --kills 200`: an exactly-once sink, all parts of which are killed at random moments."""

from __future__ import annotations

import argparse
import json
import math
import random
import signal
import sys
import tempfile
from pathlib import Path
from typing import TextIO

from tests.faults.sink.planted import PLANTED
from tests.faults.sink.program import PLAIN, SPARK
from tests.faults.sink.run import BROKER, COORDINATOR, DRIVER, WORKER, Result, Terms, run

from odradek.spark.engine.java import find_java

_SPARK_WEIGHTS = {DRIVER: 15, WORKER: 45, BROKER: 20, COORDINATOR: 20}
_PLAIN_WEIGHTS = {DRIVER: 40, WORKER: 30, BROKER: 10, COORDINATOR: 20}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.sink", description=__doc__)
    parser.add_argument("--kills", type=int, default=200, help="of what runs a query on Spark (200)")
    parser.add_argument(
        "--plain-kills", type=int, default=400, help="of what runs the same query without Spark (400)"
    )
    parser.add_argument(
        "--single", type=int, default=50, help="of what runs a query on Spark with a single broker (50)"
    )
    parser.add_argument(
        "--planted",
        type=int,
        default=0,
        metavar="KILLS",
        help="so many for each planted mistake, to see that it is found",
    )
    parser.add_argument(
        "--minutes",
        type=float,
        default=math.inf,
        help="of each run on Spark: no more kills after that (no end)",
    )
    parser.add_argument("--seed", type=int, default=None, help="which kills, in which order (drawn)")
    parser.add_argument("--keep", type=Path, help="a directory for data and logs, kept")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where the results go as JSON, too")
    chosen = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # and what was started is ended
    seed = chosen.seed if chosen.seed is not None else random.SystemRandom().randrange(1 << 31)
    wanted = []
    if chosen.plain_kills:
        wanted.append(Terms(program=PLAIN, kills=chosen.plain_kills, seed=seed, weights=_PLAIN_WEIGHTS))
    problem = find_java().problem if chosen.kills or chosen.single else None
    if problem is not None:
        _say(f"absent: Spark: {problem}", sys.stderr)
    else:
        wanted += [
            Terms(
                program=SPARK,
                kills=kills,
                seed=seed,
                weights=_SPARK_WEIGHTS,
                rest_seconds=(0.2, 3.0),
                brokers=brokers,
                seconds_max=60 * chosen.minutes,
            )
            for kills, brokers in ((chosen.kills, 3), (chosen.single, 1))
            if kills
        ]
    results = [_run(terms, chosen.keep) for terms in wanted]
    missed = [name for name in PLANTED if chosen.planted and not _finds(name, chosen.planted, seed)]
    if missed:
        _say(f"planted, and not found: {', '.join(missed)}", sys.stdout)
    if chosen.json is not None:
        chosen.json.parent.mkdir(parents=True, exist_ok=True)
        chosen.json.write_text(json.dumps([outcome.as_json() for outcome in results], indent=2) + "\n")
    return 0 if all(run_result.is_clean for run_result in results) and not missed else 1


def _finds(name: str, kills: int, seed: int) -> bool:
    terms = Terms(
        program=PLAIN,
        kills=kills,
        seed=seed,
        weights={DRIVER: 70, WORKER: 30},
        rest_seconds=(0.1, 0.6),
        planted=name,
    )
    _say(f"planted: {name}", sys.stdout)
    return not _run(terms, None).is_clean


def _run(terms: Terms, keep: Path | None) -> Result:
    with tempfile.TemporaryDirectory(prefix="odradek-sink-") as temporary:
        name = terms.program.module.rpartition(".")[2]
        directory = (keep or Path(temporary)) / f"{name}-{terms.brokers}"
        directory.mkdir(parents=True, exist_ok=True)
        run_result = run(terms, directory, tell=lambda line: _say(line, sys.stderr))
    _say(run_result.text(), sys.stdout)
    return run_result


def _say(line: str, stream: TextIO) -> None:
    stream.write(f"{line}\n")
    stream.flush()


if __name__ == "__main__":
    sys.exit(main())
