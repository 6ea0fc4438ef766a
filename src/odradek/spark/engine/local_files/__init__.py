"""Checkpoints on this machine without a process for each file.

For each file that Spark makes or renames, Hadoop (3.5) starts `chmod`, and `readlink` several times, unless its native library
is there, which PySpark does not bring: 60 processes until the first row of a query that groups, and 30 ms for each file of a
checkpoint. `LocalFiles.java` asks the system itself. Janino, of Spark, compiles it, once for each home of links.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from odradek.model.lazy import lazy
from odradek.telemetry import events

if TYPE_CHECKING:
    from py4j import protocol as py4j_protocol
else:
    py4j_protocol = lazy("py4j.protocol")

_PACKAGE: Final = "org.apache.hadoop.fs"
_CLASSES: Final = ("OwnProcessFiles", "OwnProcessContext", "OdradekLocalFileSystem", "OdradekLocalFs")
"""Each after those that it extends or makes."""
_SETTINGS: Final = {
    "spark.hadoop.fs.file.impl": f"{_PACKAGE}.OdradekLocalFileSystem",
    "spark.hadoop.fs.AbstractFileSystem.file.impl": f"{_PACKAGE}.OdradekLocalFs",
}
_log = events.get("spark")


def settings(jvm: Any, cache: Path | None) -> Mapping[str, str]:
    """Defines the classes in a JVM and returns the settings of a session whose tasks run in it. Call before the session starts.

    `cache`: a directory that may be there, for what was compiled; None: compile. Without settings, Hadoop's own files serve.
    """
    try:
        _define(jvm, _compiled(jvm, cache))
    except (py4j_protocol.Py4JError, OSError) as error:
        _log.info("local_files_not_used", reason=str(error).partition("\n")[0])
        return {}
    return _SETTINGS


def _define(jvm: Any, compiled: Mapping[str, bytes]) -> None:
    """Defines the classes in the loader of Hadoop's, so Spark finds both. Does nothing where an earlier session did so."""
    if _has_class(jvm, _CLASSES[-1]):
        return
    handles = jvm.java.lang.invoke.MethodHandles
    beside = jvm.java.lang.Class.forName(f"{_PACKAGE}.LocalFileSystem")
    lookup = handles.privateLookupIn(beside, handles.lookup())
    for name in _CLASSES:
        lookup.defineClass(compiled[name])


def _has_class(jvm: Any, name: str) -> bool:
    try:
        jvm.java.lang.Class.forName(f"{_PACKAGE}.{name}")
    except py4j_protocol.Py4JJavaError:  # ClassNotFoundException
        return False
    return True


def _compiled(jvm: Any, cache: Path | None) -> Mapping[str, bytes]:
    source = resources.files(__name__).joinpath("LocalFiles.java").read_text("utf-8")
    directory = None if cache is None else cache / hashlib.sha256(source.encode()).hexdigest()[:16]
    if directory is not None and directory.is_dir():
        return {name: (directory / f"{name}.class").read_bytes() for name in _CLASSES}
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.cook(source)
    written = compiler.getBytecodes()
    compiled = {name: bytes(written[f"{_PACKAGE}.{name}"]) for name in _CLASSES}
    if directory is not None:
        _keep(directory, compiled)
    return compiled


def _keep(directory: Path, compiled: Mapping[str, bytes]) -> None:
    """Stores all of it or nothing: several processes may start at once."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f"{directory.name}-", dir=directory.parent))
    for name, content in compiled.items():
        with (draft / f"{name}.class").open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    try:
        draft.rename(directory)
    except OSError:
        shutil.rmtree(draft)  # another process was faster
