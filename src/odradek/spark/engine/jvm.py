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
from enum import Enum, auto
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from odradek.config.files import properties
from odradek.model.lazy import lazy
from odradek.spark.engine import class_archive, local_files
from odradek.spark.engine.own_session import is_local, own_session
from odradek.spark.engine.unpacked_pyspark import PATIENT_WITH_WORKERS, unpacked_pyspark

if TYPE_CHECKING:
    import pyspark
    from py4j.java_gateway import JavaGateway, JVMView
    from pyspark import java_gateway

    from odradek.spark.engine import jvm_calls, jvm_names
else:
    jvm_calls = lazy("odradek.spark.engine.jvm_calls")
    jvm_names = lazy("odradek.spark.engine.jvm_names")
    pyspark = lazy("pyspark")
    java_gateway = lazy("pyspark.java_gateway")

_CHATTER: Final = (
    b"Starting Streaming TransformWithStateIn",
    b"Streaming TransformWithStateIn",
)
_NAME_BYTES_MAX: Final = max(map(len, _CHATTER))
_ENDS: Final = (b"\r", b"\n")
_LINE_END: Final = re.compile(rb"([\r\n])")
"""A progress bar ends in a carriage return, and other lines follow it."""
LINE_BYTES_MAX: Final = 1 << 14
"""Spark prints plans and generated code in lines of megabytes, which no one can read in a log."""
JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
BRIEF: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m"
"""Options of a JVM that compiles once, and fast. Where Java has this compiler alone, it keeps at most 48 MB of compiled code,
which twenty queries fill: then it drops code, and interprets and compiles it again. 240 MB is what it keeps with two
compilers; only what is used takes memory.
"""
LASTING: Final = (
    "-XX:+UseSerialGC -XX:Tier4InvocationThreshold=20000 -XX:Tier4MinInvocationThreshold=2400"
    " -XX:Tier4CompileThreshold=60000 -XX:Tier4BackEdgeThreshold=160000"
)
"""Options of a JVM that works for hours: it recompiles code that runs often, for two to three times the speed. It does so
four times as late as by default: on few cores, the compiler takes cores from the first batches.
"""
_CHUNK_BYTES: Final = 1 << 16
_STANDARD_ERROR: Final = 2
_SUBMIT: Final = "PYSPARK_SUBMIT_ARGS"
_PROPERTIES: Final = "--properties-file"
_of_sessions: Final[WeakKeyDictionary[JavaGateway, Mapping[str, str]]] = WeakKeyDictionary()
"""Settings for sessions, by the gateway of a JVM that was started here."""
_class_directories: Final[WeakKeyDictionary[JavaGateway, Path | None]] = WeakKeyDictionary()
"""The directories for compiled classes, by the gateway of a JVM that was started here."""


def start_jvm(
    settings: Mapping[str, str], output: Callable[[bytes], object] | None = None
) -> Mapping[str, str]:
    """Starts the JVM of this process, unless it has one. `settings`: of Spark; some count only when a JVM starts. Returned are
    settings for the sessions of this JVM. `output` gets what the JVM and its workers write; None: standard error does.

    Where the master is local, its workers import PySpark from a directory, unless SPARK_HOME is set, other users of the
    machine are kept out, and files of this machine need no processes.
    """
    context: Any = pyspark.SparkContext
    with context._lock:
        if context._gateway is not None:
            return _of_sessions.get(context._gateway, {})
        master = settings.get("spark.master", "")
        reading, writing = os.pipe()
        threading.Thread(
            target=_pass_on, args=[reading, output or _write], name="odradek-jvm-stderr", daemon=True
        ).start()
        try:
            launch: Any = java_gateway.launch_gateway
            has_tasks = is_local(master)
            with (
                own_session(master) as own,
                unpacked_pyspark() if has_tasks else nullcontext() as home,
                _handed_over(_conf({**own, **settings}, home)),
            ):
                gateway = launch(popen_kwargs={"stderr": writing})
        finally:
            os.close(writing)
        jvm_names.remember_names(gateway)
        jvm_calls.spare_calls(gateway)
        context._gateway, context._jvm = gateway, gateway.jvm
        if has_tasks:
            classes = None if home is None else home / "classes"
            _class_directories[gateway] = classes
            _of_sessions[gateway] = local_files.settings(gateway.jvm, classes)
        return _of_sessions.get(gateway, {})


def class_directory(gateway: JavaGateway) -> Path | None:
    """Returns the directory for classes that a JVM has compiled; None: it has none."""
    return _class_directories.get(gateway)


def running_jvm() -> JVMView | None:
    """Returns what PySpark calls Java of this process through; None before `start_jvm`."""
    return pyspark.SparkContext._jvm


