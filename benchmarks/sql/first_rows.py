"""First rows of persistent SQL queries beside plain Spark SQL: `python -m benchmarks.sql.first_rows [--rounds N]`.

One broker; one `odradek sql serve`, and one PySpark program with a session of its own, each in a process of its own. Both read
the same topics and run the same query: the server from `CREATE … AS SELECT`, Spark from `spark.sql(…)` over views of
`from_json`, with `format("odradek")` as source and as exactly-once sink (within foreachBatch where it groups). Measured is the
time from the statement to the first committed record in its output topic, and the CPU seconds of all processes of that side
until then.

Both sides are warm: each has run one query before. They take turns, and the first changes from round to round. The ratio of
a round is the server's figure by Spark's. `--cold` also measures both from nothing: the server's first query, which starts
Java, and a Python program that makes its session. Needs Java. `load` is the load average before.
"""

from __future__ import annotations

import argparse
import functools
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

import psutil

from benchmarks.odradek_node import OdradekNode
from benchmarks.sql.costs import serving
from odradek import Admin, NewTopic, Producer
from odradek.model.errors import OdradekError
from odradek.model.ids import TopicPartition
from odradek.sql.rest_client import RestClient

PATIENCE_S: Final = 300.0
LOOK_EVERY_S: Final = 0.02
SETTLE_S: Final = 1.0
COLUMNS: Final = (1, 4, 8, 16, 40)
AGGREGATES: Final = (1, 4, 16)
JOINED: Final = (3, 5)
SOURCE_COLUMN_COUNT: Final = 17
EARLIEST: Final = {"auto.offset.reset": "earliest"}
READ_COMMITTED: Final = 1
LATEST: Final = -1
END: Final = "end"
CLOSE: Final = "close"


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of the two that are measured. `run` returns when a query has its first row, `end` when it has ended."""

    run: Callable[[Shape, str], None]
    end: Callable[[], None]
    process: psutil.Process


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """One query in both languages. `sources`: the streams that it reads, by the number of their columns."""

    name: str
    kind: str
    """STREAM or TABLE: what the server makes of it."""
    ksql: str
    spark: str
    sources: tuple[str, ...]
    width: int
    output_mode: str = "append"


def shapes() -> list[Shape]:
    return [
        *(_computed(count) for count in COLUMNS),
        *(_grouped(count) for count in AGGREGATES),
        _partitioned(),
        *(_joined(count) for count in JOINED),
    ]


def _computed(count: int) -> Shape:
    items = [f"c{number} + 1 AS d{number}" for number in range(count)]
    names = ", ".join(f"d{number}" for number in range(count))
    width = max(SOURCE_COLUMN_COUNT, count)
    source = f"w{width}_0"
    return Shape(
        name=f"{count} computed column{'s' * (count > 1)}, of {width}",
        kind="STREAM",
        ksql=f"SELECT k, {', '.join(items)} FROM {source}",
        spark=f"SELECT k AS key, to_json(struct({names})) AS value FROM (SELECT k, {', '.join(items)} FROM {source})",
        sources=(source,),
        width=width,
    )


def _grouped(count: int) -> Shape:
    sums = ", ".join(f"SUM(c{number}) AS s{number}" for number in range(count))
    names = ", ".join(f"s{number}" for number in range(count))
    source = f"w{SOURCE_COLUMN_COUNT}_0"
    grouped = f"SELECT k, {sums} FROM {source} GROUP BY k"
    return Shape(
        name=f"GROUP BY with {count} aggregate{'s' * (count > 1)}",
        kind="TABLE",
        ksql=grouped,
        spark=f"SELECT k AS key, to_json(struct({names})) AS value FROM ({grouped})",
        sources=(source,),
        width=SOURCE_COLUMN_COUNT,
        output_mode="update",
    )


def _partitioned() -> Shape:
    source = f"w{SOURCE_COLUMN_COUNT}_0"
    names = ", ".join(["k", *(f"c{number}" for number in range(1, SOURCE_COLUMN_COUNT))])
    return Shape(
        name="SELECT * PARTITION BY a column",
        kind="STREAM",
        ksql=f"SELECT * FROM {source} PARTITION BY c0",
        spark=f"SELECT CAST(c0 AS STRING) AS key, to_json(struct({names})) AS value FROM {source}",
        sources=(source,),
        width=SOURCE_COLUMN_COUNT,
    )


def _joined(count: int) -> Shape:
    sources = tuple(f"w4_{number}" for number in range(count))
    items = ", ".join(f"w4_{number}.c0 AS c{number}" for number in range(count))
    names = ", ".join(f"c{number}" for number in range(count))
    ksql = spark = f"SELECT w4_0.k AS k, {items} FROM w4_0"
    for other in sources[1:]:
        ksql += f" JOIN {other} WITHIN 1 HOUR ON w4_0.k = {other}.k"
        spark += (
            f" JOIN {other} ON w4_0.k = {other}.k AND {other}.at"
            " BETWEEN w4_0.at - INTERVAL 1 HOUR AND w4_0.at + INTERVAL 1 HOUR"
        )
    return Shape(
        name=f"JOIN of {count} streams",
        kind="STREAM",
        ksql=ksql,
        spark=f"SELECT k AS key, to_json(struct({names})) AS value FROM ({spark})",
        sources=sources,
        width=4,
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="measures the shapes whose names contain this text")
    parser.add_argument("--cold", action="store_true", help="also measures both sides from nothing")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    chosen = [shape for shape in shapes() if arguments.only in shape.name]
    if not chosen:
        parser.error(f"no shape has {arguments.only!r} in its name")
    load = os.getloadavg()[0]
    with OdradekNode(settings={"log.cleaner.enable": "false"}) as node:
        _fill(node.bootstrap, chosen)
        cold = _cold(node.bootstrap, chosen[0], arguments.rounds) if arguments.cold else []
        warm = _warm(node.bootstrap, chosen, arguments.rounds)
    lines = [*markdown_table("cold", cold), *markdown_table("warm", warm)]
    print("\n".join([*lines, "", f"load {load:.2f}, {os.cpu_count()} CPUs, {arguments.rounds} rounds"]))
    if arguments.json is not None:
        document = {"load": load, "cpus": os.cpu_count(), "cold": cold, "warm": warm}
        arguments.json.write_text(json.dumps(document, indent=1) + "\n")


# ---- what both read


def _fill(servers: str, chosen: Sequence[Shape]) -> None:
    widths = {source: shape.width for shape in chosen for source in shape.sources}
    with Admin(servers) as admin, Producer(servers) as producer:
        admin.create_topics([NewTopic(source, 1) for source in widths])
        for source, width in widths.items():
            row = {f"C{number}": number for number in range(width)}
            producer.send_and_wait(source, json.dumps(row).encode(), key=b"ann")


def _first_committed(admin: Admin, topic: str, check: Callable[[], None]) -> None:
    """Returns when the topic has a record that a reader of committed records gets. `check` raises where none will come."""
    partition = TopicPartition(topic, 0)
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        with suppress(OdradekError):  # the topic is about to be made
            if admin.list_offsets({partition: LATEST}, isolation=READ_COMMITTED)[partition].offset > 0:
                return
        check()
        time.sleep(LOOK_EVERY_S)
    raise SystemExit(f"{topic} has no row after {PATIENCE_S:g} s")


def _cpu_s(process: psutil.Process) -> float:
    """Returns the CPU seconds of a process, of those below it, and of those of them that have ended."""
    total = 0.0
    for member in [process, *process.children(recursive=True)]:
        with suppress(psutil.Error):
            times = member.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


# ---- the server's side


@contextmanager
def _ksql_side(servers: str, chosen: Sequence[Shape]) -> Iterator[Side]:
    with (
        tempfile.TemporaryDirectory(prefix="odradek-first-rows-") as directory,
        serving(servers, directory) as (client, process),
        Admin(servers) as admin,
    ):
        for source, width in {source: shape.width for shape in chosen for source in shape.sources}.items():
            columns = ", ".join(f"c{number} BIGINT" for number in range(width))
            client.execute(
                f"CREATE STREAM {source} (k STRING KEY, {columns}) WITH (KAFKA_TOPIC='{source}', VALUE_FORMAT='JSON');"
            )
        yield Side(
            run=functools.partial(_run_ksql, client, admin),
            end=functools.partial(_end_ksql, client),
            process=process,
        )


def _run_ksql(client: RestClient, admin: Admin, shape: Shape, topic: str) -> None:
    client.execute(
        f"CREATE {shape.kind} {topic} WITH (KAFKA_TOPIC='{topic}') AS {shape.ksql} EMIT CHANGES;",
        properties=EARLIEST,
    )
    _first_committed(admin, topic, lambda: None)


def _end_ksql(client: RestClient) -> None:
    client.execute("TERMINATE ALL;")


# ---- plain Spark's side


@contextmanager
def _spark_side(servers: str, chosen: Sequence[Shape]) -> Iterator[Side]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_plain_spark, args=(theirs, servers, list(chosen)))
    process.start()
    assert process.pid is not None
    try:
        yield Side(
            run=lambda shape, topic: _ask(ours, (shape, topic)),
            end=lambda: _ask(ours, END),
            process=psutil.Process(process.pid),
        )
        ours.send(CLOSE)
        process.join(PATIENCE_S)
    finally:
        for member in psutil.Process(process.pid).children(recursive=True) if process.is_alive() else ():
            member.kill()
        process.kill()
        process.join()


def _ask(connection: Connection, order: tuple[Shape, str] | str) -> None:
    connection.send(order)
    problem = connection.recv() if connection.poll(PATIENCE_S) else "Spark does not answer"
    if problem is not None:
        raise SystemExit(problem)


def _plain_spark(connection: Connection, servers: str, chosen: Sequence[Shape]) -> None:
    """Runs one query after another in a session as anyone would make it, but for what both sides must share: the number of
    tasks behind a shuffle, state in RocksDB, and no adaptive plans.
    """
    from pyspark.sql import SparkSession  # only this process has a session

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with tempfile.TemporaryDirectory(prefix="odradek-plain-spark-") as directory, Admin(servers) as admin:
        spark: Any = None
        query: Any = None
        while (order := connection.recv()) != CLOSE:
            try:
                if order == END:
                    query.stop()
                    connection.send(None)
                    continue
                if spark is None:
                    spark = _session(SparkSession)
                    _views(spark, servers, chosen)
                shape, topic = order
                admin.create_topics([NewTopic(topic, 1)])
                query = _started(spark, servers, shape, topic, directory)
                _first_committed(admin, topic, functools.partial(_raise_failure, query))
            except Exception as error:  # noqa: BLE001 -- the other process reports it
                connection.send(f"plain Spark: {str(error).splitlines()[0]}")
                return
            connection.send(None)
        if spark is not None:
            spark.stop()


def _started(spark: Any, servers: str, shape: Shape, topic: str, directory: str) -> Any:
    options = {
        "kafka.bootstrap.servers": servers,
        "topic": topic,
        "delivery": "exactly_once",
        "sinkId": topic,
    }
    writer = (
        spark.sql(shape.spark)
        .writeStream.outputMode(shape.output_mode)
        .option("checkpointLocation", f"{directory}/{topic}")
    )
    if shape.output_mode == "append":
        return writer.format("odradek").options(**options).start()

    def write(rows: Any, batch: int) -> None:
        rows.write.format("odradek").mode("append").options(**options).save()

    return writer.foreachBatch(write).start()  # a sink in Python has no update mode


def _raise_failure(query: Any) -> None:
    error = query.exception()
    if error is not None:
        raise error


def _session(builder: Any) -> Any:
    return (
        builder.builder.master("local[*]")
        .config("spark.ui.enabled", "false")
        .config("spark.log.level", "OFF")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.sql.adaptive.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config(
            "spark.sql.streaming.stateStore.providerClass",
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
        )
        .getOrCreate()
    )


def _views(spark: Any, servers: str, chosen: Sequence[Shape]) -> None:
    for source, width in {source: shape.width for shape in chosen for source in shape.sources}.items():
        columns = ", ".join(f"C{number} BIGINT" for number in range(width))
        (
            spark.readStream.format("odradek")
            .option("kafka.bootstrap.servers", servers)
            .option("subscribe", source)
            .option("startingOffsets", "earliest")
            .load()
            .selectExpr(
                "CAST(key AS STRING) AS k",
                f"from_json(CAST(value AS STRING), '{columns}') AS v",
                "timestamp AS at",
            )
            .selectExpr("k", "at", "v.*")
            .withWatermark("at", "1 hour")
            .createOrReplaceTempView(source)
        )


# ---- rounds


Sample = dict[str, Any]
SIDES: Final = {"odradek": _ksql_side, "spark": _spark_side}


def _cold(servers: str, shape: Shape, rounds: int) -> list[Sample]:
    samples = []
    for number in range(rounds):
        for name in _in_turn(number):
            with SIDES[name](servers, [shape]) as side:
                samples.append(_sample(name, side, shape, number, f"cold_{name}_{number}"))
    return samples


def _warm(servers: str, chosen: Sequence[Shape], rounds: int) -> list[Sample]:
    samples = []
    with _ksql_side(servers, chosen) as ksql, _spark_side(servers, chosen) as spark:
        sides = {"odradek": ksql, "spark": spark}
        for name, side in sides.items():
            side.run(chosen[0], f"first_{name}")
            side.end()
        for number in range(rounds):
            for at, shape in enumerate(chosen):
                for name in _in_turn(number):
                    samples.append(_sample(name, sides[name], shape, number, f"out_{name}_{number}_{at}"))
                    print(json.dumps(samples[-1]), file=sys.stderr)
                    time.sleep(SETTLE_S)
    return samples


def _in_turn(number: int) -> list[str]:
    return list(SIDES) if number % 2 == 0 else list(SIDES)[::-1]


def _sample(name: str, side: Side, shape: Shape, number: int, topic: str) -> Sample:
    cpu_before, began = _cpu_s(side.process), time.monotonic()
    side.run(shape, topic)
    wall_s, cpu_s = time.monotonic() - began, _cpu_s(side.process) - cpu_before
    side.end()
    return {"side": name, "shape": shape.name, "round": number, "wall_s": wall_s, "cpu_s": cpu_s}


def markdown_table(title: str, samples: Sequence[Sample]) -> list[str]:
    """Returns a Markdown table: medians of both sides, and the rounds' ratios with the least and the most of them."""
    if not samples:
        return []
    lines = [
        f"\n| {title} | Odradek, s | Spark, s | ratio | Odradek, CPU s | Spark, CPU s | ratio |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in dict.fromkeys(sample["shape"] for sample in samples):
        cells = [name]
        for figure in ("wall_s", "cpu_s"):
            ours, theirs = (
                [sample[figure] for sample in samples if (sample["shape"], sample["side"]) == (name, side)]
                for side in SIDES
            )
            ratios = sorted(mine / plain for mine, plain in zip(ours, theirs, strict=True))
            cells += [f"{statistics.median(ours):.2f}", f"{statistics.median(theirs):.2f}"]
            cells.append(f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})")
        lines.append("| " + " | ".join(cells) + " |")
    return lines


if __name__ == "__main__":
    main()
