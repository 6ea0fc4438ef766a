"""Tasks run in the Python worker that worked last.

Spark takes the worker that has been idle for longest, so the batches of many queries go to all workers in turn. Each of them
has connections and transactional ids of its own, and little of its memory is in the processor's caches when its turn comes.
`LastWorkerFirst.java` turns the order around.
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

_SOURCE: Final = java_classes.JavaSource(
    package="org.apache.spark.api.python",
    beside="PythonWorkerFactory",
    anchor=__name__,
    file="LastWorkerFirst.java",
    classes=("IdleWorkers", "LastWorkerFirst"),
)
_EVENT: Final = "last_worker_not_first"
_log = events.get("spark")


def take_last_worker_first(spark: sql.SparkSession) -> None:
    """Makes the tasks of a session, whose master is local, run in the worker that worked last. Where Spark differs from what is
    known, its own order stays, and a line is logged.
    """
    context: Any = spark.sparkContext
    bridge = context._jvm
    try:
        java_classes.define(bridge, _SOURCE, jvm.class_directory(context._gateway))
        spark_context = context._jsc.sc()
        order: Any = bridge.org.apache.spark.api.python.LastWorkerFirst
        if not order.serve(spark_context, spark_context.env()):
            _log.info(_EVENT, reason="Spark keeps idle workers in another way")
    except (py4j_protocol.Py4JError, OSError) as error:
        _log.info(_EVENT, reason=str(error).partition("\n")[0])
