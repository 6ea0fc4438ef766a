"""One Apache Kafka node on loopback: KRaft broker and controller in one, default settings and flags.

The process is started the way Kafka's own scripts start it (1 GiB heap, G1), on a data directory of its own
that is removed at the end unless the caller gave one.
"""

from __future__ import annotations

import base64
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from benchmarks.peer.fetch import PeerAbsentError, PeerJars, fetch_peer, java_command

START_SECONDS_MAX = 600.0
STOP_SECONDS_MAX = 30.0

# What bin/kafka-server-start.sh and bin/kafka-run-class.sh set when the environment says nothing.
HEAP_FLAGS = ("-Xmx1G", "-Xms1G")
JVM_FLAGS = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)

# The shipped config/server.properties says this; all the rest is Kafka's default.
SHIPPED_SETTINGS = {
    "num.network.threads": "3",
    "num.io.threads": "8",
    "socket.send.buffer.bytes": "102400",
    "socket.receive.buffer.bytes": "102400",
    "socket.request.max.bytes": "104857600",
    "num.partitions": "1",
    "num.recovery.threads.per.data.dir": "2",
    "offsets.topic.replication.factor": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "log.retention.hours": "168",
    "log.segment.bytes": "1073741824",
    "log.retention.check.interval.ms": "300000",
}

_LOGGING = """<?xml version="1.0" encoding="UTF-8"?>
<Configuration status="error">
  <Appenders>
    <Console name="out"><PatternLayout pattern="[%d] %p %m (%c)%n"/></Console>
  </Appenders>
  <Loggers>
    <Root level="info"><AppenderRef ref="out"/></Root>
  </Loggers>
</Configuration>
"""
_LOGGING_BEFORE_4 = """log4j.rootLogger=INFO, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=[%d] %p %m (%c)%n
"""


