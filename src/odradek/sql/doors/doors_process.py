"""The process that serves the doors: `python -m odradek.sql.doors.doors_process DESCRIPTOR`. One JVM, with one door or both.

Its catalog is Spark's own, in memory: each stream and table of the server is a table `USING odradek_sql`, which all sessions
see. The sessions of clients are read only (`ReadOnly.java`); the tables are made in the one session that is not.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from odradek.model.errors import OdradekError
from odradek.model.lazy import lazy
from odradek.spark.engine import session as spark_sessions
from odradek.spark.engine.jvm import BRIEF, JAVA_OPTIONS, running_jvm, start_jvm
from odradek.spark.engine.own_session import DIRECTORIES
from odradek.sql.doors.messages import DoorsFailed, DoorsOpen, OpenDoors, ShowSources
from odradek.sql.metastore.catalog import Source
from odradek.sql.queries.channel import EngineChannel, UnreadableMessage
from odradek.sql.queries.expressions import NeedsSpark
from odradek.sql.queries.scratch import EngineScratch
from odradek.telemetry import events

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject, JVMView
    from pyspark import errors as spark_errors

    from odradek.pipelines import failure_line
    from odradek.spark.engine import shared_planners
    from odradek.sql.doors import source as door_source
else:
    spark_errors = lazy("pyspark.errors")
    failure_line = lazy("odradek.pipelines.failure_line")
    shared_planners = lazy("odradek.spark.engine.shared_planners")
    door_source = lazy("odradek.sql.doors.source")

_log = events.get("sql")
JVM_IS_GONE: Final = 70
_LOOPBACK: Final = "127.0.0.1"
_PACKAGE: Final = "odradek.doors"
_NOT_FOR_STRANGERS: Final = (
    "reflect",
    "java_method",
    "try_reflect",
    "from_protobuf",
    "to_protobuf",
    "from_avro",
    "to_avro",
    "schema_of_avro",
    "from_xml",
    "schema_of_xml",
)
"""Functions that call Java, or read files and URLs that their options name: descriptors, and schemas of Avro and XML."""

_OF_HIVE: Final = {
    "hive.metastore.rawstore.impl": "none",
    "hive.hmshandler.retry.attempts": "0",
    "hive.security.authorization.manager": f"{_PACKAGE}.NoMetastore",
    "hive.variable.substitute": "false",
}
"""Hive would open a metastore for lists of tables, and at the end of each session: half a minute, for nothing that is used.
And it would put this process's environment into a session's variables."""


@dataclass(slots=True)
class DoorSession:
    """The Spark session of the doors, and the tables in its catalog. One thread uses it."""

    directory: Path
    order: OpenDoors
    spark: Any = None
    _shown: dict[str, Source] = field(default_factory=dict)

    def open(self) -> DoorsOpen:
        os.chdir(self.directory)  # Hive's client and Spark's warehouse leave files where they are started
        catalog = self.directory / "catalog"
        os.environ[door_source.CATALOG_VARIABLE] = str(catalog)
        os.environ.setdefault(DIRECTORIES, str(self.directory))
        settings = self._settings()
        start_jvm({"spark.master": spark_sessions.LOCAL, **settings})
        loader = _compiled(running_jvm())
        self.spark = spark_sessions.new_session("odradek-sql-doors", settings)
        self._guard(loader)
        self.show(self.order.sources)
        return DoorsOpen(
            connect=None if self.order.connect is None else self._open_connect(),
            jdbc=None if self.order.jdbc is None else self._open_jdbc(),
        )

    def show(self, sources: tuple[Source, ...]) -> None:
        """Makes and drops tables, so that exactly these exist."""
        wanted = {source.name: source for source in sources}
        door_source.DoorCatalog(servers=self.order.servers, options=self.order.options, sources=wanted).write(
            self.directory / "catalog"
        )
        for name, source in list(self._shown.items()):
            if wanted.get(name) != source:
                self.spark.sql(f"DROP TABLE IF EXISTS {_quoted(name)}")
                del self._shown[name]
        for name, source in wanted.items():
            if name not in self._shown:
                self._make(source)

    def _make(self, source: Source) -> None:
        try:
            self.spark.sql(table_statement(source))
        except NeedsSpark:
            reason = "it has headers, or a timestamp of text"
        except (OdradekError, spark_errors.PySparkException) as error:
            reason = _line(error)
        else:
            self._shown[source.name] = source
            return
        _log.warning("sql_source_not_in_doors", source=source.name, reason=reason)

    # ---- the JVM

    def _settings(self) -> dict[str, Any]:
        return {
            "spark.driver.bindAddress": _LOOPBACK,
            JAVA_OPTIONS: f'{BRIEF} "-Djava.io.tmpdir={self.directory}"',
            "spark.driver.maxResultSize": "256m",
            "spark.sql.adaptive.enabled": "false",
            "spark.sql.runSQLOnFiles": "false",
            "spark.sql.shuffle.partitions": "1",
            "spark.sql.variable.substitute": "false",  # ${env:NAME} would show this process's environment
            "spark.sql.warehouse.dir": str(self.directory / "warehouse"),
            "spark.connect.grpc.binding.address": _LOOPBACK,
            "spark.connect.grpc.binding.port": str(self.order.connect or 0),
            "spark.connect.grpc.interceptor.classes": f"{_PACKAGE}.ConnectCalls",
            "spark.connect.session.planCompression.threshold": "-1",  # its calls could not be looked into
            "spark.hadoop.hive.server2.thrift.bind.host": _LOOPBACK,
            "spark.hadoop.hive.server2.thrift.port": str(self.order.jdbc or 0),
        }

    def _guard(self, loader: JavaObject) -> None:
        """Sessions that are made from now on are read only."""
        jvm: JVMView = spark_sessions.jvm_of(self.spark)
        catalyst = jvm.org.apache.spark.sql.catalyst
        functions = _object(catalyst.analysis, "FunctionRegistry").builtin()
        for name in _NOT_FOR_STRANGERS:
            functions.dropFunction(catalyst.FunctionIdentifier(name))
        owner = spark_sessions.java_session(self.spark)
        settings = owner.newSession().sessionState().conf().settings()
        extensions = owner.extensions()
        extensions.injectCheckRule(self._new(loader, "CheckRules", owner, door_source.FORMAT))
        extensions.injectParser(self._new(loader, "Parsers", owner, settings))

    def _new(self, loader: JavaObject, name: str, *arguments: Any) -> JavaObject:
        array = spark_sessions.java_array(self.spark, len(arguments))
        for index, argument in enumerate(arguments):
            array[index] = argument
        return loader.loadClass(f"{_PACKAGE}.{name}").getConstructors()[0].newInstance(array)

    def _open_connect(self) -> int:
        service = _object(
            spark_sessions.jvm_of(self.spark).org.apache.spark.sql.connect.service, "SparkConnectService"
        )
        service.start(spark_sessions.java_session(self.spark).sparkContext())
        return int(service.localPort())

    def _open_jdbc(self) -> int:
        thrift = _object(
            spark_sessions.jvm_of(self.spark).org.apache.spark.sql.hive.thriftserver, "HiveThriftServer2"
        )
        server = thrift.startWithSparkSession(spark_sessions.java_session(self.spark), False)
        for name, value in _OF_HIVE.items():
            server.getHiveConf().set(name, value)
            server.getHiveConf().addToRestrictList(name)
        (service,) = (part for part in server.getServices() if "Thrift" in part.getName())
        return int(service.getPortNumber())


def _compiled(jvm: JVMView) -> JavaObject:
    """Returns the loader of the classes in `ReadOnly.java`; Spark, which starts after this, finds them, too."""
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    thread = jvm.java.lang.Thread.currentThread()
    compiler.setParentClassLoader(thread.getContextClassLoader())
    compiler.cook(resources.files("odradek.sql.doors").joinpath("ReadOnly.java").read_text("utf-8"))
    loader = compiler.getClassLoader()
    thread.setContextClassLoader(loader)
    return loader


def _object(package: object, name: str) -> Any:
    """Returns an object of Scala."""
    return getattr(getattr(package, f"{name}$"), "MODULE$")


def table_statement(source: Source) -> str:
    """Returns the statement that makes a source's table. NeedsSpark, SqlError for a source that cannot be read here."""
    columns = [f"{_quoted(name)} {kind.ddl}" for name, kind in door_source.shown_columns(source).items()]
    columns[0] += f" COMMENT '{door_source.comment_of(source)}'"
    return f"CREATE TABLE {_quoted(source.name)} ({', '.join(columns)}) USING {door_source.FORMAT}"


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _line(error: Exception) -> str:
    return failure_line.failure_line(str(error))


