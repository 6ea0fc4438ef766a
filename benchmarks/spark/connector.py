"""`python -m benchmarks.spark.connector`: `format("odradek")` beside Spark's own connector for Kafka, in one session.

Spark 4.2.0 has the newest connector that is published with all that it needs. It is fetched into the cache, the connector by
Maven and PySpark by pip; both formats run in it, in turn, on the same topics of one Odradek broker.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from benchmarks import load, report
from benchmarks.odradek_node import OdradekNode, serve_environment
from benchmarks.peer import PeerAbsentError, free_port
from benchmarks.peer.fetch import cache_directory, fetch_artifacts, java_command

SPARK: Final = "4.2.0"
CONNECTOR: Final = "spark-sql-kafka-0-10_2.13"
_OF_SPARK_ITSELF: Final = (
    "scala-library-*",
    "hadoop-*",
    "slf4j-*",
    "spark-tags_*",
    "lz4-*",
    "snappy-*",
    "jsr305-*",
)
_PROGRAM_SECONDS: Final = 3_600
_GOALS: Final = {
    "batch read, 100 B": 4.0,
    "batch read, 1024 B": 3.0,
    "micro-batches": 1.5,
    "batch write, 100 B": 2.0,
}
"""Ratios, by how the case begins."""
READY_MADE: Final = "ready-made"
"""The format of `benchmarks.spark.ready_made`, for reads: what is measured is Spark, and its way to Python."""
IDLE_GOAL_MB: Final = 60


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark.connector", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="after one to warm up (5)")
    parser.add_argument(
        "--scale", type=float, default=1.0, help="1: 2,000,000 rows of 100 B, 500,000 of 1 KiB (1)"
    )
    parser.add_argument(
        "--minutes", type=float, default=11.0, help="no round begins after so many, but the first (11)"
    )
    parser.add_argument(
        "--sockets",
        choices=("tcp", "unix"),
        default="tcp",
        help="between Spark and its Python workers; Spark's own choice is tcp",
    )
    parser.add_argument(
        "--shapes",
        action="store_true",
        help="filters, single columns, headers, JSON, 1,000 partitions and compressed topics in place of plain rows",
    )
    parser.add_argument("--only", default="", metavar="TEXT", help="rows whose name contains this text")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"), help="a directory")
    options = parser.parse_args()
    try:
        java_command()
        python, jars = _fetched()
    except PeerAbsentError as reason:
        print(f"Spark's connector is absent: {reason}", file=sys.stderr)
        return 3
    with tempfile.TemporaryDirectory(prefix="odradek-bench-") as directory:
        node = OdradekNode(directory=Path(directory), port=free_port())
        node.start()
        try:
            answer = _measure(node.bootstrap, python, jars, options)
        finally:
            node.stop()
    answer |= {
        "sockets": options.sockets,
        "load before and after": [options.load, os.getloadavg()[0]],
        "machine": report.machine(),
    }
    options.out.mkdir(parents=True, exist_ok=True)
    name = "spark-shapes" if options.shapes else "spark"
    (options.out / f"{name}.json").write_text(json.dumps(answer, indent=1) + "\n", encoding="utf-8")
    text = table(answer)
    (options.out / f"{name}.md").write_text(text, encoding="utf-8")
    print(text)
    return 0


def _fetched() -> tuple[Path, list[Path]]:
    """The directory with PySpark, and the connector's jars."""
    directory = cache_directory() / f"spark-{SPARK}"
    python, jars = directory / "python", directory / "jars"
    if not (directory / "complete").exists():
        shutil.rmtree(directory, ignore_errors=True)
        fetch_artifacts(CONNECTOR, version=SPARK, into=jars, group="org.apache.spark")
        for pattern in _OF_SPARK_ITSELF:
            for jar in jars.glob(pattern):
                jar.unlink()
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(python)]
        done = subprocess.run([*pip, f"pyspark=={SPARK}"], capture_output=True, text=True, check=False)
        if done.returncode:
            raise PeerAbsentError(f"pip could not install PySpark {SPARK}: {done.stderr.strip()[-300:]}")
        (directory / "complete").write_text(f"{SPARK}\n", encoding="utf-8")
    return python, sorted(jars.glob("*.jar"))


def _measure(servers: str, python: Path, jars: list[Path], options: argparse.Namespace) -> dict[str, Any]:
    options.load = os.getloadavg()[0]
    environment = serve_environment()
    environment["PYTHONPATH"] = os.pathsep.join((str(python), str(load.ROOT), environment["PYTHONPATH"]))
    environment["SPARK_LOCAL_IP"] = "127.0.0.1"
    environment.pop("SPARK_HOME", None)
    listed = ",".join(map(str, jars))
    program = "benchmarks.spark.shapes" if options.shapes else "benchmarks.spark.formats"
    command = [sys.executable, "-m", program, servers, listed]
    done = subprocess.run(
        [
            *command,
            str(options.rounds),
            str(options.scale),
            str(options.minutes),
            options.sockets,
            options.only,
        ],
        stdout=subprocess.PIPE,
        text=True,
        timeout=_PROGRAM_SECONDS,
        check=True,
        env=environment,
    )
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def table(answer: dict[str, Any]) -> str:
    lines = [
        f"Spark {answer['spark']}, local[2], {answer['sockets']} sockets; load {answer['load before and after'][0]:.1f} before,"
        f" {answer['load before and after'][1]:.1f} after; {_round_count(answer)} rounds.",
        "",
        "| | connector, rows/s | odradek, rows/s | ratio (lowest to highest round) | goal | ready-made rows/s |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    rounds = _round_count(answer)
    for case, figures in answer["rows/s"].items():
        middle = {name: statistics.median(values) for name, values in figures.items()}
        count = max(map(len, figures.values()))
        fewer = "" if count == rounds else f" ({count} round{'s'[: count != 1]})"
        lines.append(
            f"| {case}{fewer} | {_rate(middle, 'kafka')} | {_rate(middle, 'odradek')} |"
            f" {_ratio(figures)} | {_goal(case)} | {_rate(middle, READY_MADE)} |"
        )
    idle = answer.get("idle")
    if idle is None:
        return "\n".join([*lines, ""])
    spelled = ", ".join(
        f"{rss} MB ({pss} proportional)" for rss, pss in zip(idle["rss"], idle["pss"], strict=True)
    )
    memory = f"Python processes of an idle query: {spelled or 'none'}; the goal is {IDLE_GOAL_MB} MB."
    return "\n".join([*lines, "", memory, ""])


def _rate(middle: dict[str, float], spark_format: str) -> str:
    """Writes a format's rate, nothing where it was not measured."""
    return f"{middle[spark_format]:,.0f}" if spark_format in middle else ""


def _ratio(figures: dict[str, list[float]]) -> str:
    if "kafka" not in figures:
        return ""
    ratios = [ours / theirs for ours, theirs in zip(figures["odradek"], figures["kafka"], strict=True)]
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def _round_count(answer: dict[str, Any]) -> int:
    return max(len(rates) for figures in answer["rows/s"].values() for rates in figures.values())


def _goal(case: str) -> str:
    return next((f"{goal:g}" for beginning, goal in _GOALS.items() if case.startswith(beginning)), "")


if __name__ == "__main__":
    sys.exit(main())