class KafkaNode:
    """A running node; use it as a context manager.

    `settings` override Kafka's defaults by their own names. `bootstrap` is `host:port`, `pid` the process. A node of a
    cluster gets its ports (for clients, for controllers) and the cluster's id.
    """

    def __init__(
        self,
        jars: PeerJars | None = None,
        *,
        settings: Mapping[str, str] | None = None,
        directory: Path | None = None,
        ports: tuple[int, int] | None = None,
        cluster_id: str | None = None,
    ) -> None:
        self.jars = jars or fetch_peer()
        self.settings = dict(settings or {})
        self._own_directory = directory is None
        self.directory = directory or Path(tempfile.mkdtemp(prefix="odradek-peer-"))
        self._process: subprocess.Popen[bytes] | None = None
        self._ports = ports
        self._cluster_id = cluster_id
        self._port = 0 if ports is None else ports[0]
        self._log_start = 0

    @property
    def name(self) -> str:
        return f"Apache Kafka {self.jars.version}"

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self._port}"

    @property
    def pid(self) -> int:
        if self._process is None:
            raise RuntimeError("the node is not running")
        return self._process.pid

    @property
    def log_file(self) -> Path:
        return self.directory / "server.log"

    @property
    def data_directory(self) -> Path:
        return self.directory / "data"

    def start(self, *, wait: bool = True) -> Self:
        """Format the storage if that was not done yet, start the process, and wait until it serves.

        :raises PeerAbsentError: when it does not come up; the message names its log file's last line
        """
        self.prepare()
        self.launch()
        if wait:
            try:
                self.wait_until_ready()
            except BaseException:
                self.stop()
                raise
        return self

    def prepare(self) -> None:
        """Choose ports, write the settings and format the storage. Not part of what a start costs."""
        self._port, controller_port = self._ports or free_ports(2)
        self.directory.mkdir(parents=True, exist_ok=True)
        name, text = self._logging
        (self.directory / name).write_text(text, encoding="utf-8")
        lines = [f"{key}={value}" for key, value in self._all_settings(controller_port).items()]
        self._settings_file.write_text("\n".join(lines) + "\n", encoding="utf-8")
        if not (self.data_directory / "meta.properties").exists():
            self._format_storage()

    def launch(self) -> None:
        """Start the process and return at once."""
        command = self._java("-Xlog:gc*:file=" + str(self.directory / "gc.log"), *HEAP_FLAGS, *JVM_FLAGS)
        with self.log_file.open("ab") as log:
            self._log_start = log.tell()
            self._process = subprocess.Popen(
                [*command, "kafka.Kafka", str(self._settings_file)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def wait_until_ready(self) -> None:
        """Return when the broker has said that it started and its port accepts connections."""
        deadline = time.monotonic() + START_SECONDS_MAX
        while time.monotonic() < deadline:
            if self._process is None or self._process.poll() is not None:
                raise PeerAbsentError(f"{self.name} ended while starting: {self._last_log_line()}")
            if b"Kafka Server started" in self._log_tail() and _accepts(self._port):
                return
            time.sleep(0.05)
        raise PeerAbsentError(
            f"{self.name} did not serve within {START_SECONDS_MAX:.0f} s: {self._last_log_line()}"
        )

    def stop(self) -> None:
        """SIGTERM, then SIGKILL when that is not enough; removes the directory if it is the node's own."""
        process, self._process = self._process, None
        if process is not None and process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if self._own_directory:
            shutil.rmtree(self.directory, ignore_errors=True)

    def terminate(self) -> int:
        """SIGTERM and the exit code; the data stays for a later `start`."""
        process, self._process = self._process, None
        if process is None:
            raise RuntimeError("the node is not running")
        process.send_signal(signal.SIGTERM)
        return process.wait(STOP_SECONDS_MAX)

    def kill(self) -> None:
        """SIGKILL, as a crash would; the data stays for a later `start`."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def _settings_file(self) -> Path:
        return self.directory / "server.properties"

    def _all_settings(self, controller_port: int) -> dict[str, str]:
        return {
            **SHIPPED_SETTINGS,
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
            "listeners": f"PLAINTEXT://127.0.0.1:{self._port},CONTROLLER://127.0.0.1:{controller_port}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self._port}",
            "inter.broker.listener.name": "PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "log.dirs": str(self.data_directory),
            **self.settings,
        }

    @property
    def _logging(self) -> tuple[str, str]:
        """The name and the text of the logging configuration. Kafka 3 logs with Log4j 1."""
        if self.jars.version.startswith("3."):
            return "log4j.properties", _LOGGING_BEFORE_4
        return "log4j2.xml", _LOGGING

    def _java(self, *flags: str) -> list[str]:
        name, _ = self._logging
        key = "log4j2.configurationFile" if name.endswith(".xml") else "log4j.configuration"
        logging = f"-D{key}=file:{self.directory / name}"
        return [java_command(), *flags, logging, "-cp", self.jars.class_path]

    def _format_storage(self) -> None:
        cluster_id = self._cluster_id or base64.urlsafe_b64encode(os.urandom(16)).decode().rstrip(
            "="
        ).replace("-", "a", 1)
        command = [*self._java("-Xmx256M"), "kafka.tools.StorageTool", "format"]
        answer = subprocess.run(
            [*command, "--cluster-id", cluster_id, "--config", str(self._settings_file)],
            capture_output=True,
            text=True,
            check=False,
        )
        if answer.returncode != 0:
            raise PeerAbsentError(f"{self.name} could not format its storage: {answer.stderr.strip()[-300:]}")

    def _log_tail(self) -> bytes:
        return self.log_file.read_bytes()[self._log_start :]

    def _last_log_line(self) -> str:
        lines = self.log_file.read_text(encoding="utf-8", errors="replace").splitlines() or ["(empty log)"]
        return lines[-1][:300]


def free_port() -> int:
    """A loopback port that was free a moment ago."""
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """Ports that were free a moment ago; all are held at once so that none comes twice."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for listener in sockets:
            listener.bind(("127.0.0.1", 0))
        return [int(listener.getsockname()[1]) for listener in sockets]
    finally:
        for listener in sockets:
            listener.close()


def _accepts(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False
