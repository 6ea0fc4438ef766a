"""`make demo`: a year of flights through a broker and a Spark pipeline, checked to the last minute of delay.

Starts a broker, sends 336,776 flights with their airlines, airports, planes and weather into topics, lets Spark count
departures, cancellations and delays by hour into another topic, reads that topic back, and compares every group with
what pandas makes of the same source data. Exits 0 when all agree, 1 with a sentence when not.
"""

from __future__ import annotations

import shutil
import signal
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from odradek.spark.java import find_java

if TYPE_CHECKING:
    import pandas as pd
    from local_broker import LocalBroker
    from rich.console import Console
    from show import Stages
    from spark_session import Outcome

OUTPUT = Path(__file__).resolve().parents[2] / "demo-output"


def main() -> int:
    problem = find_java().problem
    if problem is not None:
        print(problem, file=sys.stderr)
        return 1
    # Only now what takes a second to import.
    from local_broker import BrokerFailedError, LocalBroker
    from show import Stages, console

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the broker is stopped then, too
    stages, out = Stages(), console()
    with ExitStack() as running:
        try:
            with stages.stage("start the broker"):
                broker = running.enter_context(LocalBroker())
        except BrokerFailedError as error:
            print(error, file=sys.stderr)
            return 1
        out.print(
            f"Broker at {broker.address} (process {broker.pid}), data in {broker.directory} until the end."
        )
        try:
            problems = run(broker.address, broker.directory, stages, out)
        except KeyboardInterrupt:
            print("Interrupted; the broker and Spark are stopped.", file=sys.stderr)
            return 130
        except Exception:
            print(
                f"The demo failed; the logs of the broker and of Spark are in {keep_logs(broker)}.",
                file=sys.stderr,
            )
            raise
    out.print(stages.table())
    if problems:
        print(
            "The pipeline's result is not what the source data says:", *problems, sep="\n  ", file=sys.stderr
        )
        return 1
    return 0


def keep_logs(broker: LocalBroker) -> Path:
    """Copy the logs out of the directory that goes away with the broker."""
    OUTPUT.mkdir(exist_ok=True)
    for log in broker.directory.glob("*.log"):
        shutil.copy(log, OUTPUT)
    return OUTPUT


def run(servers: str, directory: Path, stages: Stages, out: Console) -> list[str]:
    """The demo against a running broker; what is wrong with its result, in sentences."""
    import show
    import verify
    from load_topics import create_topics, send
    from source_data import read_tables

    with stages.stage("read the source data"):
        tables = read_tables()
    with stages.stage("send to topics"):
        create_topics(servers, tables)
        count = send(servers, tables, out)
    stages.notes["send to topics"] = (
        f"{count / stages.seconds['send to topics']:,.0f} records/s: JSON, lz4, acks=all"
    )
    result, outcome = through_spark(servers, directory, len(tables["flights"]) + 1, stages, out)
    with stages.stage("check with pandas"):
        wanted = verify.expected(tables)
        problems = verify.differences(result, wanted)
        if outcome.late_count:
            problems.append(f"{outcome.late_count:,} flights were dropped as too late for their hour.")
    out.print(show.carriers_table(result))
    with stages.stage("draw"):
        chart = OUTPUT / "flights.png"
        show.draw(result, chart)
    out.print(f"Chart: {chart}")
    if not problems:
        out.print(
            f"All {len(wanted):,} groups of hour, origin and carrier agree with pandas:"
            f" {wanted['departures'].sum():,} departures, {wanted['cancellations'].sum():,} cancellations,"
            f" mean delays within {verify.DELAY_TOLERANCE:g} minutes."
        )
    return problems


def through_spark(
    servers: str, directory: Path, record_count: int, stages: Stages, out: Console
) -> tuple[pd.DataFrame, Outcome]:
    """Start Spark, run the pipeline, read its result from the topic, stop Spark."""
    import spark_session

    with stages.stage("start Spark"):
        spark = spark_session.start(directory / "spark.log")
    try:
        with stages.stage("run the pipeline"):
            outcome = spark_session.run_pipeline(spark, servers, directory / "checkpoint", record_count, out)
        stages.notes["run the pipeline"] = (
            f"first batch {outcome.first_batch_s:.1f} s (Spark warms up),"
            f" {outcome.batch_count - 1} others {outcome.other_batches_s:.1f} s"
        )
        with stages.stage("read the result back"):
            result = spark_session.read_result(spark, servers)
    finally:
        with stages.stage("stop Spark"):
            spark.stop()
    return result, outcome


if __name__ == "__main__":
    sys.exit(main())
