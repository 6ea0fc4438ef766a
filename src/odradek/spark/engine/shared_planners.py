"""One process for all the planners of a session.

Spark (4.3) starts a Python process for each streaming read, which lives as long as its query and plans its batches, and another
one for the first batch of each stateful operator. With fifty queries that is 4 GB, and a second of CPU at each start. Both
are `PYSPARK_PYTHON -m MODULE`, and connect to a port that their environment names. So `PYSPARK_PYTHON` is a script
here: asked for such a module, it sends its environment to this process, which runs the module on a thread. Asked for a daemon
of workers, it has one forked from `warm_daemon.py`, and waits for its end. Whatever else it is asked for, or when these
processes have ended, it becomes Python.
"""

from __future__ import annotations

import json
import logging
import os
import shlex
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, TypedDict

from odradek.model.lazy import lazy
from odradek.spark.engine import planned_rows

if TYPE_CHECKING:
    from pyspark import serializers
    from pyspark import util as spark_util
else:
    serializers = lazy("pyspark.serializers")
    spark_util = lazy("pyspark.util")

log: Final = logging.getLogger("odradek.spark")

PLANNERS: Final = (
    planned_rows.STREAM_PLANNER,
    "pyspark.sql.streaming.transform_with_state_driver_worker",
)
"""Each has `main(infile, outfile)`, which ends when Spark closes the connection."""
_DAEMON: Final = "pyspark.daemon"
_WARM_DAEMON: Final = "odradek.spark.engine.warm_daemon"
_REQUEST_MAX_BYTES: Final = 1 << 20
_REQUEST_S: Final = 30.0

_ASK: Final = """
import json, os, socket, sys
try:
    with socket.socket(socket.AF_UNIX) as door:
        door.connect(DOOR)
        request = {"module": sys.argv[2], "process": os.getpid(), "environment": dict(os.environ)}
        door.sendall(json.dumps(request).encode())
        door.shutdown(socket.SHUT_WR)
        taken = door.recv(1)
except OSError:
    taken = b""
if not taken:
    os.execv(PYTHON, [PYTHON, *sys.argv[1:]])
"""
"""`-m MODULE` are its arguments."""

_ASK_DAEMON: Final = """
import json, os, socket, sys
door = socket.socket(socket.AF_UNIX)
try:
    door.connect(DOOR)
    process = {"process": os.getpid(), "directory": os.getcwd()}
    request = {**process, "arguments": sys.argv[3:], "environment": dict(os.environ)}
    content = json.dumps(request).encode()
    socket.send_fds(door, [content[:1]], [0, 1, 2])
    door.sendall(content[1:])
    door.shutdown(socket.SHUT_WR)
    taken = door.recv(1)
except OSError:
    taken = b""
if not taken:
    os.execv(PYTHON, [PYTHON, *sys.argv[1:]])
door.recv(1)
"""
"""Spark reads where the daemon listens from standard output, and ends it through standard input: the daemon has both."""


_ASK_VERSION: Final = "import sys; print('%d.%d' % sys.version_info[:2])"
"""Code that prints Python's version, which Spark runs three times before it makes a function."""


class SharedPlanners:
    """Planners on threads of this process. Spark uses them when PYSPARK_PYTHON is `python` while its JVM starts."""

    def __init__(
        self,
        directory: Path,
        run: Callable[[str, IO[bytes]], None] | None = None,
        workers_use: Sequence[str] = (),
    ) -> None:
        """`directory`: for this user only, because requests have secrets; what is in it ends with this process.
        `run(module, connection)`: the module's work, until its connection ends. `workers_use`: modules that workers share.
        """
        self._run = run or _run_module
        self._listening = _listening(directory / "door")
        self._daemons = _daemons(directory / "daemons", workers_use)
        self.python = directory / "python"
        self.python.write_text(_script(directory), encoding="utf-8")
        self.python.chmod(0o700)
        threading.Thread(target=self._accept, name="odradek-planners", daemon=True).start()

    def close(self) -> None:
        """Starts no more planners; those that run go on. Idempotent."""
        try:
            self._listening.shutdown(socket.SHUT_RDWR)
        except OSError:
            log.debug("the door of the planners was closed before")
        self._listening.close()
        assert self._daemons.stdin is not None
        self._daemons.stdin.close()
        self._daemons.wait()

    def _accept(self) -> None:
        while True:
            try:
                asking, _ = self._listening.accept()
            except OSError:
                return  # closed
            threading.Thread(target=self._serve, args=[asking], name="odradek-planner", daemon=True).start()

    def _serve(self, asking: socket.socket) -> None:
        with asking:
            asking.settimeout(_REQUEST_S)
            try:
                request = _read(asking)
                connection = _connected(request["environment"], request["process"])
                asking.sendall(b"+")
            except (OSError, ValueError, KeyError) as error:
                log.warning("a planner gets a process of its own: %s", error)
                return
        try:
            with connection:
                self._run(request["module"], connection)
        except OSError as error:
            log.debug("a planner's query has ended: %s", error)


