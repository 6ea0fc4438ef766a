"""The programs of the benchmark in `odradek.streams`: `python -m benchmarks.streams.odradek_programs SERVERS DIRECTORY`.

It takes the same commands as `java/StreamsPeer.java`, and answers them in the same way.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import TextIO

from odradek.streams import Streams
from odradek.streams.running import Run

COMMITTED = {"kafka.isolation.level": "read_committed"}
TASKS = 2


def main() -> None:
    servers, directory = sys.argv[1], Path(sys.argv[2])
    answers, sys.stdout = sys.stdout, sys.stderr  # Spark may write there
    running: Run | None = None
    for line in sys.stdin:
        command, *words = line.split()
        if running is not None:
            running.stop()
            running = None
        if command == "start":
            program, guarantee, application, commit_ms, inputs, output = words
            app = made(program, servers, application, inputs.split(","), output)
            running = app.start(
                checkpoint=str(directory / application),
                delivery="exactly_once" if guarantee == "exactly_once_v2" else "at_least_once",
                interval=f"{commit_ms} milliseconds",
            )
            threading.Thread(target=_end_with, args=(running,), daemon=True).start()
            _answer("ready", answers)
        else:
            _answer("stopped", answers)
    if running is not None:
        running.stop()


def _end_with(running: Run) -> None:
    """A query that dies ends the process, with what it died of as the last line."""
    try:
        running.wait()
    except Exception as error:  # noqa: BLE001 - the root of a thread
        sys.stderr.write(f"\n{error!s:.1500}\n")
        sys.stderr.flush()
        os._exit(1)


def _answer(word: str, answers: TextIO) -> None:
    answers.write(word + "\n")
    answers.flush()


def made(program: str, servers: str, application: str, inputs: list[str], output: str) -> Streams:
    """A program of the benchmark, by name."""
    app = Streams(application, servers=servers, partitions=TASKS)
    if program == "words":
        lines = app.stream(inputs[0], key="STRING", value="STRING", options=COMMITTED)
        lines.flat_map("split(value, ' ')").group_by("value AS word").count().to(output, name="out")
    elif program == "windows":
        visits = app.stream(inputs[0], key="STRING", value="STRING", options=COMMITTED)
        counts = visits.group_by_key().window("1 minute", grace="10 minutes").count()
        counts.to_stream().select_key("concat(key, '@', window_start) AS k").to(output, name="out")
    elif program == "stream-table":
        table = app.table(inputs[1], key="STRING", value="STRING", options=COMMITTED)
        items = app.stream(inputs[0], key="STRING", value="STRING", options=COMMITTED)
        joined = items.join(table, select="concat(value, ':', r_value) AS value", prefix="r_")
        joined.to(output, name="out")
    elif program == "table-table":
        left, right = (app.table(topic, key="STRING", value="STRING", options=COMMITTED) for topic in inputs)
        left.join(right, select="concat(value, '|', r_value) AS value", prefix="r_").to(output, name="out")
    else:
        items = app.stream(inputs[0], key="STRING", value="STRING", options=COMMITTED)
        items.filter("NOT startswith(value, 'no')").select("upper(value) AS value").to(output, name="out")
    return app


if __name__ == "__main__":
    main()
