"""The process that runs one pipeline: `python -m odradek.pipelines.runner`. The supervisor starts it.

One thread waits for commands, and for the end of their pipe. The main thread alone uses Spark.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from odradek.model.errors import ConfigError, OdradekError
from odradek.model.ids import TopicPartition
from odradek.model.lazy import lazy
from odradek.pipelines.failure_line import batch_positions, batch_start, coordinates_in, failure_line
from odradek.pipelines.outline import ProgramOutline, unknown_output
from odradek.pipelines.outlining import outline_of
from odradek.pipelines.program_file import LoadedProgram, ProgramSources, WrongProgram, load_program
from odradek.pipelines.reports import (
    Command,
    Failed,
    Paused,
    Report,
    Running,
    RunProgress,
    command_in,
    report_line,
)
from odradek.spark.engine.jvm import JAVA_OPTIONS, LASTING
from odradek.spark.engine.own_session import is_local
from odradek.spark.engine.session import LOCAL, ROCKS_DB, SHUFFLES, STATE_STORE, new_session
from odradek.spark.query_figures import records_read
from odradek.spark.reading.offsets import from_document
from odradek.streams.plan.beside import beside

if TYPE_CHECKING:
    from pyspark import cloudpickle, sql
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter
else:
    cloudpickle = lazy("pyspark.cloudpickle")
    sql = lazy("pyspark.sql")

TICK_S: Final = 0.5
ORPHAN_GRACE_S: Final = 20.0
"""How long queries may take to stop once the supervisor has ended."""

Offsets = dict[TopicPartition, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerTerms:
    """The terms that a runner receives when it starts."""

    name: str
    servers: str
    checkpoint: str
    delivery: str
    master: str | None = None
    conf: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """Settings of the session: they go before ours."""
    suffix: str = ""
    """The suffix of all outputs: a version that was rebuilt has its own."""


class PipelineRun:
    """A program's queries: started, looked at, stopped, started again. Used from one thread."""

    def __init__(self, program: LoadedProgram, terms: RunnerTerms, spark: SparkSession) -> None:
        self._program = program
        self._terms = terms
        self._spark = spark
        self._queries: list[StreamingQuery] = []
        self._names: tuple[str, ...] = ()
        """The names of a plain program's queries."""
        self._with_named_sources: frozenset[str] = frozenset()
        self._packing: frozenset[str] = frozenset()
        """The ids of queries whose sources pack records."""
        self._last_batches: dict[str, int] = {}
        self._positions: dict[str, Offsets | None] = {}
        """The next offsets of each query; None where a source does not report them."""

    def start(self) -> None:
        """Starts the queries. WrongProgram for a program without a pipeline; raises Spark's errors as they are."""
        self._last_batches.clear()
        app = self._program.app
        if app is not None:
            if self._terms.suffix and not app.program.name.endswith(self._terms.suffix):
                app.program = beside(app.program, self._terms.suffix)
            run = app.start(checkpoint=self._terms.checkpoint, delivery=self._terms.delivery)
            self._queries, self._with_named_sources = list(run.queries.values()), run.with_named_sources
            self._packing = frozenset(str(run.queries[name].id) for name in run.packing)
        else:
            assert self._program.pipeline is not None
            named = _named(self._program.pipeline(self._spark))
            self._queries, self._names = [], tuple(named)
            for name, what in named.items():
                self._queries.append(self._started(name, what))

    def _started(self, name: str, what: Any) -> StreamingQuery:
        if hasattr(what, "recentProgress"):
            return what  # type: ignore[no-any-return]  # started by the program, with a checkpoint of its own
        if not callable(getattr(what, "queryName", None)):
            raise WrongProgram(f"pipeline(spark) returned {type(what).__name__}: {_RETURNS}")
        writer: DataStreamWriter = what
        checkpoint = f"{self._terms.checkpoint}/{name}"
        if self._terms.suffix:
            _check_format(name, writer)
            writer = writer.option("outputSuffix", self._terms.suffix)
        return writer.queryName(f"{self._terms.name}.{name}").option("checkpointLocation", checkpoint).start()

    @property
    def outline(self) -> ProgramOutline:
        outline = outline_of(self._program)
        if self._program.app is not None:
            named = self._with_named_sources
            outputs = (replace(output, sources_named=output.name in named) for output in outline.outputs)
            return replace(outline, outputs=tuple(outputs))
        return replace(outline, outputs=tuple(map(unknown_output, self._names)))

    def stop(self) -> None:
        """Batches that are under way are finished, or done again at the next start."""
        for query in self._queries:
            query.stop()
        self._queries = []

    def progress(self) -> RunProgress | None:
        """Returns the progress since the last call; None when no batch has ended."""
        rows_count, batch_ms, has_news = 0, None, False
        for query in self._queries:
            key = str(query.id)
            for batch in query.recentProgress:
                if batch["batchId"] <= self._last_batches.get(key, -1):
                    continue
                self._last_batches[key] = batch["batchId"]
                has_news = True
                rows_count += records_read(batch, packs_records=key in self._packing)
                batch_ms = float(batch["durationMs"].get("triggerExecution", 0))
                self._positions[key] = _positions([source["endOffset"] for source in batch["sources"]])
        return (
            RunProgress(rows_count=rows_count, batch_ms=batch_ms, inputs=self._inputs()) if has_news else None
        )

    def has_ended(self) -> bool:
        """Tells whether all queries have ended by themselves. Raises the error of a failed one."""
        for query in self._queries:
            error = query.exception()
            if error is not None:
                raise error
        return not any(query.isActive for query in self._queries)

    def positions(self) -> Offsets:
        """Returns the lowest next offset of any query, for each partition."""
        lowest: Offsets = {}
        for offsets in self._positions.values():
            for tp, offset in (offsets or {}).items():
                lowest[tp] = min(offset, lowest.get(tp, offset))
        return lowest

    def _inputs(self) -> dict[str, dict[int, int]] | None:
        keys = [str(query.id) for query in self._queries]
        if any(self._positions.get(key) is None for key in keys):
            return None
        inputs: dict[str, dict[int, int]] = {}
        for tp, offset in self.positions().items():
            inputs.setdefault(tp.topic, {})[tp.partition] = offset
        return inputs


