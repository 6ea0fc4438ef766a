"""Real ZooKeepers for tests: `ZooKeeperServer` and `Ensemble`, on free ports of 127.0.0.1, and their faults.

with ZooKeeperServer(tmp_path) as server:
    connect_to(server.address)

Each is a Java process of its own; its log stays in its directory.
"""

from __future__ import annotations

import re
import shutil
import signal
import socket
import struct
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from odradek.model.errors import OdradekError
from odradek.testing.zookeeper_jars import ZooKeeperAbsent, absent, find_jars

__all__ = ["Ensemble", "ZooKeeperAbsent", "ZooKeeperServer", "absent", "expire_session"]

_START_SECONDS: Final = 60.0
_STOP_SECONDS: Final = 10.0
_POLL_SECONDS: Final = 0.02
_TICK_MS: Final = 100
_JVM: Final = (
    "-Xmx256M",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Dzookeeper.jmx.log4j.disable=true",
)


class ZooKeeperServer:
    """One server. `settings` go into its zoo.cfg, `jvm` to Java. With `durable=False` it does not wait for its disk.

    Sessions may be as short as 4 ticks of 100 ms, unless `settings` say otherwise.
    """

    def __init__(
        self,
        directory: Path,
        *,
        settings: Mapping[str, str] | None = None,
        jvm: Sequence[str] = (),
        durable: bool = True,
        port: int | None = None,
    ) -> None:
        self.directory = directory
        self.port = port or free_ports(1)[0]
        self._settings = dict(settings or {})
        self._jvm = [*_JVM, *([] if durable else ["-Dzookeeper.forceSync=no"]), *jvm]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def data(self) -> Path:
        return self.directory / "data"

    @property
    def log_file(self) -> Path:
        return self.directory / "zookeeper.log"

    @property
    def pid(self) -> int:
        if self._process is None:
            raise OdradekError(f"the ZooKeeper of {self.directory} is not running")
        return self._process.pid

    def start(self) -> Self:
        """Returns once it serves. Raises `ZooKeeperAbsent`, or OdradekError with the end of its log."""
        self.launch()
        self.wait_until_serving()
        return self

    def launch(self) -> None:
        """Start the process, and do not wait for it: a member of an ensemble serves when others are there."""
        if self._process is not None and self._process.poll() is None:
            raise OdradekError(
                f"the ZooKeeper of {self.directory} already runs, with pid {self._process.pid}"
            )
        jars = find_jars()
        self.data.mkdir(parents=True, exist_ok=True)
        answers = {
            "tickTime": str(_TICK_MS),
            "minSessionTimeout": str(4 * _TICK_MS),
            "maxSessionTimeout": "600000",
            "dataDir": str(self.data),
            "clientPort": str(self.port),
            "clientPortAddress": "127.0.0.1",
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "*",
            **self._settings,
        }
        file = self.directory / "zoo.cfg"
        file.write_text("".join(f"{key}={value}\n" for key, value in answers.items()), encoding="utf-8")
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                [jars.java, *self._jvm, "-cp", jars.class_path, main, str(file)],
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def wait_until_serving(self) -> None:
        def serves() -> bool:
            if self._process is None or self._process.poll() is not None:
                self._process = None
                raise OdradekError(f"ZooKeeper did not start: {self._last_words()} ({self.log_file})")
            return self.mode() is not None

        try:
            _until(serves, f"ZooKeeper on {self.address} does not serve ({self.log_file})")
        except BaseException:
            self.kill()
            raise

    def mode(self) -> str | None:
        """ "standalone", "leader" or "follower"; None while it does not serve."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1.0) as connection:
                connection.sendall(b"srvr")
                reply = b"".join(iter(lambda: connection.recv(4096), b""))
        except OSError:
            return None
        match = re.search(rb"^Mode: (\w+)", reply, re.MULTILINE)
        return match[1].decode("ascii") if match else None

    def stop(self) -> None:
        """End it in order; idempotent."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_STOP_SECONDS)
            self.kill()

    def kill(self) -> None:
        """Kills the process as a crash would, even a paused one. Idempotent."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def pause(self) -> None:
        """Pauses the process: like a machine that hangs, it neither answers nor closes connections."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def restart(self) -> None:
        self.stop()
        self.start()

    def wipe(self) -> None:
        """Remove its data, as an operator's mistake does. Only while it is stopped."""
        if self._process is not None:
            raise OdradekError(f"the ZooKeeper of {self.directory} runs: stop it before its data is removed")
        for path in self.data.glob("version-*"):
            shutil.rmtree(path)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.kill()

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)

    def _last_words(self) -> str:
        lines = self.log_file.read_text(encoding="utf-8", errors="replace").splitlines()
        return next(
            (line for line in reversed(lines) if "ERROR" in line or "Exception" in line), "no reason given"
        )


