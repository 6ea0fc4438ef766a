"""Micro-batches of few records without generated code, and without a plan that an earlier batch had.

Spark makes the text of a batch's code again for each batch, a fifth of what a small one costs. Rows of a large one are two to
three times as fast with it. `SmallBatches.java` is a rule of Spark's optimizer that counts the records between the offsets of
a batch and the other rows that it reads, and sets the batch's session. Expressions mean the same either way: the test
driver of streams never generates code.

Spark also analyzes and optimizes the plan of each batch and chooses its operators, a quarter of what a small one costs after
that. `KnownPlans.java` does so once for all small batches of a query whose plans are equal except for their offsets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from odradek.model.lazy import lazy
from odradek.spark.engine import java_classes, jvm
from odradek.telemetry import events

if TYPE_CHECKING:
    import pyspark.sql as sql
    from py4j import protocol as py4j_protocol
else:
    py4j_protocol = lazy("py4j.protocol")

RECORDS_MAX: Final = 500
"""The most records of a small batch. Code costs 45 ms of CPU for each batch, and saves 60 µs for each record."""
SETTINGS: Final = ("spark.sql.codegen.wholeStage", "spark.sql.codegen.factoryMode")
_SIZES: Final = java_classes.JavaSource(
    package="org.apache.spark.sql.execution",
    beside="SparkPlanner",
    anchor=__name__,
    file="SmallBatches.java",
    classes=("SmallBatches",),
)
_ROWS: Final = java_classes.JavaSource(
    package=_SIZES.package,
    beside=_SIZES.beside,
    anchor=__name__,
    file="RowsInJvm.java",
    classes=(
        "PackedRowIterator",
        "UnpackedRowIterator",
        "PackRows",
        "UnpackRows",
        "RowsPackedExec",
        "RowsUnpackedExec",
        "RowsInJvm",
    ),
)
_PLANS: Final = java_classes.JavaSource(
    package=_SIZES.package,
    beside=_SIZES.beside,
    anchor=__name__,
    file="KnownPlans.java",
    classes=(
        "PlanMemory",
        "TimeOfPlanning",
        "AnalyzerWithMemory",
        "OptimizerWithMemory",
        "StrategyWithMemory",
        "KnownPlans",
    ),
)
_log = events.get("spark")


def interpret_small_batches(spark: sql.SparkSession) -> None:
    """Queries that start in the session from now on generate no code for small batches, unless the session sets whether code is
    generated, and plan batches once that differ in their offsets only. Where Java does not take the rules, all batches generate
    code or are planned in full, and a line is logged.
    """
    if any(spark.conf.get(name, None) is not None for name in SETTINGS):
        return
    session: Any = spark
    bridge = session.sparkContext._jvm
    rules: Any = bridge.org.apache.spark.sql.execution
    directory = jvm.class_directory(session.sparkContext._gateway)
    event = "small_batches_not_interpreted"
    try:
        java_classes.define(bridge, _SIZES, directory)
        sizes = rules.SmallBatches(RECORDS_MAX)
        sizes.addTo(session._jsparkSession)
        event = "small_batches_planned_in_full"
        java_classes.define(bridge, _ROWS, directory)
        java_classes.define(bridge, _PLANS, directory)
        rules.KnownPlans(sizes).addTo(session._jsparkSession)
    except (py4j_protocol.Py4JError, OSError) as error:
        _log.info(event, reason=str(error).partition("\n")[0])
