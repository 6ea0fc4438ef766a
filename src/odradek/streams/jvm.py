"""Spark's JVM, started so that what its Python workers chatter does not reach the user's terminal.

A worker of transformWithState prints some lines whenever a query starts (pyspark 4.3), and has no switch for it. The JVM's
standard error goes through a pipe of ours, and all other lines are passed on.
"""

from __future__ import annotations

import os
import re
import shlex
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from odradek.config.files import properties
from odradek.model.lazy import lazy
from odradek.spark import class_archive, local_files
from odradek.spark.own_session import own_session
from odradek.spark.unpacked_pyspark import PATIENT_WITH_WORKERS, unpacked_pyspark

if TYPE_CHECKING:
    import pyspark
    from pyspark import java_gateway

    from odradek.streams import jvm_names
else:
    jvm_names = lazy("odradek.streams.jvm_names")
    pyspark = lazy("pyspark")
    java_gateway = lazy("pyspark.java_gateway")

_CHATTER: Final = (
    b"Starting Streaming TransformWithStateIn",
    b"Streaming TransformWithStateIn",
)
_LINE: Final = re.compile(rb"[^\r\n]*[\r\n]")
"""A progress bar ends in a carriage return, and other lines follow it."""
JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
BRIEF: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Of a JVM that works for seconds: it compiles once, and fast."""
LASTING: Final = (
    "-XX:+UseSerialGC -XX:Tier4InvocationThreshold=20000 -XX:Tier4MinInvocationThreshold=2400"
    " -XX:Tier4CompileThreshold=60000 -XX:Tier4BackEdgeThreshold=160000"
)
"""Of a JVM for hours: what runs often is compiled again, for two to three times the speed. Four times as late as Java
does by itself: on few cores the compiler takes them from the first batches.
"""
_CHUNK_BYTES: Final = 1 << 16
_STANDARD_ERROR: Final = 2
_SUBMIT: Final = "PYSPARK_SUBMIT_ARGS"
_PROPERTIES: Final = "--properties-file"
_of_sessions: Final[WeakKeyDictionary[Any, Mapping[str, str]]] = WeakKeyDictionary()
"""By the gateway of a JVM that was started here."""


def start_jvm(settings: Mapping[str, str]) -> Mapping[str, str]:
    """Start the JVM of this process, unless it has one. `settings`: of Spark; some count only when a JVM starts. Returned are
    settings for the sessions of this JVM.

    Where the master is local, its workers import PySpark from a directory, unless SPARK_HOME is set, other users of the
    machine are kept out, and files of this machine need no processes.
    """
    context: Any = pyspark.SparkContext
    with context._lock:
        if context._gateway is not None:
            return _of_sessions.get(context._gateway, {})
        master = settings.get("spark.master", "")
        reading, writing = os.pipe()
        threading.Thread(target=_pass_on, args=[reading], name="odradek-jvm-stderr", daemon=True).start()
        try:
            launch: Any = java_gateway.launch_gateway
            is_local = master.startswith("local")
            with (
                own_session(master) as own,
                unpacked_pyspark() if is_local else nullcontext() as home,
                _handed_over(_conf({**own, **settings}, home)),
            ):
                gateway = launch(popen_kwargs={"stderr": writing})
        finally:
            os.close(writing)
        jvm_names.remember_names(gateway)
        context._gateway, context._jvm = gateway, gateway.jvm
        if is_local:
            classes = None if home is None else home / "classes"
            _of_sessions[gateway] = local_files.settings(gateway.jvm, classes)
        return _of_sessions.get(gateway, {})


@contextmanager
def _handed_over(conf: pyspark.SparkConf) -> Iterator[None]:
    """A JVM that starts in this block reads the settings from a file that only we can read, which goes afterwards.

    PySpark would write them on command lines, and every user of the machine can read those.
    """
    before = os.environ.get(_SUBMIT)
    words = shlex.split(before or "pyspark-shell")
    settings = {}
    if _PROPERTIES in words:  # Spark takes one such file: what is in the user's goes into ours
        place = words.index(_PROPERTIES)
        settings = dict(properties.parse_properties(Path(words[place + 1]).read_text("utf-8")).values)
        del words[place : place + 2]
    else:
        words.insert(0, "--load-spark-defaults")
    settings |= dict(conf.getAll())
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", prefix="odradek-spark-", suffix=".conf") as file:
        file.write(properties.format_properties(settings))
        file.flush()
        os.environ[_SUBMIT] = shlex.join([_PROPERTIES, file.name, *words])
        try:
            yield
        finally:
            if before is None:
                del os.environ[_SUBMIT]
            else:
                os.environ[_SUBMIT] = before


def _conf(settings: Mapping[str, str], home: Path | None) -> pyspark.SparkConf:
    conf = pyspark.SparkConf(loadDefaults=False)
    conf.setAll(list({**PATIENT_WITH_WORKERS, **settings}.items()))
    options = [] if home is None else class_archive.options_to_write(home)
    if options:
        conf.set(JAVA_OPTIONS, " ".join([settings.get(JAVA_OPTIONS, ""), *options]).strip())
    return conf


def _write(data: bytes) -> None:
    with suppress(OSError):  # no one reads it any more, and the JVM must not wait for that
        os.write(_STANDARD_ERROR, data)


def _pass_on(reading: int) -> None:
    """Until the JVM ends."""
    without_chatter = ChatterFilter(_write)
    with os.fdopen(reading, "rb", buffering=0) as stream:
        while chunk := stream.read(_CHUNK_BYTES):
            without_chatter.feed(chunk)
    without_chatter.end()


class ChatterFilter:
    """Passes lines on, but not the chatter, nor the empty line after each of its lines. The beginning of a line waits only as
    long as it may be chatter.
    """

    def __init__(self, write: Callable[[bytes], object]) -> None:
        self._write = write
        self._held = b""
        self._passes = False
        """The line that has begun is passed on."""
        self._was_chatter = False
        """The line before was."""

    def feed(self, data: bytes) -> None:
        """What was written, cut anywhere."""
        *lines, self._held = _split(self._held + data)
        passed = b"".join(filter(None, map(self._whole, lines)))
        if self._held and (self._passes or not _may_be_chatter(self._held)):
            passed += self._held
            self._held, self._passes, self._was_chatter = b"", True, False
        if passed:
            self._write(passed)

    def end(self) -> None:
        """Nothing more comes."""
        if self._held:
            self._write(self._held)
            self._held = b""

    def _whole(self, line: bytes) -> bytes | None:
        """A line with its end, or the rest of one."""
        if self._passes:
            self._passes = False
            return line
        if line.startswith(_CHATTER):
            self._was_chatter = True
            return None
        is_after, self._was_chatter = self._was_chatter, False
        return None if is_after and line == b"\n" else line


def _may_be_chatter(beginning: bytes) -> bool:
    return any(beginning.startswith(chatter[: len(beginning)]) for chatter in _CHATTER)


def _split(data: bytes) -> list[bytes]:
    """Lines with their ends, and what follows the last of them, which may be nothing."""
    lines = _LINE.findall(data)
    return [*lines, data[sum(map(len, lines)) :]]
