"""`Streams`: a program of streams and tables, and what can be done with it: start it, test it, describe it."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from odradek.model.lazy import lazy
from odradek.model.public import public
from odradek.streams.language import GlobalTable, Stream, Table
from odradek.streams.plan.arguments import (
    checked_mapping,
    checked_name,
    checked_partitions,
    checked_session,
    checked_text,
    checked_topic,
    unread_topics,
)
from odradek.streams.plan.operators import (
    Emit,
    Expression,
    FrameSource,
    TopicSource,
    checked_expressions,
    listed,
)
from odradek.streams.plan.program import OnError, Program
from odradek.streams.plan.schemas import Format, declared
from odradek.streams.plan.windows import Length, milliseconds

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from odradek.net import metrics_page
    from odradek.streams import driver, picture, running
    from odradek.streams.driver import TestDriver
    from odradek.streams.running import Run
else:
    driver = lazy("odradek.streams.driver")
    metrics_page = lazy("odradek.net.metrics_page")
    picture = lazy("odradek.streams.picture")
    running = lazy("odradek.streams.running")

log = logging.getLogger(__name__)


@public("odradek.streams")
class Streams:
    """A program of streams and tables.

    `servers`: bootstrap servers, which only `start` needs. `partitions`: into how many tasks the keys of an operator
    are divided; it
    stays as it is at the first start. `emit`: whether tables emit `every` update or the `latest` of a batch. `on_error`: how
    to handle a record that cannot be decoded or used: the query fails, `skip`, or `dead-letter` to the topic `bad`.
    `options`: of `format("odradek")`, such as `kafka.security.protocol`, for reading and writing. `starting`: by topic, where
    its records are read from at the first start, in the form of the option `startingOffsets`; others from the first record on.
    """

    def __init__(
        self,
        name: str,
        *,
        servers: str | None = None,
        partitions: int = 1,
        emit: Emit = "latest",
        on_error: OnError = "fail",
        bad: str | None = None,
        options: Mapping[str, str] | None = None,
        spark: SparkSession | None = None,
        starting: Mapping[str, str] | None = None,
    ) -> None:
        checked_partitions(partitions)
        if servers is not None:
            checked_text(servers, "servers", "text such as 'host-1:9092,host-2:9092'")
        self.program = Program(
            name=checked_name(name, "the program's name", "text such as 'orders'"),
            servers=servers,
            partitions=partitions,
            emit=emit,
            options=dict(checked_mapping(options or {}, "options", "{'kafka.security.protocol': 'SSL'}")),
            spark=checked_session(spark),
            on_error=on_error,
            bad=None if bad is None else checked_topic(bad, "bad"),
        )
        self._starting = dict(checked_mapping(starting or {}, "starting", "{'orders': 'latest'}"))
        self._topics: set[str] = set()
        self.program.check_errors()

    def stream(
        self,
        topic: str,
        *,
        key: str | None = None,
        value: str | None = None,
        key_format: Format = "json",
        value_format: Format = "json",
        timestamp: Expression | None = None,
        bad: str | None = None,
        options: Mapping[str, str] | None = None,
        name: str | None = None,
    ) -> Stream:
        """Returns the records of a topic as a stream. `key` and `value` are DDL: one bare type, or fields; BINARY when they
        are not given. A format with a schema file, such as `value_format=Avro("order.avsc")`, needs none. `timestamp`: an
        expression in milliseconds. `bad`: the topic for records that cannot be decoded."""
        source = self._source(topic, key, value, key_format, value_format, options, name, timestamp, bad)
        return Stream(self.program, source)

    def table(
        self,
        topic: str,
        *,
        key: str | None = None,
        value: str | None = None,
        key_format: Format = "json",
        value_format: Format = "json",
        versioned: Length | None = None,
        bad: str | None = None,
        options: Mapping[str, str] | None = None,
        name: str | None = None,
    ) -> Table:
        """Returns a compacted topic as a table: its last value for each key. A null value deletes; a record without key is
        left out.

        `versioned`, such as "1 hour": the table goes by timestamps, remembers what was true for so long, and leaves out what
        comes later than that. Streams join what was true at their records' time.
        """
        source = self._source(
            topic, key, value, key_format, value_format, options, name, None, bad, table=True
        )
        if versioned is not None:
            source = replace(source, versioned_ms=milliseconds(versioned, "versioned"))
        return Table(self.program, source)

    def global_table(
        self,
        topic: str,
        *,
        key: str | None = None,
        value: str | None = None,
        key_format: Format = "json",
        value_format: Format = "json",
        bad: str | None = None,
        options: Mapping[str, str] | None = None,
        name: str | None = None,
    ) -> GlobalTable:
        """Reads a table, as `table` does, but all of it in every task: for small tables that streams join by any expression."""
        source = self._source(
            topic, key, value, key_format, value_format, options, name, None, bad, table=True
        )
        return GlobalTable(self.program, replace(source, everywhere=True))

    def from_df(
        self,
        frame: DataFrame,
        *,
        key: Expression | Iterable[Expression],
        value: Expression | Iterable[Expression] = "*",
        timestamp: Expression = "0L",
        name: str | None = None,
    ) -> Stream:
        """Returns a DataFrame of yours as a stream. `timestamp` in milliseconds."""
        checked_expressions((timestamp,), "timestamp")
        return Stream(
            self.program,
            FrameSource(
                name=self.program.operator_name("frame", name),
                frame=frame,
                key=listed(key, "key"),
                value=listed(value, "value"),
                timestamp=timestamp,
            ),
        )

    def _source(
        self,
        topic: str,
        key: str | None,
        value: str | None,
        key_format: Format,
        value_format: Format,
        options: Mapping[str, str] | None,
        name: str | None,
        timestamp: Expression | None,
        bad: str | None,
        *,
        table: bool = False,
    ) -> TopicSource:
        self._topics.add(checked_topic(topic, "table" if table else "stream"))
        if timestamp is not None:
            checked_expressions((timestamp,), "timestamp")
        reader_options = checked_mapping(options or {}, "options", "{'maxOffsetsPerTrigger': '1000'}")
        return TopicSource(
            name=self.program.operator_name("table" if table else "stream", name),
            topic=topic,
            key=declared(key, "key", key_format),
            value=declared(value, "value", value_format),
            table=table,
            options=tuple({**self._starting_options(topic), **reader_options}.items()),
            timestamp=timestamp,
            bad=None if bad is None else checked_topic(bad, "bad"),
        )

    def _starting_options(self, topic: str) -> dict[str, str]:
        return {"startingOffsets": self._starting[topic]} if topic in self._starting else {}

    def describe(self, *, svg: bool | str | Path = False) -> str:
        """Returns the plan as text, one operator a line. `svg`: as a picture; a path is a file to write it to."""
        if svg is False:
            return self.program.describe()
        drawn = picture.svg(self.program.name, self.program.ends)
        if svg is not True:
            Path(svg).write_text(drawn, encoding="utf-8")
        return drawn

    def test(self, *, spark: SparkSession | None = None) -> TestDriver:
        """Runs the program on rows of a test, without a broker: `with app.test() as t: t.feed(...); t.read(...)`."""
        return driver.TestDriver(self.program, checked_session(spark))

    def start(
        self,
        *,
        checkpoint: str | Path,
        delivery: str = "exactly_once",
        interval: str = "500 milliseconds",
        until_now: bool = False,
        changelog: bool = True,
        options: Mapping[str, str] | None = None,
        spark: SparkSession | None = None,
        metrics: str | None = None,
    ) -> Run:
        """Runs the program: one query of Spark for each output, or for those that name the same one (`to(..., query=)`).

        `checkpoint`: a directory that stays. `until_now`: end when all is read that was there. `changelog`: with delivery
        exactly_once, keep state in topics, too; without its checkpoint, the program then continues with them where it was.
        `spark`: the session to run in, in place of the one that `Streams(spark=)` names. `metrics`: HOST:PORT, where
        the metrics of the session's queries are served until the run ends (`odradek.spark.serve_metrics` has tokens and TLS).
        """
        for problem in unread_topics(self._starting, self._topics):
            log.warning("%s", problem)
        if spark is not None:
            self.program.spark = checked_session(spark)
        return running.start(
            self.program,
            checkpoint=str(checkpoint),
            delivery=delivery,
            interval=interval,
            until_now=until_now,
            changelog=changelog,
            options=dict(options or {}),
            metrics=None if metrics is None else metrics_page.PageTerms.of(metrics),
        )