_RETURNS: Final = "return a writer (frame.writeStream...), or a list or a dict of them"


def _check_format(name: str, writer: Any) -> None:
    """Checks a query's format, which Spark does not expose: else a rebuilt version could write where the first one does."""
    field = writer._jwrite.getClass().getDeclaredField("source")
    field.setAccessible(True)
    kind = field.get(writer._jwrite)
    if kind != "odradek":
        raise WrongProgram(
            f'{name} writes format("{kind}"), and a version that is rebuilt writes topics only: format("odradek")'
        )


def _named(returned: object) -> dict[str, object]:
    """Returns what a pipeline returned, by name: a dict's keys, or numbers from 0. Names stay, so that each query finds its
    checkpoint."""
    if isinstance(returned, Mapping):
        named = {str(name): what for name, what in returned.items()}
    elif isinstance(returned, Sequence) and not isinstance(returned, str):
        named = {str(number): what for number, what in enumerate(returned)}
    else:
        named = {"0": returned}
    if not named:
        raise WrongProgram(f"pipeline(spark) returned nothing: {_RETURNS}")
    return named


def _positions(ends: Sequence[str | None]) -> Offsets | None:
    """Returns the next offsets of one query's sources; None when one is no topic, or has reported nothing yet."""
    positions: Offsets = {}
    for end in ends:
        try:
            offsets = from_document(json.loads(end or "")).next_offsets
        except (ConfigError, ValueError, TypeError, AttributeError):
            return None
        for tp, offset in offsets.items():
            positions[tp] = min(offset, positions.get(tp, offset))
    return positions


def light_session(terms: RunnerTerms, tasks: int | None) -> SparkSession:
    """Returns a session for one pipeline. `tasks`: into how many an operator's keys are divided; Spark keeps that in the
    checkpoint."""
    master = terms.master or LOCAL
    settings = {STATE_STORE: ROCKS_DB, "spark.ui.showConsoleProgress": "false", "spark.log.level": "ERROR"}
    if is_local(master):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        settings |= {"spark.driver.bindAddress": "127.0.0.1", JAVA_OPTIONS: LASTING}
        tasks = tasks or 1
    if tasks is not None:
        settings[SHUFFLES] = str(tasks)
    return new_session(terms.name, {**settings, **dict(terms.conf)}, master=master)


