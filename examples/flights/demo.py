"""`make demo`: a year of flights through a broker and a Spark pipeline, checked to the last minute of delay.

Starts a broker, sends 336,776 flights with their airlines, airports, planes and weather into topics, lets Spark count
departures, cancellations and delays by hour into another topic, exactly once. In the middle of a batch it kills Spark's driver
with -9, and starts it again. Then it archives both topics as a Delta table, verifies that, reads the result back, and compares
every group with what pandas makes of the same source data. Exits 0 when all agree, 1 with a sentence when not.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from odradek.spark.engine.java import find_java

if TYPE_CHECKING:
    from local_broker import LocalBroker
    from rich.console import Console
    from rich.progress import Progress, TaskID
    from show import Stages

OUTPUT = Path(__file__).resolve().parents[2] / "demo-output"
KILLED_AFTER_BATCHES = 3
"""About the middle: there are six."""
OPEN_WITHIN_S = 15.0


def main() -> int:
    problem = find_java().problem
    if problem is not None:
        print(problem, file=sys.stderr)
        return 1
    # Only now what takes a second to import.
    from killable_pipeline import PipelineFailedError
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
        except PipelineFailedError as error:
            print(
                f"{error}\nThe logs of the broker and of Spark are in {keep_logs(broker)}.", file=sys.stderr
            )
            return 1
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
    odradek = Path(sys.executable).with_name("odradek")
    out.print(f"To look at a living cluster in the browser: {odradek} console --demo", soft_wrap=True)
    return 0


def keep_logs(broker: LocalBroker) -> Path:
    """Copy the logs out of the directory that goes away with the broker."""
    OUTPUT.mkdir(exist_ok=True)
    for log in broker.directory.glob("*.log"):
        shutil.copy(log, OUTPUT)
    return OUTPUT


def run(servers: str, directory: Path, stages: Stages, out: Console) -> list[str]:
    """The demo against a running broker; what is wrong with its result, in sentences."""
    import pandas as pd
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
    problems = through_spark(servers, directory, len(tables["flights"]) + 1, stages, out)
    with stages.stage("verify the archive"):
        problems += verify_archive(servers, directory, out)
    with stages.stage("check with pandas"):
        result = pd.read_pickle(directory / "result.pickle")
        wanted = verify.expected(tables)
        problems += verify.differences(result, wanted)
    out.print(show.carriers_table(result))
    with stages.stage("draw"):
        chart = OUTPUT / "flights.png"
        show.draw(result, chart)
    out.print(f"Chart: {chart}")
    if not problems:
        out.print(
            f"All {len(wanted):,} groups of hour, origin and carrier agree with pandas:"
            f" {wanted['departures'].sum():,} departures, {wanted['cancellations'].sum():,} cancellations,"
            f" mean delays within {verify.DELAY_TOLERANCE:g} minutes. Each was written once."
        )
    return problems


def through_spark(
    servers: str, directory: Path, record_count: int, stages: Stages, out: Console
) -> list[str]:
    """Run the pipeline, kill it in the middle of a batch, and run it to its end; what is wrong, in sentences."""
    from show import progress

    problems = []
    with progress(out) as bars:
        bar = bars.add_task(" pipeline", total=record_count)
        if not run_and_kill(servers, directory, stages, out, bars, bar):
            problems.append("The pipeline was too fast to be killed in the middle.")
        late_count = run_to_end(servers, directory, stages, bars, bar)
    if late_count:
        problems.append(f"{late_count:,} flights were dropped as too late for their hour.")
    return problems


def run_and_kill(
    servers: str, directory: Path, stages: Stages, out: Console, bars: Progress, bar: TaskID
) -> bool:
    """The first life, until a batch is half written; whether it was killed then."""
    from hourly_departures import SINK
    from killable_pipeline import KillablePipeline, open_transactions

    with KillablePipeline(servers, directory) as pipeline:
        events = pipeline.events()
        with stages.stage("start Spark"):
            next(events)
        with stages.stage("run the pipeline"):
            for event in events:
                if event["event"] == "finished":
                    return False
                bars.advance(bar, event["rows"])
                if event["number"] + 1 == KILLED_AFTER_BATCHES:
                    break
            count = open_transactions(servers, f"odradek-sink.{SINK}~", OPEN_WITHIN_S)
            killed = pipeline.kill()
    stages.notes["run the pipeline"] = f"{KILLED_AFTER_BATCHES} batches, and killed in the next one"
    out.print(
        f"Half of a batch is written: {count} of its transactions are open. kill -9 of Spark's JVM and its Python side"
        f" (processes {', '.join(map(str, killed))})."
    )
    return count > 0


def run_to_end(servers: str, directory: Path, stages: Stages, bars: Progress, bar: TaskID) -> int:
    """The second life: from the checkpoint on, then the archive, then the result; how many flights came too late."""
    from killable_pipeline import KillablePipeline

    late_count = batch_count = 0
    with KillablePipeline(servers, directory) as pipeline:
        events = pipeline.events()
        with stages.stage("start Spark again"):
            next(events)
        with stages.stage("run it to its end"):
            for event in events:
                if event["event"] == "finished":
                    break
                bars.advance(bar, event["rows"])
                late_count += event["late"]
                batch_count += 1
        stages.notes["run it to its end"] = f"{batch_count} batches, the killed one among them"
        for stage in ("archive both topics", "read the result back"):
            with stages.stage(stage):
                next(events)
        with stages.stage("stop Spark"):
            list(events)
            pipeline.wait()
    return late_count


def verify_archive(servers: str, directory: Path, out: Console) -> list[str]:
    """`odradek archive verify`: what it shows, and what is wrong, in a sentence."""
    command = ["odradek", "archive", "verify", str(directory / "archive"), "-b", servers]
    out.print(f"{' '.join(command)}")
    command[0] = str(Path(sys.executable).with_name("odradek"))
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    out.print(answer.stdout, end="", markup=False)
    return [] if answer.returncode == 0 else [f"The archive does not verify: {answer.stderr.strip()}"]


if __name__ == "__main__":
    sys.exit(main())
