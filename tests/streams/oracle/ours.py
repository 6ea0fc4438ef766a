"""A document as a program of `odradek.streams`, run in its test driver."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from unittest import mock

from tests.streams.oracle import sql
from tests.streams.oracle.comparison import Output, Outputs
from tests.streams.oracle.documents import upstream
from tests.streams.oracle.generator import Document, Node

from odradek.model.lazy import lazy
from odradek.spark.engine.session import WITHOUT_ORIGINS
from odradek.spark.engine.unpacked_pyspark import unpacked_pyspark
from odradek.streams import Streams
from odradek.streams.plan.operators import Emit

if TYPE_CHECKING:
    import pyspark.sql as pyspark_sql
    import pyspark.sql.functions as functions
    from pyspark.sql import Column, SparkSession
else:
    functions = lazy("pyspark.sql.functions")
    pyspark_sql = lazy("pyspark.sql")

NOT_YET: frozenset[str] = frozenset()


class NotCovered(Exception):
    """A document uses what `odradek.streams` does not have; the message names it."""


def missing(document: Document) -> str | None:
    """The first thing in it that `odradek.streams` does not have."""
    for node in document["nodes"]:
        if node["op"] in NOT_YET:
            return str(node["op"])
    return None


def light_session(running: SparkSession | None = None) -> SparkSession:
    """A session for many tiny programs: generated code and plans that adapt cost more than they bring.

    Where Spark runs already, it is a second session with settings of its own.
    """
    active = pyspark_sql.SparkSession.getActiveSession() if running is None else running
    spark = _new_spark() if active is None else active.newSession()
    for name, value in _FOR_TINY_PROGRAMS.items():
        spark.conf.set(name, value)
    return spark


_FOR_TINY_PROGRAMS = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


def _new_spark() -> SparkSession:
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    logging.getLogger("py4j").setLevel(logging.ERROR)
    builder = pyspark_sql.SparkSession.builder.appName("odradek-oracle").master("local[1]")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.log.level": "OFF",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.task.maxFailures": "1",
        **WITHOUT_ORIGINS,
    }.items():
        builder = builder.config(name, value)
    with unpacked_pyspark():
        return builder.getOrCreate()


class OurDriver:
    """Our test driver on one Spark session. `with OurDriver() as ours:` makes a session; one that is given stays open."""

    def __init__(self, spark: Any = None) -> None:
        self._own = spark is None
        self._spark = light_session() if spark is None else spark

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._own:
            self._spark.stop()

    def answers(self, documents: list[Document]) -> list[Outputs | str]:
        """What our test driver writes for each, or the error that it raised. Documents of the same nodes run together."""
        written: dict[int, Outputs | str] = {}
        together: dict[str, list[int]] = {}
        for number, document in enumerate(documents):
            together.setdefault(json.dumps([document["nodes"], emit_of(document)]), []).append(number)
        for numbers in together.values():
            answers = self._together([documents[number] for number in numbers])
            written.update(zip(numbers, answers, strict=True))
        return [written[number] for number in range(len(documents))]

    def _together(self, documents: list[Document]) -> Sequence[Outputs | str]:
        try:
            return run(documents, self._spark)
        except Exception as problem:  # noqa: BLE001 a program that fails is a finding, and the others go on
            return [f"{type(problem).__name__}: {str(problem)[:400]}"] * len(documents)


def run(documents: list[Document], spark: Any) -> list[Outputs]:
    """What our test driver writes for documents of the same nodes: one job, in which each document has a task of its own."""
    app = Streams(f"program-{documents[0]['seed']}", emit=emit_of(documents[0]), spark=spark)
    topics = build(app, documents[0])
    answers: list[Outputs] = [{topic: [] for topic in topics} for _ in documents]
    with app.test() as driver, mock.patch(_CHOICE_OF_TASK, _task_of):
        for number, document in enumerate(documents):
            headers = [(_DOCUMENT, b"%d" % number)]
            for topic, key, value, timestamp in document["inputs"]:
                fields = None if value is None else {"tag": value[0], "n": value[1]}
                row = {"key": key, "value": fields, "timestamp": timestamp, "headers": headers}
                driver.feed(topic, [row])
        for topic, records in driver.read_all().items():
            for record in records:
                answers[int(dict(record.headers)[_DOCUMENT])][topic].append(_plain(record))
    return answers


_DOCUMENT = "document"
_CHOICE_OF_TASK = "odradek.streams.translation.adapter.task_of"


def _task_of(port: Any, tasks: int) -> Column:
    """Returns the task that a header of the record names, in place of our choice by key."""
    return functions.expr("CAST(CAST(__headers[0].value AS STRING) AS INT)")


def emit_of(document: Document) -> Emit:
    """What tables of a document say of a batch: every update, unless it asks for the latest."""
    emit: Emit = document.get("emit", "every")
    return emit


def build(app: Streams, document: Document) -> list[str]:
    """Declare the program; the topics that it writes."""
    made: dict[str, Any] = {}
    final: dict[str, Any] = {}
    topics = []
    for node in document["nodes"]:
        inputs = [made[name] for name in upstream(node)]
        if node["op"] == "suppress":
            made[node["id"]] = final[node["in"]]
        elif node["op"] == "to":
            inputs[0].to(node["topic"])
            topics.append(node["topic"])
        elif not inputs:
            made[node["id"]] = _source(app, node)
        else:
            made[node["id"]] = _OPERATORS[node["op"]](node, *inputs)
            if node["op"] == "aggregate" and _is_suppressed(document, node):
                final[node["id"]] = _aggregate(node, *inputs, final=True)
    return topics


def _is_suppressed(document: Document, node: Node) -> bool:
    return any(
        operator["op"] == "suppress" and operator["in"] == node["id"] for operator in document["nodes"]
    )


def _plain(record: Any) -> Output:
    key = record.key
    if isinstance(key, dict):
        key = [key["key"], key["window_start"], key["window_end"]]
    value = record.value
    return [key, None if value is None else [value["tag"], value["n"]], record.timestamp]


def _source(app: Streams, node: Node) -> Any:
    match node["op"]:
        case "stream":
            return app.stream(node["topic"], key=sql.KEY, value=sql.VALUE)
        case "table":
            versioned = _ms(node["versioned"]) if "versioned" in node else None
            return app.table(node["topic"], key=sql.KEY, value=sql.VALUE, versioned=versioned)
        case "global":
            return app.global_table(node["topic"], key=sql.KEY, value=sql.VALUE)
    raise NotCovered(node["op"])


# --- stateless


def _filter(node: Node, upstream: Any) -> Any:
    condition = sql.where(node["where"])
    return upstream.filter_not(condition) if node.get("not") else upstream.filter(condition)


def _map_values(node: Node, upstream: Any) -> Any:
    return upstream.select(sql.change(node["change"]))


def _select_key(node: Node, upstream: Any) -> Any:
    return upstream.select_key(sql.by(node["by"]).named("key"))


def _map(node: Node, upstream: Any) -> Any:
    return upstream.map(key=sql.by(node["by"]).named("key"), value=sql.change(node["change"]))


def _flat_map(node: Node, upstream: Any) -> Any:
    if node["expand"]["f"] == "repeat":
        return upstream.flat_map(sql.repeated(node["expand"]))
    return upstream.flat_map(sql.KEYED_TWICE).map(
        key=sql.column("k").named("key"), value=sql.column("v").named("value")
    )


def _branch(node: Node, upstream: Any) -> Any:
    return upstream.split(*map(sql.where, node["where"]), otherwise=True)[node["take"]]


# --- aggregates


def _grouped(node: Node, upstream: Any) -> Any:
    return (
        upstream.group_by_key() if node["by"] is None else upstream.group_by(sql.by(node["by"]).named("key"))
    )


def _windowed(grouped: Any, window: Node | None) -> Any:
    if window is None:
        return grouped
    grace = _ms(window["grace"])
    match window["kind"]:
        case "sliding":
            return grouped.sliding(_ms(window["difference"]), grace=grace)
        case "session":
            return grouped.session(_ms(window["gap"]), grace=grace)
        case "hopping":
            return grouped.window(_ms(window["size"]), every=_ms(window["advance"]), grace=grace)
    return grouped.window(_ms(window["size"]), grace=grace)


def _ms(length: int) -> str:
    return f"{length} milliseconds"


def _aggregate(node: Node, upstream: Any, *, final: bool = False) -> Any:
    grouped = _windowed(_grouped(node, upstream), node["window"])
    if final:
        grouped = grouped.final()
    agg = node["agg"]
    if agg["kind"] == "count":
        return _counted(grouped.count())
    if agg["kind"] == "reduce":
        return grouped.reduce(_reducer(agg))
    merge = {"merge": _merger(agg)} if (node["window"] or {}).get("kind") == "session" else {}
    return grouped.aggregate(_zero, _adder(agg), schema=sql.VALUE, **merge)


def _counted(counts: Any) -> Any:
    return counts.select(sql.tagged("#"))


def _regroup(node: Node, upstream: Any) -> Any:
    grouped = upstream.group_by(sql.by(node["by"]).named("key"))
    if node["agg"]["kind"] == "count":
        return _counted(grouped.count())
    if node["by"]["f"] == "tag":  # in SQL now and then, where no rows make no sum
        return grouped.agg(sql.SUMMED).select(sql.tagged(""))
    return grouped.aggregate(_zero, _adder(node["agg"]), _subtractor, schema=sql.VALUE)


def _zero() -> dict[str, Any]:
    return {"tag": "", "n": 0}


_NUMBERS: dict[str, Callable[[int, int], int]] = {
    "sum": lambda total, n: total + n,
    "count": lambda total, n: total + 1,
    "min": min,
    "max": max,
    "first": lambda total, n: total,
    "last": lambda total, n: n,
}
_TEXTS: dict[str, Callable[[str, str], str]] = {
    "none": lambda total, tag: "",
    "concat": lambda total, tag: total + tag,
    "min": min,
    "max": max,
    "first": lambda total, tag: total,
    "last": lambda total, tag: tag,
}


def _reducer(agg: Node) -> Callable[[Any, Any], dict[str, Any]]:
    numbers, texts = _NUMBERS[agg["n"]], _TEXTS[agg["tag"]]

    def reduce(old: Any, new: Any) -> Any:
        if new is None:
            return old
        return {"tag": texts(old["tag"], new["tag"]), "n": numbers(old["n"], new["n"])}

    return reduce


def _adder(agg: Node) -> Callable[[Any, Any, Any], dict[str, Any]]:
    reduce = _reducer(agg)
    return lambda key, value, total: reduce(total, value)


def _subtractor(key: Any, value: Any, total: Any) -> dict[str, Any]:
    return {"tag": "", "n": total["n"] - value["n"]}


def _merger(agg: Node) -> Callable[[Any, Any, Any], dict[str, Any]]:
    """Two sessions: what the reducer makes of both, but counts add up."""
    reduce = _reducer({**agg, "n": "sum"} if agg["n"] == "count" else agg)
    return lambda key, first, second: reduce(first, second)


def _cogroup(node: Node, *upstream: Any) -> Any:
    first, *others = [stream.group_by_key() for stream in upstream]
    adders = [_adder(agg) for agg in node["aggs"]]
    together = first.cogroup(adders[0])
    for other, adder in zip(others, adders[1:], strict=True):
        together = together.cogroup(other, adder)
    if node["window"] is None:
        return together.aggregate(_zero, schema=sql.VALUE)
    windowed = together.windowed(lambda grouped: _windowed(grouped, node["window"]))
    merge = {"merge": _merger(node["aggs"][0])} if node["window"]["kind"] == "session" else {}
    return windowed.aggregate(_zero, schema=sql.VALUE, **merge)


# --- joins


def _join_streams(node: Node, left: Any, right: Any) -> Any:
    return left.join(
        right,
        within=_ms(node["before"]),
        before=_ms(node["before"]),
        after=_ms(node["after"]),
        grace=_ms(node["grace"]),
        how=node["how"],
        prefix="r_",
        select=sql.JOINED,
    )


def _join(node: Node, left: Any, right: Any) -> Any:
    more = {"on": sql.by(node["by"])} if "by" in node else {}
    if "grace" in node:
        more["grace"] = _ms(node["grace"])
    return left.join(right, how=node["how"], prefix="r_", select=sql.JOINED, **more)


_OPERATORS: dict[str, Callable[..., Any]] = {
    "filter": _filter,
    "mapValues": _map_values,
    "selectKey": _select_key,
    "map": _map,
    "flatMap": _flat_map,
    "flatMapValues": _flat_map,
    "merge": lambda node, left, right: left.merge(right),
    "branch": _branch,
    "repartition": lambda node, upstream: upstream.repartition(),
    "toTable": lambda node, upstream: upstream.to_table(),
    "toStream": lambda node, upstream: upstream.to_stream(),
    "unwindow": lambda node, upstream: upstream.select_key(sql.column("key")),
    "aggregate": _aggregate,
    "cogroup": _cogroup,
    "regroup": _regroup,
    "joinStreams": _join_streams,
    "joinTable": _join,
    "joinGlobal": _join,
    "joinTables": _join,
    "joinForeign": _join,
}