def _end_with(jvm: JVMView) -> None:
    jvm.wait()
    os._exit(JVM_IS_GONE)


def main(descriptor: int) -> None:
    os.environ.setdefault("SPARK_LOCAL_IP", _LOOPBACK)
    os.environ.setdefault("PYSPARK_SUBMIT_ARGS", "--conf spark.ui.showConsoleProgress=false pyspark-shell")
    channel = EngineChannel(socket.socket(fileno=descriptor))
    scratch = EngineScratch()
    python = sys.executable
    try:
        python = str(shared_planners.SharedPlanners(scratch.directory("planners")).python)
    except OSError as error:  # such as TMPDIR, whose path is too long for a socket
        _log.warning("sql_planners_not_shared", reason=str(error))
    for variable in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        os.environ.setdefault(variable, python)
    doors: DoorSession | None = None
    for message in channel.messages():
        match message:
            case OpenDoors():
                try:
                    doors = DoorSession(scratch.directory("doors"), message)
                    channel.send(doors.open())
                except Exception as error:  # noqa: BLE001 - the root of a process: the server hears of it
                    channel.send(DoorsFailed(problem=_line(error)))
                    break
                jvm = spark_sessions.jvm_process(doors.spark)
                threading.Thread(target=_end_with, args=[jvm], name="odradek-doors-jvm", daemon=True).start()
            case ShowSources() if doors is not None:
                doors.show(message.sources)
            case UnreadableMessage(problem=problem):
                _log.warning("sql_doors_order_unreadable", reason=problem)
    scratch.close()
    os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]))