@contextmanager
def _handed_over(conf: pyspark.SparkConf) -> Iterator[None]:
    """A JVM that starts in this block reads the settings from a file that only we can read, which goes afterwards.

    PySpark would write them on command lines, and every user of the machine can read those.
    """
    before = os.environ.get(_SUBMIT)
    words = shlex.split(before or "pyspark-shell")
    settings = {}
    if _PROPERTIES in words:  # Spark takes one such file: what is in the user's goes into ours
        index = words.index(_PROPERTIES)
        settings = dict(properties.parse_properties(Path(words[index + 1]).read_text("utf-8")).values)
        del words[index : index + 2]
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


class StartOutput:
    """The output of a JVM until its session exists: shown if the start fails, and otherwise dropped, with all later output."""

    def __init__(self, bytes_max: int = 1 << 20) -> None:
        self._bytes_max = bytes_max
        self._parts: list[bytes] | None = []
        self._byte_count = 0
        self._lock = threading.Lock()

    def keep(self, data: bytes) -> None:
        """Keeps it, up to the limit, while the session begins."""
        with self._lock:
            if self._parts is not None and self._byte_count < self._bytes_max:
                self._parts.append(data)
                self._byte_count += len(data)

    def end(self, write: Callable[[bytes], object] | None = None) -> None:
        """Forgets what was kept. Without a session, `write` gets it first."""
        with self._lock:
            parts, self._parts = self._parts, None
        if write is not None and parts:
            write(b"".join(parts))


class _Line(Enum):
    """The line that has begun: whether it is passed on."""

    BEGINS = auto()
    PASSES = auto()
    CHATTER = auto()


def _write(data: bytes) -> None:
    with suppress(OSError):  # no one reads it any more, and the JVM must not wait for that
        os.write(_STANDARD_ERROR, data)


def _pass_on(reading: int, write: Callable[[bytes], object]) -> None:
    """Passes lines on until the JVM ends."""
    without_chatter = ChatterFilter(write)
    with os.fdopen(reading, "rb", buffering=0) as stream:
        while chunk := stream.read(_CHUNK_BYTES):
            without_chatter.feed(chunk)
    without_chatter.end()


class ChatterFilter:
    """Passes lines on, but not the chatter, nor the empty line after each of its lines. The beginning of a line waits only as
    long as it may be chatter. Of a line above LINE_BYTES_MAX the rest is left out: plans and code that Spark prints.

    Each byte is looked at once, and at most the bytes of a name of chatter are held.
    """

    def __init__(self, write: Callable[[bytes], object]) -> None:
        self._write = write
        self._held = b""
        """The beginning of a line that may be chatter."""
        self._line: _Line = _Line.BEGINS
        self._passed_bytes = 0
        """The bytes of the line that has begun which were passed on."""
        self._left_out_bytes = 0
        self._was_chatter = False
        """The line before was."""

    def feed(self, data: bytes) -> None:
        """Takes a piece of the output, cut anywhere."""
        passed: list[bytes] = []
        for piece in _LINE_END.split(data):
            self._piece(piece, passed)
        if passed:
            self._write(b"".join(passed))

    def end(self) -> None:
        """Marks the end of the output."""
        passed = [self._held, self._note()]
        self._held = b""
        if any(passed):
            self._write(b"".join(passed))

    def _piece(self, piece: bytes, passed: list[bytes]) -> None:
        """A part of one line, or an end of a line alone."""
        if piece in _ENDS:
            self._ended(piece, passed)
            return
        if not piece:
            return
        if self._line is _Line.BEGINS:
            held = self._held + piece[:_NAME_BYTES_MAX]
            if held.startswith(_CHATTER):
                self._held, self._line = b"", _Line.CHATTER
            elif _may_be_chatter(held):
                self._held = held
            else:
                piece, self._held, self._line = self._held + piece, b"", _Line.PASSES
        if self._line is _Line.PASSES:
            self._pass_on(piece, passed)

    def _pass_on(self, piece: bytes, passed: list[bytes]) -> None:
        fitting = piece[: LINE_BYTES_MAX - self._passed_bytes]
        self._passed_bytes += len(fitting)
        self._left_out_bytes += len(piece) - len(fitting)
        passed.append(fitting)

    def _note(self) -> bytes:
        left_out, self._passed_bytes, self._left_out_bytes = self._left_out_bytes, 0, 0
        return b"... (%d bytes left out)" % left_out if left_out else b""

    def _ended(self, end: bytes, passed: list[bytes]) -> None:
        line, self._line = self._line, _Line.BEGINS
        if line is _Line.CHATTER:
            self._was_chatter = True
            return
        is_after, self._was_chatter = self._was_chatter, False
        if is_after and end == b"\n" and line is _Line.BEGINS and not self._held:
            return
        passed += [self._held, self._note(), end]
        self._held = b""


def _may_be_chatter(beginning: bytes) -> bool:
    return any(chatter.startswith(beginning) for chatter in _CHATTER)
