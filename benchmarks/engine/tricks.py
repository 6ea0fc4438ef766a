"""What each trick of `spark/engine` saves: `python -m benchmarks.engine.tricks [--rounds 3] [--only NAME ...] [--json FILE]`.

One broker. In each round a program runs once with everything, and once without each trick alone, in another order each time;
each run is a process of its own, with a JVM of its own (`program.py`). Three figures of each run, in CPU seconds of
all its processes and in seconds:

- *cold*: from the start of the process to the first row of a query that counts;
- *warm*: a second query of the same kind, to its first row;
- *batch*: one micro-batch of one record, the mean of several.

A ratio is the figure without the trick, by the figure with everything of the same round: above 1 the trick pays. On a busy
machine the CPU seconds are the fairer figures.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Final

from benchmarks.engine.program import WITHOUT
from benchmarks.odradek_node import OdradekNode, serve_environment
from benchmarks.samples import Spread
from odradek.client import Admin, NewTopic, Producer

EVERYTHING: Final = "everything"
PHASES: Final = ("cold", "warm", "batch")
TOPIC: Final = "engine-tricks"
_PATIENCE_S: Final = 900.0
_ARCHIVE_WRITER: Final = "odradek.spark.engine.class_archive_writer"

Figures = dict[str, list[float]]
"""Seconds of CPU and of time, by phase."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="*", choices=sorted(WITHOUT), default=list(WITHOUT))
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    subprocess.run([sys.executable, "-m", _ARCHIVE_WRITER], check=True)  # does nothing where there is one
    rounds: list[dict[str, Figures]] = []
    with OdradekNode(settings={"log.cleaner.enable": "false"}) as node:
        with Admin(node.bootstrap) as admin, Producer(node.bootstrap) as producer:
            admin.create_topics([NewTopic(TOPIC, 1)])
            producer.send_and_wait(TOPIC, b"1", key=b"ann")
        for number in range(given.rounds):
            variants = [EVERYTHING, *given.only]
            random.Random(number).shuffle(variants)
            rounds.append({name: _run(node.bootstrap, name, f"{number}") for name in variants})
            if given.json is not None:
                given.json.write_text(json.dumps({"load": os.getloadavg()[0], "rounds": rounds}, indent=1))
    print("\n".join(_table(rounds, given.only)))


def _run(servers: str, variant: str, name: str) -> Figures:
    words = [sys.executable, "-m", "benchmarks.engine.program", servers, TOPIC, f"{variant}-{name}"]
    environment = {**serve_environment(), "MALLOC_ARENA_MAX": "2"}
    if variant != EVERYTHING:
        words.append(variant)
    done = subprocess.run(
        words,
        env=environment,
        stdout=subprocess.PIPE,
        start_new_session=True,
        timeout=_PATIENCE_S,
        check=True,
    )
    figures: Figures = json.loads(done.stdout.splitlines()[-1])
    print(variant, figures, file=sys.stderr, flush=True)
    return figures


def _table(rounds: list[dict[str, Figures]], names: list[str]) -> list[str]:
    """Ratios of CPU, then of time, by trick: the median of the rounds, the lowest and the highest."""
    lines = ["| without | " + " | ".join(f"{phase}: CPU | time" for phase in PHASES) + " |"]
    lines.append("|---|" + "---|" * 2 * len(PHASES))
    means = [
        " | ".join(
            f"{Spread.of(figures[EVERYTHING][phase][kind] for figures in rounds).median:.2f} s"
            for kind in (0, 1)
        )
        for phase in PHASES
    ]
    lines.append(f"| nothing: the figures | {' | '.join(means)} |")
    for name in names:
        cells = []
        for phase in PHASES:
            for kind in (0, 1):
                ratio = Spread.of(
                    figures[name][phase][kind] / figures[EVERYTHING][phase][kind] for figures in rounds
                )
                cells.append(f"{ratio.median:.2f} ({ratio.lowest:.2f}–{ratio.highest:.2f})")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


if __name__ == "__main__":
    main()