def follow(run: PipelineRun, commands: queue.Queue[Command], say: Callable[[Report], None]) -> int:
    """Runs until STOP, or until all queries have ended, and returns 0; returns 1 after a failure, which it has reported."""
    is_paused = False
    try:
        run.start()
        say(Running(outline=run.outline))
        while True:
            try:
                command = commands.get(timeout=TICK_S)
            except queue.Empty:
                command = None
            if not is_paused:
                _say_progress(run, say)
            if command is Command.STOP:
                run.stop()
                return 0
            if command is Command.PAUSE and not is_paused:
                is_paused = True
                run.stop()
                say(Paused())
            elif command is Command.RESUME and is_paused:
                is_paused = False
                run.start()
                say(Running())
            elif not is_paused and run.has_ended():
                _say_progress(run, say)
                return 0
    except WrongProgram as error:
        say(Failed(line=str(error), is_final=True))
    except Exception as error:
        logging.getLogger("odradek.pipelines").exception("the pipeline failed")
        say(_failed(run, error))
    return 1


def _say_progress(run: PipelineRun, say: Callable[[Report], None]) -> None:
    progress = run.progress()
    if progress is not None:
        say(progress)


def _failed(run: PipelineRun, error: Exception) -> Failed:
    text = str(error)
    line = failure_line(text)
    coordinates, positions = coordinates_in(line), batch_positions(text) or run.positions()
    if coordinates is None and positions:
        line = f"{line} ({batch_start(positions)})"
    return Failed(line=line, place=coordinates)


def _listen(descriptor: int, commands: queue.Queue[Command], has_begun: threading.Event) -> None:
    """Reads commands until the pipe closes: then the supervisor has ended. This process group ends, even if queries hang."""

    def obey(command: Command) -> None:
        if command is Command.STOP and not has_begun.is_set():
            os._exit(0)  # a session that is being made gets no signal, and there is no query to stop
        commands.put(command)

    with os.fdopen(descriptor, "rb") as lines:
        for line in lines:
            command = command_in(line)
            if command is not None:
                obey(command)
    obey(Command.STOP)
    killer = threading.Timer(ORPHAN_GRACE_S, lambda: os.killpg(0, signal.SIGKILL))
    killer.daemon = True
    killer.start()


def _order() -> dict[str, Any]:
    """Reads the order from standard input, which is empty for the program afterwards."""
    order: dict[str, object] = json.loads(sys.stdin.buffer.read())
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), sys.stdin.fileno())
    return order


def main(words: Sequence[str]) -> int:
    """Runs the process. `serving.runner_command` makes its words; `serving.runner_terms` arrives on standard input."""
    parser = argparse.ArgumentParser(prog="odradek.pipelines.runner")
    parser.add_argument("--name", required=True)
    parser.add_argument("--commands", type=int, required=True)
    parser.add_argument("--reports", type=int, required=True)
    arguments = parser.parse_args(words)
    order = _order()
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s %(message)s", level=logging.WARNING)
    commands: queue.Queue[Command] = queue.Queue()
    has_begun = threading.Event()
    threading.Thread(target=_listen, args=(arguments.commands, commands, has_begun), daemon=True).start()

    def say(report: Report) -> None:
        try:
            os.write(arguments.reports, report_line(report))
        except BrokenPipeError:  # the supervisor has ended: its other pipe is closed, too
            return

    terms = RunnerTerms(
        name=arguments.name,
        servers=order["servers"],
        checkpoint=order["checkpoint"],
        delivery=order["delivery"],
        master=order["master"],
        suffix=order["suffix"],
        conf=tuple((key, value) for key, value in order["conf"]),
    )
    os.environ.setdefault("ODRADEK_BOOTSTRAP", terms.servers)
    try:
        sources = ProgramSources(**{kind: tuple(paths) for kind, paths in order["places"].items()})
        program = load_program(Path(order["program"]), order["args"], sources)
    except OdradekError as error:
        say(Failed(line=str(error), is_final=True))
        return 1
    # Workers cannot import the program: what it defines travels with the plan.
    pickling: Any = cloudpickle
    pickling.register_pickle_by_value(program.module)
    try:
        spark = light_session(terms, None if program.app is None else program.app.program.partitions)
    except Exception as error:  # noqa: BLE001 - the root of the process
        say(Failed(line=failure_line(f"Spark did not start: {error}")))
        return 1
    has_begun.set()
    return follow(PipelineRun(program, terms, spark), commands, say)


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # the JVM follows: its standard input closes
