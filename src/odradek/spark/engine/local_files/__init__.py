"""Checkpoints on this machine without a process for each file.

For each file that Spark makes or renames, Hadoop (3.5) starts `chmod`, and `readlink` several times, unless its native library
is there, which PySpark does not bring: 60 processes until the first row of a query that groups, and 30 ms for each file of a
checkpoint. `LocalFiles.java` asks the system itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from odradek.model.lazy import lazy
from odradek.spark.engine import java_classes
from odradek.telemetry import events

if TYPE_CHECKING:
    from py4j import protocol as py4j_protocol
    from py4j.java_gateway import JVMView
else:
    py4j_protocol = lazy("py4j.protocol")

_PACKAGE: Final = "org.apache.hadoop.fs"
_SOURCE: Final = java_classes.JavaSource(
    package=_PACKAGE,
    beside="LocalFileSystem",
    anchor=__name__,
    file="LocalFiles.java",
    classes=("OwnProcessFiles", "OwnProcessContext", "OdradekLocalFileSystem", "OdradekLocalFs"),
)
_SETTINGS: Final = {
    "spark.hadoop.fs.file.impl": f"{_PACKAGE}.OdradekLocalFileSystem",
    "spark.hadoop.fs.AbstractFileSystem.file.impl": f"{_PACKAGE}.OdradekLocalFs",
}
_log = events.get("spark")


def settings(jvm: JVMView, cache: Path | None) -> Mapping[str, str]:
    """Defines the classes in a JVM and returns the settings of a session whose tasks run in it. Call before the session starts.

    `cache`: as in `java_classes.define`. Without settings, Hadoop's own files serve.
    """
    try:
        java_classes.define(jvm, _SOURCE, cache)
    except (py4j_protocol.Py4JError, OSError) as error:
        _log.info("local_files_not_used", reason=str(error).partition("\n")[0])
        return {}
    return _SETTINGS