class Ensemble:
    """Several servers that elect a leader; they outlive the loss of less than half of them."""

    def __init__(self, directory: Path, size: int = 3, *, durable: bool = True) -> None:
        ports = free_ports(3 * size)
        names = range(1, size + 1)
        members = {
            f"server.{name}": f"127.0.0.1:{ports[size + name - 1]}:{ports[2 * size + name - 1]}"
            for name in names
        }
        limits = {"initLimit": "100", "syncLimit": "20"}
        self.servers = [
            ZooKeeperServer(
                directory / str(name), settings={**limits, **members}, durable=durable, port=ports[name - 1]
            )
            for name in names
        ]
        for name, server in zip(names, self.servers, strict=True):
            server.data.mkdir(parents=True, exist_ok=True)
            (server.data / "myid").write_text(f"{name}\n", encoding="ascii")

    @property
    def address(self) -> str:
        """All of them, for `zookeeper.connect`."""
        return ",".join(server.address for server in self.servers)

    def start(self) -> Self:
        try:
            for server in self.servers:
                server.launch()
            for server in self.servers:
                server.wait_until_serving()
        except BaseException:
            self.kill()
            raise
        return self

    def leader(self) -> ZooKeeperServer:
        """Waits for one where there is none."""
        servers: list[ZooKeeperServer] = []

        def led() -> bool:
            servers[:] = [server for server in self.servers if server.mode() == "leader"]
            return bool(servers)

        _until(led, f"no leader among {self.address}")
        return servers[0]

    def followers(self) -> list[ZooKeeperServer]:
        return [server for server in self.servers if server.mode() == "follower"]

    def kill(self) -> None:
        for server in self.servers:
            server.kill()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.kill()


def expire_session(address: str, session_id: int, password: bytes) -> None:
    """End someone's session at once, by taking it over and closing it; returns when it is closed.

    Its owner learns of it when it connects again.
    """
    host, port = address.rsplit(":", 1)
    connect = struct.pack(">iqiqi", 0, 0, 10_000, session_id, len(password)) + password + b"\0"
    close = struct.pack(">ii", 1, -11)
    with socket.create_connection((host, int(port)), timeout=_STOP_SECONDS) as connection:
        connection.sendall(b"".join(struct.pack(">i", len(frame)) + frame for frame in (connect, close)))
        while connection.recv(4096):
            pass


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 that are not in use now; they are held together, so that they differ."""
    held = [socket.socket() for _ in range(count)]
    try:
        for holder in held:
            holder.bind(("127.0.0.1", 0))
        return [int(holder.getsockname()[1]) for holder in held]
    finally:
        for holder in held:
            holder.close()


def _until(done: Callable[[], bool], otherwise: str) -> None:
    pause = threading.Event()
    for _ in range(int(_START_SECONDS / _POLL_SECONDS)):
        if done():
            return
        pause.wait(_POLL_SECONDS)
    raise OdradekError(otherwise)
