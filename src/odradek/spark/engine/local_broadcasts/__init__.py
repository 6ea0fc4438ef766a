"""What a job broadcasts reaches the tasks of the same JVM as it is.

Spark writes the code of each stage as blocks, and Hadoop's settings for each operator with state, though the tasks of a local
master have the values already. `LocalBroadcasts.java` hands the values on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from odradek.model.lazy import lazy
from odradek.spark.engine import java_classes, jvm
from odradek.telemetry import events

if TYPE_CHECKING:
    import pyspark.sql as sql
    from py4j import protocol as py4j_protocol
    from py4j.java_gateway import JavaObject
else:
    py4j_protocol = lazy("py4j.protocol")

_SOURCE: Final = java_classes.JavaSource(
    package="org.apache.spark.broadcast",
    beside="TorrentBroadcastFactory",
    anchor=__name__,
    file="LocalBroadcasts.java",
    classes=("NumberedReference", "LocalBroadcast", "LocalBroadcasts"),
)
_EVENT: Final = "local_broadcasts_not_used"
_log = events.get("spark")


def share_values(spark: sql.SparkSession) -> None:
    """Makes the jobs of a session, whose master is local, broadcast without blocks. Where Spark differs from what is known,
    its own broadcasts are used, and a line is logged.
    """
    context: Any = spark.sparkContext
    bridge = context._jvm
    try:
        java_classes.define(bridge, _SOURCE, jvm.class_directory(context._gateway))
        if not bridge.org.apache.spark.broadcast.LocalBroadcasts.serve(broadcast_manager(spark)):
            _log.info(_EVENT, reason="Spark broadcasts in another way")
    except (py4j_protocol.Py4JError, OSError) as error:
        _log.info(_EVENT, reason=str(error).partition("\n")[0])


def broadcast_manager(spark: sql.SparkSession) -> JavaObject:
    """Returns what Spark makes broadcasts with. A call through the bridge would look at all methods of SparkEnv, of which some
    have types that PySpark does not bring.
    """
    context: Any = spark.sparkContext
    java: Any = context._jvm.java
    names = java.lang.Class
    kind = java.lang.invoke.MethodType.methodType(
        names.forName("org.apache.spark.broadcast.BroadcastManager")
    )
    lookup = java.lang.invoke.MethodHandles.publicLookup()
    getter = lookup.findVirtual(names.forName("org.apache.spark.SparkEnv"), "broadcastManager", kind)
    environment = java.util.ArrayList()
    environment.add(context._jsc.sc().env())
    manager: JavaObject = getter.invokeWithArguments(environment)
    return manager