def _listening(door: Path) -> socket.socket:
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(door))
    listening.listen(64)
    return listening


def _daemons(door: Path, modules: Sequence[str]) -> subprocess.Popen[bytes]:
    """Returns the process that daemons are forked from. Those that ask before it is ready wait. It ends with this one."""
    with _listening(door) as listening:
        words = [sys.executable, "-m", _WARM_DAEMON, "--listen", str(listening.fileno()), *modules]
        same_in_all = {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"}  # no threads that a fork would lose
        return subprocess.Popen(
            words, stdin=subprocess.PIPE, pass_fds=[listening.fileno()], env={**os.environ, **same_in_all}
        )


def _script(directory: Path) -> str:
    python = shlex.quote(sys.executable)

    def program(text: str, door: str) -> str:
        text = text.replace("DOOR", repr(str(directory / door))).replace("PYTHON", repr(sys.executable))
        return f"exec {python} -I -S -c {shlex.quote(text)}"

    planners = "".join(f'{module}) {program(_ASK, "door")} "$@" ;;\n' for module in PLANNERS)
    daemon = f'{_DAEMON}) shift 2; {program(_ASK_DAEMON, "daemons")} -m {_WARM_DAEMON} "$@" ;;\n'
    version = f'"{_ASK_VERSION}") echo {sys.version_info[0]}.{sys.version_info[1]}; exit ;;\n'
    return f'#!/bin/sh\ncase "$2" in\n{planners}{daemon}{version}esac\nexec {python} "$@"\n'


class _PlannerRequest(TypedDict):
    """The JSON of a request for a planner: its module, and the process that Spark started."""

    module: str
    process: int
    environment: dict[str, str]


def _read(asking: socket.socket) -> _PlannerRequest:
    content = b""
    while part := asking.recv(1 << 16):
        content += part
        if len(content) > _REQUEST_MAX_BYTES:
            raise ValueError(f"its request has more than {_REQUEST_MAX_BYTES} bytes")
    request: _PlannerRequest = json.loads(content)
    return request


def _connected(environment: Mapping[str, str], process: int) -> IO[bytes]:
    """Does what PySpark does when it starts a worker: the connection, the secret, the number of the process."""
    socket_path = environment.get("PYTHON_WORKER_FACTORY_SOCK_PATH")
    port = int(environment.get("PYTHON_WORKER_FACTORY_PORT", -1))
    connect = spark_util.local_connect_and_auth
    stream, opened = connect(socket_path or port, environment.get("PYTHON_WORKER_FACTORY_SECRET"))
    opened.settimeout(None)  # a query may rest for long
    opened.close()  # the stream has it, and closes it
    write_int: Any = serializers.write_int
    write_int(process, stream)
    stream.flush()
    connection: IO[bytes] = stream
    return connection


def _run_module(module: str, connection: IO[bytes]) -> None:
    main = lazy(module).main
    vars(sys.modules[module])["print"] = _say_nothing
    if module == planned_rows.STREAM_PLANNER:
        planned_rows.answer_with_rows(sys.modules[module])
    try:
        main(connection, connection)
    except SystemExit:
        log.debug("%s ended with an error, which Spark has", module)
    except (OSError, EOFError, ValueError) as error:
        log.debug("%s: its query has ended: %s", module, error)


def _say_nothing(*values: object, **options: object) -> None:
    """Sends planners' standard output nowhere: it is for their own process."""
